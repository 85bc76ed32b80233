"""A training job on two GPUs: the program that every step runs, and when what of it ran."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from xplane_encode import Array, number, text

GPUS: Final = 2
KERNELS: Final = 220  # a step and GPU
STEPS_AT_ONCE: Final = 50


@dataclass
class Program:
    """The module that every step runs, and what its operations look like on a GPU."""

    random: np.random.Generator
    name: str = "jit_train_step"

    def __post_init__(self) -> None:
        kinds = ("loop_fusion", "input_reduce_fusion", "loop_add_fusion", "transpose_fusion")
        self.ops, self.kernels, self.details = [], [], []
        for i in range(KERNELS):
            if i % 20 == 19:
                self.ops.append(f"all-reduce-start.{i}")
                self.kernels.append("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)")
            elif i % 4 == 0:
                self.ops.append(f"cublas-gemm.{i}.0")
                self.kernels.append(f"nvjet_hsh_{64 << i % 3}x{128 << i % 2}_64x5_2x1_v_bz_TNT")
            else:
                self.ops.append(f"{kinds[i % 4]}.{i}")
                self.kernels.append(f"{kinds[i % 4]}_{i}")
            grid = int(self.random.integers(1, 4096))
            self.details.append(
                f"regs:{32 + i % 64} static_shared:0 dynamic_shared:{i % 5 * 8192}"
                f" grid:{grid},1,1 block:{128 << i % 3},1,1 occ_pct:{25 * (1 + i % 4)}"
            )
        self.scopes = [f"jit(train_step)/jvp(Model)/layer_{i // 10}/{i}" for i in range(KERNELS)]
        self.typical = np.exp(self.random.normal(np.log(14e6), 0.9, KERNELS))

    def proto(self) -> bytes:
        """Return the module with its lines of code, as much as a reader of traces needs."""
        frames = text(0x0A, b"/home/me/train.py") + text(0x12, b"loss") + text(0x12, b"train_step")
        for i in range(40):
            place = b"\x08\x01\x10" + number(1 + i % 2) + b"\x18" + number(20 + i)
            frames += text(0x1A, place)
        frames += b"".join(text(0x22, b"\x08" + number(i + 1)) for i in range(40))
        code = text(0x0A, b"main.1")
        for i, op in enumerate(self.ops):
            place = text(0x12, self.scopes[i].encode()) + b"\x78" + number(1 + i % 40)
            shape = text(0x1A, b"\x10\x10\x1a\x04\x80\x10\x80\x10")
            config = b"\xda\x02" + number(300) + b" " * 300
            code += text(
                0x12, text(0x0A, op.encode()) + text(0x12, b"fusion") + shape + text(0x3A, place)
                + b"\x98\x02" + number(i + 1) + config,
            )  # fmt: skip
        module = text(0x0A, self.name.encode()) + text(0x12, b"main.1") + text(0x1A, code)
        return text(0x0A, module + b"\x28\x07" + b"\x8a\x01" + number(len(frames)) + frames)


@dataclass
class Steps:
    """A few steps of one GPU: when its kernels ran and when they were launched, ps."""

    launch: Array
    start: Array
    duration: Array
    correlation: Array
    begins: Array  # when Python began each step, when it called the program,
    called: Array
    returned: Array  # when that had launched all of it, and when the loss was there
    ends: Array


def simulate(program: Program, clock: int, first: int) -> list[Steps]:
    """Run steps on all GPUs: fetch a batch, launch every kernel in turn, wait for the loss."""
    random, shape = program.random, (GPUS, STEPS_AT_ONCE, KERNELS)
    launch, start = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    duration = (program.typical * random.uniform(0.95, 1.08, shape)).astype(np.int64) // 1000 * 1000
    cost = np.cumsum(random.uniform(3e6, 9e6, shape).astype(np.int64), axis=2)
    times = np.zeros((4, STEPS_AT_ONCE), np.int64)
    for step in range(STEPS_AT_ONCE):
        called = clock + int(random.integers(80_000_000, 600_000_000))
        launch[:, step] = called + cost[:, step]
        # A kernel starts when it is launched and the one before has ended.
        ahead = np.cumsum(duration[:, step] + 1_000_000, axis=1)
        before = ahead - duration[:, step] - 1_000_000
        ready = launch[:, step] + 4_000_000 - before
        start[:, step] = (np.maximum.accumulate(ready, axis=1) + before) // 1000 * 1000
        ended = int((start[:, step, -1] + duration[:, step, -1]).max()) + 30_000_000
        times[:, step] = clock, called, int(launch[:, step, -1].max()) + 5_000_000, ended
        clock = ended + 20_000_000
    ids = 1000 + 2 * np.arange(first * GPUS * KERNELS, (first + STEPS_AT_ONCE) * GPUS * KERNELS)
    columns = (launch, start, duration, ids.reshape(shape))
    return [Steps(*(column[gpu].ravel() for column in columns), *times) for gpu in range(GPUS)]

"""Write a seeded XPlane file of any size, shaped like a JAX training job on two NVIDIA GPUs.

Run: .venv/bin/python benchmarks/xplane_file.py FILE [--seed 1] [--megabytes 60]

What is copied from real files, and from where:
- Stats of a kernel, their order and their wire types: CUPTI's part of XLA (device planes of the
  MI300 files have 5.9 stats an event where XLA says more on CUDA: context, occupancy).
- Stats of a launch on the host: as in `jax_gemm_mi300`, 7-8 an event, `correlation_id` second.
- The rest of the host: three quarters of the events carry no stat (3,206 of 3,728 in
  `jax_gemm_mi300`, 2,556 of 3,415 in `jax_conv_8gpu_mi300`), allocations carry 11, thread pool
  records 2. Python tracer names begin with `$`. Names of calls are those of the two files.
- Every kernel has one launch and one thread a GPU launches (`jax_conv_8gpu_mi300`).
- No step markers, like both JAX files, and `/host:metadata` first, with the modules that ran.
What is invented: kernels a step (220 a GPU, one all-reduce in 20), and the shape of times.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from xplane_encode import (
    DOUBLE,
    INT,
    REF,
    UINT,
    Array,
    Plane,
    constant,
    events,
    line,
    message,
    number,
    text,
)
from xplane_job import GPUS, KERNELS, STEPS_AT_ONCE, Program, Steps, simulate


def kernels(plane: Plane, program: Program, steps: Steps) -> bytes:
    """Encode what ran on one stream."""
    plane.declare(
        "correlation_id", "context_id", "theoretical_occupancy_pct", "occupancy_min_grid_size",
        "occupancy_suggested_block_size", "kernel_details", "tf_op", "name", "hlo_op", "hlo_module",
        "program_id", "memcpy_details",
    )  # fmt: skip
    rows = len(steps.start)
    i = np.arange(rows) % KERNELS
    refs = [np.array([plane.key(v) for v in t])[i] for t in (program.details, program.scopes)]
    ops = np.array([plane.key(op) for op in program.ops])[i]
    return events(
        np.array([plane.event(name) for name in program.kernels])[i],
        steps.start,
        steps.duration,
        plane.stat("correlation_id", UINT, steps.correlation),
        message(0x22, constant(b"\x08" + number(plane.key("context_id")) + b"\x2a\x03$$1", rows)),
        plane.stat("theoretical_occupancy_pct", DOUBLE, 25 * (1 + i % 4)),
        plane.stat("occupancy_min_grid_size", INT, np.full(rows, 264)),
        plane.stat("occupancy_suggested_block_size", INT, np.full(rows, 1024)),
        plane.stat("kernel_details", REF, refs[0]),
        plane.same("tf_op", "XlaModule:", rows),
        plane.stat("name", REF, refs[1]),
        plane.stat("hlo_op", REF, ops),
        plane.same("hlo_module", program.name, rows),
        plane.stat("program_id", INT, np.full(rows, 7)),
    )


def copies(plane: Plane, steps: Steps, toward: str) -> bytes:
    """Encode the copies of one direction: a batch in, or a loss out, each step."""
    begins = steps.called if toward == "MemcpyH2D" else steps.ends - 25_000_000
    size = 1_605_632 if toward == "MemcpyH2D" else 4
    kinds = ("pageable", "device") if toward == "MemcpyH2D" else ("device", "pageable")
    details = f"kind_src:{kinds[0]} kind_dst:{kinds[1]} size:{size} dest:0 async:1"
    rows = len(begins)
    return events(
        np.full(rows, plane.event(toward)),
        begins,
        np.full(rows, 1_500_000 if size == 4 else 60_000_000),
        plane.stat("correlation_id", UINT, steps.correlation[::KERNELS] + 1),
        message(0x22, constant(b"\x08" + number(plane.key("context_id")) + b"\x2a\x03$$1", rows)),
        plane.same("memcpy_details", details, rows),
    )


def launches(plane: Plane, program: Program, steps: Steps, gpu: int) -> bytes:
    """Encode the driver calls of the thread that feeds one GPU."""
    plane.declare("device_id", "correlation_id", "context_id", "tf_op", "name", "hlo_op")
    plane.declare("hlo_module", "program_id")
    rows = len(steps.launch)
    i = np.arange(rows) % KERNELS
    return events(
        np.array([plane.event("cuLaunchKernelEx"), plane.event("cuLaunchKernel")])[(i % 4 > 0) * 1],
        steps.launch,
        program.random.integers(1_800_000, 3_200_000, rows),
        plane.stat("device_id", UINT, np.full(rows, gpu)),
        plane.stat("correlation_id", UINT, steps.correlation),
        plane.stat("context_id", UINT, np.ones(rows, np.int64)),
        plane.same("tf_op", "XlaModule:", rows),
        plane.stat("name", REF, np.array([plane.key(v) for v in program.scopes])[i]),
        plane.stat("hlo_op", REF, np.array([plane.key(v) for v in program.ops])[i]),
        plane.same("hlo_module", program.name, rows),
        plane.stat("program_id", INT, np.full(rows, 7)),
    )


_EXECUTE: Final = (
    "ComputeSemaphoreAcquire", "Build buffer allocations", "GpuExecutable::ExecuteThunks",
    "Resolve constant globals", "PjRtStreamExecutorLoadedExecutable::EnqueueExecution",
    "RecordUsage", "Wait for donation holds", "Wait for usage holds",
    "PjRtStreamExecutorBuffer::Release",
)  # fmt: skip
_CALL: Final = (
    "ParseArguments", "DevicePut", "$util.py:296 wrapper", "$core.py:2002 canonicalize_shape",
    "$builtins isinstance", "$<unknown> get", "$jaxlib.utils safe_map", "$builtins hash",
)  # fmt: skip
_BATCH: Final = ("$builtins len", "$numpy asarray", "$data.py:31 __getitem__", "$builtins next")

# A call and what happens in it: its name, when, what, how often.
Block = tuple[str, Array, Array, tuple[str, ...], int]


def spans(plane: Plane, blocks: list[Block]) -> bytes:
    """Encode calls without stats, step by step: each block encloses calls of equal length."""
    names, starts, durations = [], [], []
    for outer, begin, end, inner, count in blocks:
        each = (end - begin)[:, None] // (count + 1)
        ids = [plane.event(outer), *(plane.event(inner[i % len(inner)]) for i in range(count))]
        names.append(np.tile(ids, (len(begin), 1)))
        starts.append(begin[:, None] + each * np.arange(count + 1))
        durations.append(np.hstack([(end - begin)[:, None], np.tile(each * 4 // 5, (1, count))]))
    columns = (np.hstack(part).ravel() for part in (names, starts, durations))
    return events(*columns)


def allocations(plane: Plane, begins: Array, each: int) -> bytes:
    """Encode the allocator's records, instants with eleven stats."""
    start = np.repeat(begins, each) + np.tile(np.arange(each) * 2_000_000, len(begins))
    rows = len(start)
    size = 256 << (np.arange(rows) % 18)
    names = ("bytes_reserved", "bytes_allocated", "bytes_available", "peak_bytes_in_use",
             "requested_bytes", "allocation_bytes", "addr", "id", "data_type")  # fmt: skip
    values = (size * 0, 1_151_099_648 + size, 153_455_140_096 - size, size * 0 + 1_165_295_360,
              size - 64, size, 139_760_685_864_448 + size, size * 0, size * 0)  # fmt: skip
    return events(
        np.array([plane.event("MemoryAllocation"), plane.event("MemoryDeallocation")])[
            np.arange(rows) % 2
        ],
        start,
        np.zeros(rows, np.int64),
        plane.same("allocator_name", "GPU_0_bfc", rows),
        plane.stat("fragmentation", DOUBLE, size * 0),
        *(plane.stat(n, INT, v) for n, v in zip(names, values, strict=True)),
    )


def records(plane: Plane, begins: Array, each: int) -> bytes:
    """Encode the thread pool's records: who handed work to whom."""
    start = np.repeat(begins, each) + np.tile(np.arange(each) * 5_000_000, len(begins))
    rows = len(start)
    names = ("ThreadpoolListener::StartRegion", "BufferSequencingEvent::Execute")
    ids = np.array([plane.event(n) for n in names])[np.arange(rows) % 2]
    return events(
        ids, start, np.arange(rows) % 2 * 900_000,
        plane.stat("_ct", INT, np.full(rows, 15)),
        plane.stat("_c", INT, 4_294_967_319 + np.arange(rows)),
    )  # fmt: skip


@dataclass
class Job:
    """Two GPUs and the host that feeds them."""

    program: Program
    devices: list[Plane]
    host: Plane
    parts: dict[tuple[str, int, str], list[bytes]] = field(default_factory=dict)
    size: int = 0

    def put(self, plane: str, key: int, name: str, data: bytes) -> None:
        """Append events to a line."""
        self.parts.setdefault((plane, key, name), []).append(data)
        self.size += len(data)

    def run(self, first: int, clock: int) -> int:
        """Let both GPUs run a few steps; return when the last has ended."""
        both = simulate(self.program, clock, first)
        for gpu, (plane, steps) in enumerate(zip(self.devices, both, strict=True)):
            self.put(plane.name, 16, "Stream #16(Kernel)", kernels(plane, self.program, steps))
            for key, toward in ((17, "MemcpyH2D"), (18, "MemcpyD2H")):
                self.put(plane.name, key, f"Stream #{key}({toward})", copies(plane, steps, toward))
            self.feed(gpu, steps)
        self.put(self.host.name, 9, "python", python(self.host, both[0]))
        return int(both[0].ends[-1]) + 20_000_000

    def feed(self, gpu: int, steps: Steps) -> None:
        """Record what the threads of one GPU did."""
        host, begins, ends = self.host, steps.called, steps.returned
        thread, pool, execute = 4000 + gpu, 5000 + gpu, 7000 + gpu
        calls = launches(host, self.program, steps, gpu)
        self.put(host.name, thread, f"Host Threads/{thread}", calls)
        helper = "PjRtStreamExecutorLoadedExecutable::ExecuteHelper"
        work = spans(host, [(helper, begins, ends, _EXECUTE, 49)]) + allocations(host, begins, 10)
        self.put(host.name, execute, f"py_xla_execute/{execute}", work)
        self.put(host.name, pool, f"tf_pjrt_thread_pool/{pool}", records(host, begins, 20))


def python(plane: Plane, steps: Steps) -> bytes:
    """Encode the thread that runs the loop: 150 calls a step."""
    wait = ("$array.py:615 _value", "$profiler.py:417 wrapper")
    return spans(
        plane,
        [
            ("$train.py:88 next_batch", steps.begins, steps.called, _BATCH, 68),
            ("PjitFunction(train_step)", steps.called, steps.returned, _CALL, 75),
            ("np.asarray(jax.Array)", steps.returned, steps.ends, wait, 4),
        ],
    )


def write(path: Path, seed: int, megabytes: float) -> None:
    """Write one file of about this size."""
    random = np.random.default_rng(seed)
    job = Job(
        Program(random),
        [Plane(f"/device:GPU:{gpu}") for gpu in range(GPUS)],
        Plane("/host:CPU"),
    )
    clock = first = 0
    while job.size < megabytes * 1e6:
        clock = job.run(first, clock)
        first += STEPS_AT_ONCE
    path.write_bytes(assemble(job))


def assemble(job: Job) -> bytes:
    """Put the planes into one file."""
    metadata = Plane("/host:metadata")
    proto = job.program.proto()
    inner = b"\x08\x01" + text(0x32, proto)
    entry = b"\x08\x07" + text(0x12, f"{job.program.name}(7)".encode()) + text(0x2A, inner)
    metadata.key("Hlo Proto")
    metadata.facts = text(0x22, b"\x08\x07" + text(0x12, entry))
    planes = [metadata, *job.devices, job.host]
    for (name, key, label), parts in job.parts.items():
        plane = next(p for p in planes if p.name == name)
        plane.lines.append(line(key, label, b"".join(parts)))
    for plane in job.devices:
        for name, value in (
            ("device_vendor", b"Nvidia"),
            ("gpu_device_name", b"NVIDIA H100 80GB HBM3"),
        ):
            plane.facts += text(0x32, b"\x08" + number(plane.key(name)) + text(0x2A, value))
    return b"".join([*(p.encode(i + 1) for i, p in enumerate(planes)), text(0x22, b"gpu-node-1")])


def main() -> None:
    """Write the file that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("file", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--megabytes", type=float, default=60)
    options = parser.parse_args()
    began = time.perf_counter()
    write(options.file, options.seed, options.megabytes)
    took = time.perf_counter() - began
    print(f"{options.file}: {options.file.stat().st_size / 1e6:.1f} MB in {took:.1f} s")


if __name__ == "__main__":
    main()

"""A store with the trace of a small GPU job whose loader is slow, and whose third step is slowest.

Times are microseconds since the first event. In each step the loader works, a batch is copied,
some kernels run one shortly after the other, and the host waits for the device.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tests.traces.kineto_text import Record, document, event, kernel
from whyidle.monitor.store import NewRun, Writer
from whyidle.monitor.store.stored_traces import Kept, keep
from whyidle.monitor.traces.analysis import analyse
from whyidle.monitor.traces.answer import contract

LOADER: Final = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
# A name that a hostile job gives a kernel.
HOSTILE: Final = "<img src=x onerror=alert(1)>"
GEMM: Final = "void cutlass::Kernel<gemm_f16>(gemm_f16::Params)"
# How long the loader takes in each step.
LOADS: Final = (60_000, 60_000, 90_000, 60_000, 30_000)
KERNELS: Final = 12
KERNEL: Final = 2_000
BETWEEN: Final = 100
COPY: Final = 1_000


def records(loads: Sequence[int] = LOADS, devices: int = 1) -> Iterator[Record]:
    """Yield the events of some steps."""
    at, call = 0, 1
    for number, load in enumerate(loads):
        begin = at
        frame = at + 10
        yield event("user_annotation", LOADER, frame + 10, load - 20)
        at += load
        for device in range(devices):
            yield event("cuda_runtime", "cudaMemcpyAsync", at, 20, correlation=call)
            # The driver's call inside carries the same number.
            yield event("cuda_driver", "cuMemcpyHtoDAsync_v2", at + 5, 10, correlation=call)
            yield kernel(
                "Memcpy HtoD (Pageable -> Device)", at + 30, COPY, device=device,
                correlation=call, bytes=1 << 20,
            ) | {"cat": "gpu_memcpy"}  # fmt: skip
            call += 1
        at += 30 + COPY
        for i in range(KERNELS):
            for device in range(devices):
                name = HOSTILE if i == 5 else GEMM
                yield event("cpu_op", "aten::mm", at, 60)
                yield event("cuda_runtime", "cudaLaunchKernel", at + 10, 20, correlation=call)
                yield kernel(name, at + BETWEEN, KERNEL - 1, device=device, correlation=call)
                call += 1
            at += BETWEEN + KERNEL
        yield event("cuda_runtime", "cudaDeviceSynchronize", at - KERNEL + 200, KERNEL)
        at += 400
        yield event("python_function", "train.py(12): train", frame, at - frame - 1)
        yield event("user_annotation", f"ProfilerStep#{number}", begin, at - begin - 1)


def write(path: Path, *, devices: int = 1, loads: Sequence[int] = LOADS) -> Path:
    """Write the trace as a file of the PyTorch profiler."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document(list(records(loads, devices))))
    return path


def kept(store: Path, file: Path, run: int | None, **more: Any) -> int:
    """Keep a trace as ``monitor trace FILE --run RUN`` does; returns its number."""
    found = analyse(file)
    segments = [report.budget.segments for report in found.devices]
    steps = (found.steps.start, found.steps.end)
    answer = json.loads(json.dumps(contract(found)))
    return keep(
        store, found.trace, answer, file=file, segments=segments, steps=steps, run=run, **more
    )


def make(folder: Path, *, devices: int = 1) -> Path:
    """Write a store with one run that has such a trace; returns the store."""
    store = folder / "state" / "whyidle.db"
    with Writer.open(store) as writer:
        run = writer.begin_run(NewRun(target_pid=7, script="train.py"))
        writer.end_run(run, "the job ended", 0)
    kept(store, write(folder / "train.json", devices=devices), run)
    return store


def answer(store: Path) -> dict[str, Any]:
    """Return the answer of the first trace of a store."""
    with Kept.open(store) as opened:
        found: dict[str, Any] = opened.open_trace(1).answer
    return found

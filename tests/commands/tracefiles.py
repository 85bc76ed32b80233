"""Trace files as the profilers write them, a few events long."""

from __future__ import annotations

from typing import Any

from tests.traces.xplane_bytes import block, number


def _event(cat: str, name: str, start: float, duration: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": 7, "ts": start,
            "dur": duration, "args": args}  # fmt: skip


def kineto(*, steps: int = 4) -> dict[str, Any]:
    """Each step waits for the loader, launches one kernel and copies the result back."""
    events = []
    for i in range(steps):
        at, ids = 1000.0 * i, (2 * i + 1, 2 * i + 2)
        events += [
            _event("user_annotation", f"ProfilerStep#{i}", at, 1000),
            _event("user_annotation", "enumerate(DataLoader)#_SingleProcess.__next__", at, 600),
            _event("cpu_op", "aten::mm", at + 600, 60, **{"External id": ids[0]}),
            _event("cuda_runtime", "cudaLaunchKernel", at + 640, 10, correlation=ids[0]),
            _event("cuda_runtime", "cudaMemcpyAsync", at + 700, 250, correlation=ids[1]),
            _event("kernel", "volta_sgemm_128x64_nt", at + 655, 200.5, device=0, stream=7,
                   correlation=ids[0]),
            _event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", at + 900, 40, device=0,
                   stream=7, correlation=ids[1], bytes=4096),
        ]  # fmt: skip
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "Tesla V100"}],
        "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 2},
        "traceEvents": events,
    }


def xplane() -> bytes:
    """One GPU with two kernels on one stream."""
    events = b"".join(
        block(4, number(1, 1) + number(2, start) + number(3, 5_000_000))
        for start in (0, 20_000_000)
    )
    line = number(1, 1) + block(2, "Stream #13(Compute,Memcpy)") + number(3, 1_000_000) + events
    kernel = number(1, 1) + block(2, number(1, 1) + block(2, "gemm_fusion"))
    plane = number(1, 1) + block(2, "/device:GPU:0") + block(3, line) + block(4, kernel)
    return block(1, plane)

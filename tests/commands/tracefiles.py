"""Trace files as the profilers write them, a few events long."""

from __future__ import annotations

from typing import Any


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


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes | str) -> bytes:
    body = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(body)) + body


def xplane() -> bytes:
    """One GPU with two kernels on one stream."""
    events = b"".join(
        _bytes(4, _number(1, 1) + _number(2, start) + _number(3, 5_000_000))
        for start in (0, 20_000_000)
    )
    line = _number(1, 1) + _bytes(2, "Stream #13(Compute,Memcpy)") + _number(3, 1_000_000) + events
    kernel = _number(1, 1) + _bytes(2, _number(1, 1) + _bytes(2, "gemm_fusion"))
    plane = _number(1, 1) + _bytes(2, "/device:GPU:0") + _bytes(3, line) + _bytes(4, kernel)
    return _bytes(1, plane)

"""Answers of ``monitor trace --json``, made by hand."""

from __future__ import annotations

from typing import Any

from whyidle.monitor.core.slices import Slice

MS = 1_000_000


def budget(
    details: dict[str, dict[str, int]] | None = None, steps: int = 0, **slices: int
) -> dict[str, Any]:
    whole = {s.value: slices.pop(s.value, 0) for s in Slice}
    assert not slices, "no slice has this name"
    parts = {s: (details or {}).get(s) or {"all of it": ns} for s, ns in whole.items() if ns}
    return {"total_ns": sum(whole.values()), "steps": steps, "slices": whole, "details": parts}


def device(account: dict[str, Any], index: str = "0", **known: Any) -> dict[str, Any]:
    identity = {"host": None, "pid": 7, "rank": None, "model": None, "kind": "gpu"}
    return {**identity, "index": index, "budget": account, **known}


def answer(*devices: dict[str, Any], **known: Any) -> dict[str, Any]:
    accounts = [d["budget"] for d in devices]
    whole = {s.value: sum(a["slices"][s.value] for a in accounts) for s in Slice}
    details = accounts[0]["details"] if len(accounts) == 1 else None
    return {
        "schema": 1,
        "format": "kineto",
        "events": 216_092,
        "warnings": [],
        "devices": list(devices),
        "steps": {"count": 0, "median_ns": None, "source": "none", "how": "nothing repeats"},
        "budget": budget(details, **whole),
        "step_budget": None,
        "top_kernels": [],
        **known,
    }


# A job that waits for Python and for its neighbours.
ACCOUNT = budget(
    {"idle_dispatch": {"framework operators": 229 * MS, "Python": 112 * MS}},
    compute=358 * MS,
    exposed_comm=206 * MS,
    exposed_copy=4 * MS,
    idle_input=41 * MS,
    idle_dispatch=341 * MS,
    idle_queue=22 * MS,
    idle_gc=3 * MS,
    idle_unknown=25 * MS,
)
BUSY = answer(
    device(ACCOUNT, rank=1),
    steps={"count": 5, "median_ns": 176_345_123, "source": "markers", "how": "ProfilerStep"},
    step_budget={**ACCOUNT, "steps": 5},
    top_kernels=[
        {
            "name": "void at::native::vectorized_elementwise_kernel<4, "
            "at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int, "
            "at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>)",
            "count": 5005,
            "total_ns": 44_123_456,
        },
        {"name": "volta_sgemm_128x64_nt", "count": 10, "total_ns": 9_000_000},
    ],
    copies=[
        {
            "direction": "host to device",
            "memory": "pageable",
            "count": 20,
            "total_ns": 2 * MS,
            "bytes": 1 << 23,
            "gb_per_s": 4.19,
        }
    ],
    collectives=[{"name": "AllReduce", "count": 2020, "total_ns": 206 * MS}],
    where=[
        {
            "slice": "idle_dispatch",
            "file": "/home/someone/project/train.py",
            "line": 42,
            "function": "forward",
            "ns": 208 * MS,
            "share": 0.61,
            "source": "stack",
        }
    ],
    warnings=["The file ends in the middle of an event: what came before it is analysed here."],
)

"""The JSON of what the devices did: kernels, launches, collectives, copies, HLO, operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from whyidle.monitor.core.contracts.trace import (
    ActivityJson,
    KernelJson,
    KernelsJson,
    LaunchingJson,
    NamedJson,
    Unknown,
)
from whyidle.monitor.traces.budgets.budget import to_ns
from whyidle.monitor.traces.kernels.summary import SHORT_NS, Kernel, Kernels
from whyidle.monitor.traces.kernels.tallies import Named

# Names in a list; what is left out is shorter than all of them.
LONGEST_LIST: Final = 100
_NO_NAME_SAYS: Final = "no kernel's name says whether it uses tensor cores"

Ns = Callable[[int], int]


def activity(found: Kernels) -> ActivityJson:
    """Return the parts of the answer about what ran, not about where the time went."""

    def ns(ticks: int) -> int:
        return to_ns(ticks, found.ticks_per_ns)

    return {
        "top_kernels": [_kernel(k, ns) for k in found.kernels[:LONGEST_LIST]],
        "kernels": _kernels(found, ns) if found.count else None,
        "launching": _launching(found, ns) if found.launching.operations else None,
        "collectives": [
            {
                "name": c.name,
                "kind": c.kind,
                "count": c.count,
                "total_ns": ns(c.total),
                "dtype": c.dtype,
                "algorithm": c.algorithm,
                "protocol": c.protocol,
                "unknown": _unknown(
                    {"dtype": c.dtype, "algorithm": c.algorithm, "protocol": c.protocol}
                ),
            }
            for c in found.collectives
        ],
        "copies": [
            {
                "direction": c.direction,
                "memory": c.memory,
                "count": c.count,
                "total_ns": ns(c.total),
                "bytes": c.bytes,
                "gb_per_s": c.gb_per_s(found.ticks_per_ns),
                "unknown": {} if c.unknown is None else {"bytes": c.unknown},
            }
            for c in found.copies
        ],
        "hlo_modules": _list(found.hlo_modules, ns),
        "hlo_ops": [
            {"module": module, **_named(op, ns)} for module, op in found.hlo_ops[:LONGEST_LIST]
        ],
        "top_operators": _list(found.operators, ns),
    }


def _named(one: Named, ns: Ns) -> NamedJson:
    return {"name": one.name, "count": one.count, "total_ns": ns(one.total), "share": one.share}


def _list(found: Iterable[Named], ns: Ns) -> list[NamedJson]:
    return [_named(one, ns) for one in list(found)[:LONGEST_LIST]]


def _kernel(kernel: Kernel, ns: Ns) -> KernelJson:
    dtype, tensor_cores = kernel.facts.dtype, kernel.facts.tensor_cores
    return {
        **_named(kernel.runs, ns),
        "family": "communication" if kernel.communicates else kernel.facts.family,
        "dtype": dtype,
        "tensor_cores": tensor_cores,
        "unknown": _unknown({"dtype": dtype, "tensor_cores": tensor_cores}),
    }


def _unknown(values: Mapping[str, object], reason: str = "the name does not say") -> Unknown:
    """Return the reason of each value that is not known."""
    return {name: reason for name, value in values.items() if value is None}


def _kernels(found: Kernels, ns: Ns) -> KernelsJson:
    cores = found.tensor_share()
    return {
        "count": found.count,
        "total_ns": ns(found.total),
        "short": {
            "below_ns": SHORT_NS,
            "count": found.short_count,
            "total_ns": ns(found.short_total),
        },
        "tensor_core_share": None if cores is None else list(cores),
        "dtypes_ns": {name: ns(ticks) for name, ticks in found.dtypes().items()},
        "families_ns": {name: ns(ticks) for name, ticks in found.families().items()},
        "unknown": {} if cores else {"tensor_core_share": _NO_NAME_SAYS},
    }


def _launching(found: Kernels, ns: Ns) -> LaunchingJson:
    some = found.launching
    call = None if some.call_median is None else ns(some.call_median)
    delay = None if some.delay_median is None else ns(some.delay_median)
    delay_p95 = None if some.delay_p95 is None else ns(some.delay_p95)
    values = {
        "calls_per_second": some.calls_per_second,
        "calls_per_step": some.calls_per_step,
        "call_median_ns": call,
        "delay_median_ns": delay,
        "delay_p95_ns": delay_p95,
    }
    reason = "the steps are not known" if some.calls else "the file has no launches"
    return {
        "operations": some.operations,
        "launched": some.launched,
        "calls": some.calls,
        "graph_operations": some.graph_operations,
        "started_before_launch": some.skewed,
        "calls_per_second": some.calls_per_second,
        "calls_per_step": some.calls_per_step,
        "call_median_ns": call,
        "delay_median_ns": delay,
        "delay_p95_ns": delay_p95,
        "unknown": _unknown(values, reason),
    }

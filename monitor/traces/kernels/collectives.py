"""Communication by collective: what NCCL, RCCL and XLA call it, and how it was done."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from whyidle.monitor.traces.kernels.tallies import Named

# NCCL's own words, in all their old and new orders:
# ncclKernel_AllReduce_RING_LL_Sum_float, ncclDevKernel_AllReduce_Sum_f32_RING_LL,
# ncclAllReduceRingLLKernel_sum_f32, ncclSymDevKernel_AllGather_LL, ncclDevKernel_SendRecv.
_KINDS: Final = (
    ("AllReduce", r"all_?-?reduce"),
    ("AllGather", r"all_?-?gather"),
    ("ReduceScatter", r"reduce_?-?scatter"),
    ("AllToAll", r"all_?-?to_?-?all"),
    ("Broadcast", r"broadcast"),
    ("Reduce", r"(?<!all)reduce"),
    ("SendRecv", r"send_?recv|collective-permute|^send\b|^recv\b"),
)
_KIND: Final = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _KINDS)
_TYPE: Final = re.compile(
    r"_(bf16|f16|f32|f64|f8e4m3|f8e5m2|fp8_e4m3|fp8_e5m2|[iu](?:8|32|64)"
    r"|u?int(?:8|32|64)_t|float|half|double|__nv_bfloat16|hip_bfloat16)(?![a-z0-9])"
)
_TYPES: Final = {
    "float": "f32",
    "half": "f16",
    "double": "f64",
    "__nv_bfloat16": "bf16",
    "hip_bfloat16": "bf16",
    "fp8_e4m3": "f8e4m3",
    "fp8_e5m2": "f8e5m2",
    "int8_t": "i8",
    "uint8_t": "u8",
    "int32_t": "i32",
    "uint32_t": "u32",
    "int64_t": "i64",
    "uint64_t": "u64",
}
# Kinds that move bytes: the type in the name of their kernels is a filler.
_UNTYPED: Final = frozenset({"AllGather", "Broadcast", "SendRecv", "AllToAll", "unknown"})
_ALGORITHM: Final = re.compile(
    r"(ring|tree|collnet(?:_?direct|_?chain)?|nvls(?:_?tree)?|pat)(?=_|ll|simple)", re.IGNORECASE
)
_PROTOCOL: Final = re.compile(r"(?<=[_gets])(LL128|LL|SIMPLE)(?=_|$|Kernel)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Collective:
    """One kind of communication; None is what its kernels' names do not say.

    NCCL enters through one kernel and may branch into another algorithm or protocol: these two
    belong to the entry.
    """

    kind: str
    dtype: str | None
    algorithm: str | None
    protocol: str | None
    count: int
    total: int  # ticks

    @property
    def name(self) -> str:
        """All that is known, in one phrase."""
        known = (self.kind, self.dtype, self.algorithm, self.protocol)
        return " ".join(word for word in known if word)


def collectives(kernels: Iterable[Named]) -> list[Collective]:
    """Join the kernels that do the same, the longest total first."""
    sums: dict[tuple[str, str | None, str | None, str | None], list[int]] = {}
    for kernel in kernels:
        both = sums.setdefault(read_name(kernel.name), [0, 0])
        both[0] += kernel.count
        both[1] += kernel.total
    found = [Collective(*key, count=count, total=total) for key, (count, total) in sums.items()]
    return sorted(found, key=lambda one: -one.total)


def read_name(name: str) -> tuple[str, str | None, str | None, str | None]:
    """Read kind, type, algorithm and protocol from a kernel's name."""
    name = name.split("(", 1)[0]
    kind = next((kind for kind, pattern in _KIND if pattern.search(name)), "unknown")
    dtype = None if kind in _UNTYPED else _TYPE.search(name)
    algorithm, protocol = _ALGORITHM.search(name), _PROTOCOL.search(name)
    return (
        kind,
        _TYPES.get(dtype[1], dtype[1]) if dtype else None,
        algorithm[1].upper().replace("_", "") if algorithm else None,
        protocol[1].upper() if protocol else None,
    )

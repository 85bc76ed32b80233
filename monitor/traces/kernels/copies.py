"""Copies and memsets: by direction and by the host memory they touch, with the speed they reach."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from whyidle.monitor.traces.causes import COPIES, Cause
from whyidle.monitor.traces.grouping import numbered, present
from whyidle.monitor.traces.model import Ids, Ops

Memory = Literal["pageable", "pinned", "managed", "device", "unknown"]

DIRECTIONS: Final = {
    Cause.H2D_PAGEABLE: "host to device",
    Cause.H2D: "host to device",
    Cause.D2H_PAGEABLE: "device to host",
    Cause.D2H: "device to host",
    Cause.P2P: "device to device, peer",
    Cause.D2D: "within the device",
    Cause.COPY: "unknown",
    Cause.MEMSET: "memset",
}
_PAGEABLE: Final = (Cause.H2D_PAGEABLE, Cause.D2H_PAGEABLE)
_CROSSING: Final = (Cause.H2D, Cause.D2H)
_ON_DEVICE: Final = (Cause.P2P, Cause.D2D)
_MEMORIES: Final[tuple[Memory, ...]] = ("pageable", "pinned", "managed", "device", "unknown")


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of one direction and memory; ``bytes`` is None where the file does not give all."""

    direction: str
    memory: Memory
    count: int
    total: int  # ticks
    bytes: int | None
    silent: int  # those that do not say how many bytes they move

    @property
    def unknown(self) -> str | None:
        """Why ``bytes`` is None."""
        if not self.silent:
            return None
        return f"{self.silent:,} of {self.count:,} do not say how many bytes they move"

    def gb_per_s(self, ticks_per_ns: int) -> float | None:
        """How fast they went, a GB being 1e9 bytes."""
        if self.bytes is None or not self.total:
            return None
        return self.bytes * ticks_per_ns / self.total


def copies(devices: Iterable[Ops], names: list[str]) -> list[Copies]:
    """Add up the copies of these devices, the longest total first."""
    groups: dict[tuple[str, Memory], list[Ops]] = {}
    for ops in devices:
        moved = ops.take(np.isin(ops.kind, COPIES))
        memory = _memories(moved, names)
        for kind in present(moved.kind):
            for code in present(memory[moved.kind == kind]):
                of = moved.take((moved.kind == kind) & (memory == code))
                groups.setdefault((DIRECTIONS[Cause(kind)], _MEMORIES[code]), []).append(of)
    found = [_sum(*key, parts) for key, parts in groups.items()]
    return sorted(found, key=lambda one: -one.total)


def _sum(direction: str, memory: Memory, parts: list[Ops]) -> Copies:
    silent = sum(int(np.sum(ops.bytes < 0)) for ops in parts)
    count = sum(len(ops) for ops in parts)
    return Copies(
        direction=direction,
        memory=memory,
        count=count,
        total=sum(int((ops.end - ops.start).sum()) for ops in parts),
        bytes=None if silent else sum(int(ops.bytes.sum()) for ops in parts),
        silent=silent,
    )


def _memories(moved: Ops, names: list[str]) -> Ids:
    """For each copy which host memory it touches, as an index into ``_MEMORIES``."""
    ids, of = numbered(moved.name.astype(np.int64))
    memories = [_memory(names[name]) if name >= 0 else "unknown" for name in ids.tolist()]
    by_name = np.array([_MEMORIES.index(one) for one in memories], np.int32)
    memory = by_name[of] if len(ids) else np.zeros(0, np.int32)
    # The memory of the host counts, and every copy names the device's as well.
    crossing = np.isin(moved.kind, _CROSSING) & (memory == _MEMORIES.index("device"))
    memory[crossing] = _MEMORIES.index("unknown")
    memory[np.isin(moved.kind, _PAGEABLE)] = _MEMORIES.index("pageable")
    memory[np.isin(moved.kind, _ON_DEVICE)] = _MEMORIES.index("device")
    return memory


def _memory(name: str) -> Memory:
    low = name.lower()
    return next((one for one in _MEMORIES if one in low), "unknown")

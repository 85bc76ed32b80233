"""The arrays that are alive: how many, how large, of which types, and on how many devices.

The list of them keeps arrays alive that the job has just released: it is short-lived, and a slow
measurement is followed by a long pause.
"""

from __future__ import annotations

from operator import attrgetter
from time import monotonic_ns

from ..framework import Part
from ..wire import LIVE_ARRAYS, LIVE_BYTES
from .internals import clients

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PERIOD_NS = 5_000_000_000
# Measuring may take this share of the time.
SHARE = 1 / 2000
# Of more arrays than these, every second one is measured, or every third, ...
MOST_ARRAYS = 4000
TYPES = 12

_kinds = attrgetter("aval", "sharding")


class Arrays(Part):
    """Measures the arrays that the clients list."""

    name = "live arrays"

    def begin(self) -> None:
        """Check that the clients can be found."""
        clients()
        self._due = 0
        self._found: dict[str, int | None] = {}
        self._bytes: dict[str, int] = {}
        self._devices = 0
        # Of arrays on several devices: those that are whole on each, and those in parts.
        self._whole = self._divided = 0

    def second(self, now: int) -> dict[str, int | None]:
        """Measure when it is due; returns the last figures."""
        if now < self._due:
            return self._found
        known = clients()
        if not known:
            return {}
        began = monotonic_ns()
        self._measure(list(known.values()))
        took = monotonic_ns() - began
        # A tick that comes a little early must not skip one.
        self._due = now + max(PERIOD_NS - PERIOD_NS // 10, int(took / SHARE))
        return self._found

    def facts(self) -> dict[str, Any]:
        """Return what the largest share of the bytes is made of."""
        if not self._found:
            return {}
        largest = sorted(self._bytes, key=self._bytes.__getitem__, reverse=True)[:TYPES]
        return {
            "dtypes": {name: rounded(self._bytes[name]) for name in largest},
            "devices_used": self._devices,
            "replicated_bytes": rounded(self._whole),
            "divided_bytes": rounded(self._divided),
        }

    def _measure(self, known: list[Any]) -> None:
        number, self._bytes, places = 0, {}, set()
        self._whole = self._divided = 0
        for client in known:
            arrays = client.live_arrays()
            step = -(-len(arrays) // MOST_ARRAYS) or 1
            number += len(arrays)
            used = self._add(arrays[::step], step)
            # Before anything else: whatever only this list held is freed here.
            del arrays
            places |= used
        self._devices = len(places)
        self._found = {LIVE_ARRAYS: number, LIVE_BYTES: sum(self._bytes.values())}

    def _add(self, arrays: list[Any], step: int) -> set[tuple[str, int]]:
        kinds = list(map(_kinds, arrays))
        counts: dict[tuple[int, int], int] = {}
        by_key = {}
        for kind in kinds:
            key = id(kind[0]), id(kind[1])
            counts[key] = counts.get(key, 0) + step
            by_key[key] = kind
        places: set[tuple[str, int]] = set()
        for key, (aval, sharding) in by_key.items():
            name, size = _size(aval, sharding)
            size *= counts[key]
            self._bytes[name] = self._bytes.get(name, 0) + size
            devices = sharding.addressable_devices
            places.update((d.platform, d.id) for d in devices)
            if len(devices) > 1 and sharding.is_fully_replicated:
                self._whole += size
            elif len(devices) > 1:
                self._divided += size
        return places


def _size(aval: Any, sharding: Any) -> tuple[str, int]:
    """Return the type's name, and the bytes on all devices of this process together."""
    items = 1
    devices = len(sharding.addressable_devices)
    # A copy on each of eight devices takes eight times the room, a part on each does not.
    for length in sharding.shard_shape(aval.shape) if devices > 1 else aval.shape:
        items *= length
    return str(aval.dtype), items * devices * getattr(aval.dtype, "itemsize", 0)


def rounded(number: float) -> int:
    """Return the first two digits of a number: what hardly changes is not sent again."""
    length = len(str(int(number)))
    return int(round(number, 2 - length))

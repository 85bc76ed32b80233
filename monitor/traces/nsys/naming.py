"""What the rows of an export are called, and what that means: asked once for each text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.grouping import numbered, present
from whyidle.monitor.traces.interning import Names
from whyidle.monitor.traces.model import Ids, Ints, Kinds
from whyidle.monitor.traces.names import copy_cause, host_cause, kernel_cause, system_cause
from whyidle.monitor.traces.nsys.calls import plain_call
from whyidle.monitor.traces.nsys.database import MISSING, Database
from whyidle.monitor.traces.nsys.ranges import meaning
from whyidle.monitor.traces.nsys.rows import HostRows, Rows, WorkRows
from whyidle.monitor.traces.nsys.tables import COPY_KINDS, HOST, MEMORY_KINDS, UNIFIED, WORK, Says

_UNNAMED: Final = "(no name)"
_Meaning = Callable[[str], tuple[str, int]]


def _overhead(text: str) -> tuple[str, int]:
    cause = host_cause("annotation", text)
    return text, Cause.PROFILER if cause is Cause.AROUND else cause


_MEANINGS: Final[dict[Says, _Meaning]] = {
    "driver": lambda text: (plain_call(text), host_cause("driver", plain_call(text))),
    "range": meaning,
    "library": lambda text: (text, host_cause("operator", text)),
    "waits": lambda text: (text, system_cause(text)),
    "overhead": _overhead,
    "compilation": lambda text: (text, Cause.COMPILE),
}


@dataclass(frozen=True, slots=True)
class _Column:
    """The references of one table in order, and for each of them a name and what it means."""

    refs: Ints
    name: Ids
    kind: Kinds

    def of(self, refs: Ints) -> tuple[Ids, Kinds]:
        """Look up references that are among them."""
        at = np.searchsorted(self.refs, refs)
        return self.name[at], self.kind[at]


@dataclass(frozen=True, slots=True)
class _Texts:
    """The texts that references, in order, lead to; place 0 is none."""

    refs: Ints
    places: Ids  # from -1 on
    texts: list[str]

    def places_of(self, refs: Ints) -> Ints:
        return self.places[np.searchsorted(self.refs, refs)].astype(np.int64) + 1

    def at(self, place: int) -> str:
        return self.texts[place - 1] if place else _UNNAMED


class Naming:
    """The names of a whole file: all of its parts number them alike."""

    def __init__(self, rows: Rows, database: Database) -> None:
        self._names = Names()
        host, work = ([found.values() for found in of] for of in (rows.of_host, rows.of_work))
        refs = np.unique(np.concatenate([*host, *work]))
        self._texts = _Texts(refs, rows.strings.resolve(database, refs), list(rows.strings.texts))
        self._host = self._columns(host, [_MEANINGS[table.says] for table in HOST])
        made = [_made(key) for key in rows.made_of]
        self._made_name = self._numbers([name for name, _ in made])
        self._made_kind = np.array([kind for _, kind in made], np.int8)
        # Operations that have names of their own, by what they would be called without.
        own = {at: key[0] for at, key in enumerate(rows.made_of) if WORK[key[0]].names}
        columns = self._columns([work[number] for number in own.values()], [_kernel] * len(own))
        self._work = dict(zip(own, columns, strict=True))
        self._streams = rows.streams.values()
        self._stream_name = self._numbers([_stream(one) for one in self._streams.tolist()])

    @property
    def names(self) -> list[str]:
        """Return all names, by their numbers."""
        return list(self._names)

    def of_host(self, host: HostRows) -> tuple[Ids, Kinds]:
        """Return the names of spans, and what they mean."""
        name, kind = np.empty(len(host), np.int32), np.empty(len(host), np.int8)
        for table in present(host.table):
            rows = np.flatnonzero(host.table == table)
            name[rows], kind[rows] = self._host[table].of(host.name[rows])
        return name, kind

    def of_work(self, work: WorkRows) -> tuple[Ids, Kinds]:
        """Return the names of operations, and what they mean."""
        name, kind = self._made_name[work.extra], self._made_kind[work.extra]
        for extra, column in self._work.items():
            rows = np.flatnonzero(work.extra == extra)
            name[rows], kind[rows] = column.of(work.name[rows])
        return name, kind

    def of_streams(self, work: WorkRows) -> Ids:
        """Return the labels of the streams of operations."""
        return self._stream_name[np.searchsorted(self._streams, work.stream)]

    def _columns(self, tables: list[Ints], means: Sequence[_Meaning]) -> list[_Column]:
        """Ask what each text means in each of these tables, in the order of the texts."""
        count = len(tables)
        keys = [self._texts.places_of(refs) * count + i for i, refs in enumerate(tables)]
        distinct, of = numbered(np.concatenate([np.zeros(0, np.int64), *keys]))
        each = [means[key % count](self._texts.at(key // count)) for key in distinct.tolist()]
        name = self._numbers([label for label, _ in each])[of]
        kind = np.array([kind for _, kind in each], np.int8)[of]
        ends = np.cumsum([0, *map(len, tables)])
        return [
            _Column(refs, name[a:b], kind[a:b])
            for refs, (a, b) in zip(tables, pairwise(ends.tolist()), strict=True)
        ]

    def _numbers(self, labels: list[str]) -> Ids:
        return np.array([self._names[label] for label in labels], np.int32)


def _stream(number: int) -> str:
    return "none" if number == MISSING else str(number)


def _kernel(label: str) -> tuple[str, int]:
    return label, kernel_cause(label)


def _made(key: tuple[int, ...]) -> tuple[str, int]:
    """Return the name of an operation that has none, as Kineto writes it, and what it means."""
    match WORK[key[0]].work:
        case "kernel":
            return _UNNAMED, Cause.KERNEL
        case "copy":
            label = _copy(*key[1:])
            return label, copy_cause(label)
        case "set":
            label = f"Memset ({_memory(key[1])})"
            return label, copy_cause(label)
        case "graph":
            return f"CUDA graph {key[1]}" if key[1] >= 0 else "CUDA graph", Cause.KERNEL
        case _:
            return "decompression of memory", Cause.KERNEL


def _copy(kind: int, source: int, destination: int) -> str:
    way = COPY_KINDS[kind] if 0 <= kind < len(COPY_KINDS) else ""
    unified = kind in UNIFIED
    ends = [
        "Managed" if unified and memory in ("Unknown", "Pageable") else memory
        for memory in (_memory(source), _memory(destination))
    ]
    return f"Memcpy {way} ({ends[0]} -> {ends[1]})".replace("  ", " ")


def _memory(kind: int) -> str:
    return MEMORY_KINDS[kind] if 0 <= kind < len(MEMORY_KINDS) else "Unknown"

"""One record of a Kineto file, decoded as far as an account of time needs it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any, Final

import msgspec

Text = bytes | bytearray | memoryview
Scalar = int | float | str | bool | None
Id = int | str | None
Time = int | float | str | None
# Longer text may hold a million useless values, and each becomes an object.
_MOST_EACH: Final = 2 << 20


class Args(msgspec.Struct, gc=False, frozen=True):
    """What an event says of itself, out of some thirty keys."""

    device: Scalar = None
    stream: Scalar = None
    correlation: Scalar = -1
    external: Scalar = msgspec.field(default=-1, name="External id")
    # Written by torch before 1.9.
    old_external: Scalar = msgspec.field(default=-1, name="external id")
    bytes: Scalar = -1
    stack: Scalar = msgspec.field(default=None, name="Call stack")
    name: Scalar = None
    # Of communication, by newer versions of torch; with types of all kinds.
    collective: Any = msgspec.field(default=None, name="Collective name")
    group: Any = msgspec.field(default=None, name="Process Group Name")
    ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    sent: Any = msgspec.field(default=None, name="In msg nelems")
    received: Any = msgspec.field(default=None, name="Out msg nelems")
    dtype: Any = None
    sequence: Any = msgspec.field(default=None, name="Seq")


NO_ARGS: Final = Args()
_TIMES: Final = {int, Decimal, str, type(None)}


class Event(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """Something that took time."""

    cat: str | None = None
    name: str = ""
    pid: Id = None
    tid: Id = None
    ts: Time = None
    dur: Time = 0
    args: Args | None = NO_ARGS


class ExactEvent(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """The same where a time is too large for a float: decimals are kept as they are written."""

    cat: str | None = None
    name: str = ""
    pid: Id = None
    tid: Id = None
    ts: Any = None
    dur: Any = 0
    args: Args | None = NO_ARGS

    def __post_init__(self) -> None:
        # Only a field of any type is decoded as a decimal.
        if type(self.ts) not in _TIMES or type(self.dur) not in _TIMES:
            raise TypeError("no time")


class Metadata(msgspec.Struct, gc=False, tag_field="ph", tag="M"):
    """The name of a process or a thread, written as an event."""

    name: str = ""
    pid: Id = None
    tid: Id = None
    args: Args | None = NO_ARGS


# Flows, instants, counters and the like: recognised by their phase, they cost next to nothing.
_PHASES: Final = "BEiICbneSTpFstfPNODVvRc()"
_OTHERS: Final = [
    msgspec.defstruct(f"Phase{ord(phase)}", [], tag_field="ph", tag=phase, gc=False)
    for phase in _PHASES
]


class _Phase(msgspec.Struct):
    ph: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """The useful records of one piece of text, and the count of all."""

    events: list[Event | ExactEvent]
    metadata: list[Metadata]
    count: int
    unreadable: int = 0


class _Decoder:
    """Decodes lists of events; where one has a wrong type, each event by itself."""

    def __init__(self, kind: type[Event | ExactEvent], **options: Any) -> None:
        record: Any = reduce(operator.or_, [kind, Metadata, *_OTHERS])
        self._kind = kind
        self._many = msgspec.json.Decoder(list[record], **options)
        self._one = msgspec.json.Decoder(record, **options)
        self.one: Callable[[Text], Any] = self._one.decode

    def decode(self, text: Text) -> Batch:
        try:
            return self._batch(self._many.decode(text), 0, 0)
        except msgspec.ValidationError:
            if len(text) > _MOST_EACH:
                raise msgspec.DecodeError("too long to look at each event") from None
            return self._each(_RAW.decode(text))

    def _batch(self, records: list[Any], ignored: int, unreadable: int) -> Batch:
        kind = self._kind
        return Batch(
            events=[r for r in records if type(r) is kind],
            metadata=[r for r in records if type(r) is Metadata],
            count=len(records) + ignored + unreadable,
            unreadable=unreadable,
        )

    def _each(self, raws: list[msgspec.Raw]) -> Batch:
        records: list[Any] = []
        ignored = 0
        for raw in raws:
            try:
                records.append(self._one.decode(raw))
            except msgspec.ValidationError:
                ignored += _of_no_interest(raw)
        return self._batch(records, ignored, len(raws) - len(records) - ignored)


_FAST: Final = _Decoder(Event)
_EXACT: Final = _Decoder(ExactEvent, float_hook=Decimal)
_RAW: Final = msgspec.json.Decoder(list[msgspec.Raw])
_PHASE: Final = msgspec.json.Decoder(_Phase)


def decode(text: Text, *, exact: bool) -> Batch:
    """Decode a JSON list of events; raises as msgspec does where it is none."""
    return (_EXACT if exact else _FAST).decode(text)


def decode_one(text: Text) -> Any:
    """Decode one event; raises as msgspec does where it is none."""
    return _FAST.one(text)


def _of_no_interest(raw: msgspec.Raw) -> bool:
    """Whether this event has an unknown phase, or none."""
    try:
        return _PHASE.decode(raw).ph not in {"X", "M"}
    except msgspec.ValidationError:
        return False

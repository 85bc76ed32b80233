"""One event, field by field: for unusual writers, and for damage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from whyidle.monitor.core.protobuf import BYTES, VARINT, Damaged, fields, signed, text

_ID, _OFFSET, _DURATION, _STATS, _OCCURRENCES = 1, 2, 3, 4, 5
_UINT, _INT, _STRING, _REF = 3, 4, 5, 7
# No writer gives an event more stats than some thirty: one with more than this is damaged.
MOST_STATS: Final = 256


@dataclass(slots=True)
class OddEvent:
    """An event and the stats that were asked for: a number, a text, or a reference to one."""

    name: int = 0
    start: int = 0
    duration: int = 0
    numbers: dict[int, int] = field(default_factory=dict)
    refs: dict[int, int] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)


def read_odd(data: bytearray, at: int, end: int, wanted: tuple[int, ...]) -> OddEvent | None:
    """Decode one event; None where it only counts occurrences, which have no place in time."""
    event = OddEvent()
    numbers = {_ID: 0, _OFFSET: 0, _DURATION: 0}
    counted, stats = False, 0
    for number, wire, value, stop in fields(data, at, end):
        if number == _STATS and wire == BYTES:
            stats += 1
            if stats > MOST_STATS:
                raise Damaged
            _stat(data, value, stop, wanted, event)
        elif number <= _OCCURRENCES and wire != VARINT:
            raise Damaged
        elif number in numbers:
            numbers[number] = signed(value)
            counted = counted and number != _OFFSET
        elif number == _OCCURRENCES:
            counted = True
    event.name, event.start, event.duration = numbers.values()
    return None if counted else event


def _stat(data: bytearray, at: int, end: int, wanted: tuple[int, ...], event: OddEvent) -> None:
    key, kind, found = 0, 0, (0, 0)
    for number, wire, value, stop in fields(data, at, end):
        if number == 1 and wire == VARINT:
            key = signed(value)
        elif (wire, number) in ((VARINT, _UINT), (VARINT, _INT), (VARINT, _REF), (BYTES, _STRING)):
            kind, found = number, (value, stop)
    if key not in wanted:
        return
    if kind == _STRING:
        event.texts[key] = text(data[slice(*found)])
    elif kind == _REF:
        event.refs[key] = found[0]
    elif kind:
        event.numbers[key] = signed(found[0])

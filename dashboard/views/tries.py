"""A try of a knob in the shown job, block by block, as the run's audit has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from whyidle.monitor.store import Event, Reader
from whyidle.monitor.trying.audit import KIND, PAIR
from whyidle.monitor.trying.knobs import Knob, of_rule


@dataclass(frozen=True, slots=True)
class Pair:
    """What a step took in two neighbouring blocks, in seconds."""

    number: int
    without_s: float
    with_s: float


@dataclass(frozen=True, slots=True)
class Tried:
    """The last try of a run."""

    knob: str
    pairs: tuple[Pair, ...]
    most: int | None
    # How many times faster, from its low end to its high end.
    ratio: tuple[float, float, float] | None
    # Its own sentence, once it is over.
    ended: str | None


def last(reader: Reader, run: int) -> Tried | None:
    """Return the last try; ``None``: there was none."""
    events = reader.events_of_kinds(run, (KIND, PAIR))
    began = next((n for n in reversed(range(len(events))) if _state(events[n]) == "on"), None)
    if began is None:
        return None
    mine = events[began:]
    rows = [event.data or {} for event in mine if event.kind == PAIR]
    pairs = [
        Pair(number, row["without_s"], row["with_s"])
        for number, row in enumerate(rows, 1)
        if row.get("without_s") and row.get("with_s")
    ]
    over = [event for event in mine if event.kind == KIND and _state(event) != "on"]
    newest: dict[str, Any] = dict(rows[-1]) if rows else {}
    if over and (over[-1].data or {}).get("ratio"):
        newest["ratio"] = (over[-1].data or {})["ratio"]
    return Tried(
        knob=str((mine[0].data or {}).get("knob", "")),
        pairs=tuple(pairs),
        most=newest.get("most"),
        ratio=_ratio(newest.get("ratio")),
        ended=over[-1].text if over else None,
    )


def _state(event: Event) -> object:
    return (event.data or {}).get("state")


def _ratio(found: dict[str, float] | None) -> tuple[float, float, float] | None:
    return None if found is None else (found["low"], found["middle"], found["high"])


def knobs(rule: str) -> list[Knob]:
    """Return what a click may try for a finding: nothing that changes digits or needs a value."""
    return [
        knob for knob in of_rule(rule)
        if knob.numerics is None and (knob.takes is None or knob.default is not None)
    ]  # fmt: skip

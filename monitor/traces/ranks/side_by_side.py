"""The ranks of a job as the devices of one trace: all on one clock, under each other.

Each device has its account, and the collectives as its operations. What is one collective has one
number on all of its ranks (``correlation``); what makes nobody wait for all has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from whyidle.monitor.core.contracts.trace import DeviceJson, TraceJson
from whyidle.monitor.traces.budgets.budget import Segments
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.model import Device, Ints, Ops, Trace
from whyidle.monitor.traces.ranks.matching import Shared
from whyidle.monitor.traces.ranks.member import WAIT_FOR_ALL, Member

_STREAM: Final = "collectives"


@dataclass(frozen=True, slots=True)
class SideBySide:
    """A job of ranks, as the store keeps a trace."""

    trace: Trace
    answer: TraceJson
    segments: list[Segments]
    steps: tuple[Ints, Ints]


def side_by_side(
    answer: TraceJson, devices: Sequence[DeviceJson], members: Sequence[Member], found: Shared
) -> SideBySide:
    """Put ranks on the clock of the one whose steps count; one that shares none stays empty."""
    kinds: dict[str, int] = {_STREAM: 0}
    numbers = _numbers(members, found)
    ops, segments = [], []
    for member, number, clock in zip(members, numbers, found.clock_ns, strict=True):
        ops.append(Ops.of() if clock is None else _ops(member, number, round(clock), kinds))
        segments.append(Segments.of() if clock is None else _set(member.segments, round(clock)))
    lead = members[found.lead]
    trace = Trace(
        "ranks",
        1,
        events=answer["events"],
        origin_ns=lead.origin_ns,
        names=list(kinds),
        devices=[
            Device(member.kind, each["index"], of, rank=each["rank"])
            for member, each, of in zip(members, devices, ops, strict=True)
        ],
    )
    kept: TraceJson = {**answer, "devices": list(devices)}
    return SideBySide(trace, kept, segments, (lead.step_start, lead.step_end))


def _numbers(members: Sequence[Member], found: Shared) -> list[Ints]:
    """Number the collectives that several share, for each row of each member."""
    numbers = [np.full(len(member), -1, np.int64) for member in members]
    waited = np.array([what.split(",")[0] in WAIT_FOR_ALL for what in found.whats], np.bool_)
    first = 0
    for group in (group for group in found.groups if group.others):
        for part, place in group.placed():
            has = (place >= 0) & waited[part.what]
            numbers[part.rank][part.rows[has]] = first + place[has]
        first += len(group.first.rows)
    return numbers


def _ops(member: Member, number: Ints, clock: int, kinds: dict[str, int]) -> Ops:
    names = [kinds.setdefault(what.split(",")[0], len(kinds)) for what in member.whats]
    rows = len(member)
    return Ops.of(
        start=member.start - clock,
        end=member.end - clock,
        kind=np.full(rows, int(Cause.COMM)),
        name=np.array(names, np.int64)[member.what],
        stream=np.zeros(rows),
        correlation=number,
        bytes=member.bytes,
    )


def _set(segments: Segments, clock: int) -> Segments:
    return Segments.of(start=segments.start - clock, end=segments.end - clock, cause=segments.cause)

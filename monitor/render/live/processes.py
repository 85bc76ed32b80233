"""The processes of a job, as their agents see them: the slowest and the quickest, or each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rich.text import Text

from whyidle.monitor.attach.answers import OUTSIDE
from whyidle.monitor.core import metrics as m
from whyidle.monitor.recording.snapshot import Member, stood_still
from whyidle.monitor.render import inside, numbers
from whyidle.monitor.render.budget import clock
from whyidle.monitor.render.live.lines import LABEL, aligned, joined

# Ranks whose steps differ by less are alike.
ALIKE: Final = 0.05
# Narrower screens have no room for how long each was stopped.
WIDE: Final = 100


def lines(members: Sequence[Member], width: int) -> list[Text]:
    """Return a line about several processes; one alone is what the whole screen is about."""
    if len(members) < 2:
        return []
    entered = sum(member.method not in {None, OUTSIDE} for member in members)
    parts = [Text(f"{'ranks' if _ranked(members) else 'process':<{LABEL - 2}}", "dim")]
    parts += [
        Text(said) for said in (f"agent in {entered} of {len(members)} processes", *_steps(members))
    ]
    return [joined(parts, width)]


def _ranked(members: Sequence[Member]) -> bool:
    return any(member.rank is not None for member in members)


def _steps(members: Sequence[Member]) -> list[str]:
    """Say how long a step takes on the quickest and on the slowest of them."""
    known = [(s, x) for x in members if (s := x.reading.get(m.PROCESS_STEP_P50)) is not None]
    if len(known) < 2:
        return []
    (quick, _), (slow, who) = (pick(known, key=lambda pair: pair[0]) for pick in (min, max))
    if slow - quick < ALIKE * slow:
        return [f"a step takes {clock(slow * 1e9)} on each"]
    name = f"pid {who.key.pid}" if who.rank is None else f"rank {who.rank}"
    return [f"a step takes {clock(quick * 1e9)} to {clock(slow * 1e9)}, longest on {name}"]


def table(members: Sequence[Member], width: int) -> list[Text]:
    """Return a row for each process."""
    columns = _columns(members)
    if width < WIDE:
        del columns["paused"]
    rows = [[cell(member) for cell in columns.values()] for member in members]
    head = [Text(title, "dim") for title in columns]
    return aligned([head, *rows], width, left=len(columns)) if members else []


def _columns(members: Sequence[Member]) -> dict[str, Callable[[Member], str]]:
    ranked = {"rank": lambda x: numbers.DASH if x.rank is None else str(x.rank)}
    parted = {"part": lambda x: x.role or numbers.DASH}
    return {
        "pid": lambda x: str(x.key.pid),
        **(ranked if _ranked(members) else {}),
        **(parted if any(member.role for member in members) else {}),
        "attached": lambda x: x.method or "…",
        "paused": lambda x: stood_still(x.stops_ms) if x.stops_ms else numbers.DASH,
        "step": _step,
        "input": lambda x: numbers.of(x.reading, m.PROCESS_LOADER_WAIT),
        "GC": lambda x: numbers.of(x.reading, m.PROCESS_GC_PAUSE),
        # As a share: the agent takes too little to be shown in cores.
        "agent": lambda x: numbers.show(x.reading.get(m.PROCESS_AGENT_CPU), "ratio"),
        "main thread at": _line,
    }


def _step(member: Member) -> str:
    seconds = member.reading.get(m.PROCESS_STEP_P50)
    return numbers.DASH if seconds is None else clock(seconds * 1e9)


def _line(member: Member) -> str:
    if not member.where:
        return numbers.DASH
    # The share comes first, since the name may be cut.
    top = member.where[0]
    return f"{numbers.show(top.share, 'ratio'):>4} {inside.place(top)}"

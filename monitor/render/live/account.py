"""Where the time of a job goes right now: its pace, its account as a bar, and what it rests on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from whyidle.monitor.attach.answers import OUTSIDE
from whyidle.monitor.core import metrics as m
from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.render import inside, numbers, pace
from whyidle.monitor.render.budget import VISIBLE, bar, clock, in_order, share, swatch, words
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.live.history import History, Values
from whyidle.monitor.render.live.lines import GAP, cut, wrapped
from whyidle.monitor.runs.estimate import Running

# A shorter history shows no trend.
SHORTEST: Final = 8


@dataclass(frozen=True, slots=True)
class Account:
    """The parts of the time, as far as anything says so."""

    running: Running
    step_s: float | None
    pace: str | None
    steps: Values
    reads: str | None


def of(snapshot: Snapshot, history: History) -> Account | None:
    """Return it; ``None`` before anybody can know of it."""
    running = snapshot.estimate()
    if not running.slices and all(x.method in {None, OUTSIDE} for x in snapshot.members):
        return None
    return Account(
        running,
        snapshot.job.get(m.JOB_STEP_P50),
        pace.pace(snapshot) or pace.why_not(snapshot),
        history.of(m.JOB_STEPS),
        inside.read_line(snapshot),
    )


def lines(account: Account, width: int) -> list[Text]:
    """Return the pace, the bar, its parts, and where they are from."""
    shown = [] if account.pace is None else [_pace(account.pace, account.steps, width)]
    running = account.running
    if running.slices:
        shown += [bar(running.budget, width, labels=False), *_parts(account, width)]
    shown += [cut(Text(said, "dim"), width) for said in _basis(running)]
    if account.reads:
        shown.append(cut(Text(account.reads, "dim"), width))
    return shown


def _pace(said: str, history: Values, width: int) -> Text:
    """Return the pace, with its history where there is room for one."""
    room = width - len(said) - len(GAP)
    bars = numbers.changes(history, room) if min(room, len(history)) >= SHORTEST else ""
    return cut(Text.assemble(said, GAP if bars else "", (bars, "cyan")), width)


def _parts(account: Account, width: int) -> list[Text]:
    budget = account.running.budget
    total = sum(budget["slices"].values())
    entries = []
    for part, ns in in_order(budget):
        if ns >= VISIBLE * total:
            step = account.step_s
            time = "" if step is None else f" {clock(step * 1e9 * ns / total)}"
            text = f" {words(part)} {share(ns, total)}{time}"
            entries.append(Text.assemble(swatch(part), text))
    return wrapped(entries, width)


def _basis(running: Running) -> Iterator[str]:
    """Yield what this rests on, and what is missing."""
    trace, age = running.trace, numbers.duration(running.age or 0.0)
    why = f"unknown: {printable(running.rest)}" if running.rest else ""
    if not running.slices:
        yield f"Where the time goes is not known: {printable(running.rest or 'nothing says so')}"
        yield from (f"{numbers.DASH} {printable(text)}" for text in running.notes[:1])
    elif running.source == "trace" and trace is not None:
        yield "; ".join(
            filter(None, [f"from a trace of {clock(trace.seconds * 1e9)}, {age} ago", why])
        )
    else:
        yield "; ".join(filter(None, ["an estimate from counters", why]))
    if trace is not None and running.not_counted:
        yield f"the last trace, {age} ago, does not count: {running.not_counted}"

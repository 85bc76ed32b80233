"""Where the time of a job goes right now: its budget as a bar, and the source of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.trace import AccountJson
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.render import numbers, pace
from whyidle.monitor.render.budget import VISIBLE, bar, clock, in_order, share, swatch, words
from whyidle.monitor.render.escape import printable
from whyidle.monitor.runs.estimate import Running
from whyidle.monitor.tracing.trace_summary import TraceSummary

# How many reasons and parts can be read at a glance.
REASONS: Final = 3
PARTS: Final = 3
GAP: Final = "   "
# A shorter history shows no trend.
SHORTEST_HISTORY: Final = 8


def screen(
    snapshot: Snapshot, running: Running, width: int, history: Sequence[float | None] = ()
) -> list[RenderableType]:
    """Return the lines of the panel: the pace, the bar, and what it is based on."""
    lines: list[RenderableType] = []
    if (said := pace.pace(snapshot) or pace.why_not(snapshot)) is not None:
        lines.append(_with_history(Text(said), history, width))
    if running.slices:
        lines.append(bar(running.budget, width))
        lines.append(_legend(running, snapshot.job.get(m.JOB_STEP_P50), width))
    lines += [Text(text, "dim") for text in _reasons(running)]
    if running.trace is not None and running.not_counted:
        lines.append(Text(_left_out(running.trace, running), "dim"))
    return lines


def _with_history(line: Text, history: Sequence[float | None], width: int) -> Text:
    """Return a line with its history as bars, if there is room."""
    room = min(len(history), width - line.cell_len - len(GAP))
    if room < SHORTEST_HISTORY:
        return line
    latest = history[-room:]
    highest = max((x for x in latest if x is not None), default=0.0)
    return line.append(GAP).append(numbers.sparkline(latest, highest), "cyan") if highest else line


def title(running: Running) -> str:
    """Return the title of the panel: where its figures come from."""
    if not running.slices:
        return "where the time goes"
    if running.source == "trace" and running.trace is not None and running.age is not None:
        of = clock(running.trace.seconds * 1e9)
        return f"where the time goes: trace of {of}, {numbers.duration(running.age)} ago"
    return "where the time goes: estimate from counters"


def briefly(running: Running) -> str | None:
    """Return the account for a line that is already crowded."""
    if not running.slices:
        return None
    on = "estimate" if running.source == "estimate" else "trace"
    if running.source == "trace" and running.age is not None:
        on = f"trace {numbers.duration(running.age)} ago"
    return f"time ({on}): {parts(running.budget)}"


def parts(budget: AccountJson, most: int = PARTS) -> str:
    """Return the largest parts of an account."""
    total = sum(budget["slices"].values())
    shown = [(s, ns) for s, ns in in_order(budget) if ns >= VISIBLE * total]
    return ", ".join(f"{words(s)} {share(ns, total)}" for s, ns in shown[:most])


def _legend(running: Running, step: float | None, width: int) -> Text:
    """Return each part with its share and, if known, its time in a step."""
    total = sum(running.slices.values())
    entries = [] if step is None else [Text("a step:", "dim")]
    for part, ns in in_order(running.budget):
        if ns >= VISIBLE * total:
            time = "" if step is None else f" {clock(step * 1e9 * ns / total)}"
            said = f" {words(part)} {share(ns, total)}{time}"
            entries.append(Text.assemble(swatch(part), said))
    return _wrapped(entries, width)


def _wrapped(entries: Sequence[Text], width: int) -> Text:
    """Return these side by side, none broken across lines."""
    line, used = Text(), 0
    for each in entries:
        if used and used + len(GAP) + each.cell_len > width:
            line.append("\n")
            used = 0
        elif used:
            line.append(GAP)
            used += len(GAP)
        line.append_text(each)
        used += each.cell_len
    return line


def _reasons(running: Running) -> Iterator[str]:
    """Yield what the unknown part may be, and notes about the bar."""
    if running.rest is not None:
        glyph = swatch(Slice.IDLE_UNKNOWN)[0]
        begin = f"{glyph} unknown" if running.slices else "not known"
        yield f"{begin}: {printable(running.rest)}"
    for text in running.notes[:REASONS]:
        yield f"{numbers.DASH} {printable(text)}"


def _left_out(trace: TraceSummary, running: Running) -> str:
    """Say what the last trace showed, and why it does not count now."""
    age = numbers.duration(running.age or 0.0)
    found = parts(trace.account) or "nothing"
    return f"last trace, {age} ago: {found}; does not count now: {running.not_counted}"

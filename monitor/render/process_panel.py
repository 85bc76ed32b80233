"""The panel of the live view with the job's processes, as their agents see them."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from whyidle.monitor.attach.answers import OUTSIDE
from whyidle.monitor.core import metrics as m
from whyidle.monitor.recording.snapshot import Member, stood_still
from whyidle.monitor.render import inside, numbers
from whyidle.monitor.render.budget import clock

MOST_ROWS = 6
# On narrower screens the pauses are left out; the head of the page has them.
WIDE = 100


def panel(members: tuple[Member, ...], width: int) -> Panel:
    """Return one row per process, at most a few."""
    shown = members[:MOST_ROWS]
    columns = _columns(
        ranked=any(member.rank is not None for member in shown),
        stepping=any(member.reading.get(m.PROCESS_STEP_P50) is not None for member in shown),
        wide=width >= WIDE,
    )
    table = Table(box=None, padding=(0, 1), expand=True, pad_edge=False)
    for title in columns:
        table.add_column(title, no_wrap=True, justify="left" if title == "how" else "right")
    table.add_column("main thread at", no_wrap=True, overflow="ellipsis", ratio=1)
    for member in shown:
        table.add_row(*(cell(member) for cell in columns.values()), _line(member))
    lines: list[RenderableType] = [table]
    if len(members) > MOST_ROWS:
        lines.append(Text(f"and {len(members) - MOST_ROWS} more", style="dim"))
    entered = sum(1 for member in members if member.method not in {None, OUTSIDE})
    many = f": {entered} of {len(members)} processes" if len(members) > 1 else ""
    title = f"inside{many}" if entered else "processes"
    return Panel(Group(*lines), title=title, title_align="left")


def _columns(*, ranked: bool, stepping: bool, wide: bool) -> dict[str, Callable[[Member], str]]:
    columns: dict[str, Callable[[Member], str]] = {"pid": lambda x: str(x.key.pid)}
    if ranked:
        columns["rank"] = lambda x: numbers.DASH if x.rank is None else str(x.rank)
    columns["how"] = lambda x: x.method or "…"
    if wide:
        columns["stood still"] = _stopped
    if stepping:
        # Shows which worker is the slow one, and whether it waits for its data.
        columns["step"] = _step
        columns["input"] = lambda x: numbers.of(x.reading, m.PROCESS_LOADER_WAIT)
    columns["GC"] = lambda x: numbers.of(x.reading, m.PROCESS_GC_PAUSE)
    if wide or not stepping:
        columns["threads"] = lambda x: numbers.of(x.reading, m.PROCESS_PYTHON_THREADS)
    # As a share: the agent takes too little to be shown in cores.
    columns["agent"] = lambda x: numbers.show(x.reading.get(m.PROCESS_AGENT_CPU), "ratio")
    return columns


def _step(member: Member) -> str:
    seconds = member.reading.get(m.PROCESS_STEP_P50)
    return numbers.DASH if seconds is None else clock(seconds * 1e9)


def _stopped(member: Member) -> str:
    return stood_still(member.stops_ms) if member.stops_ms else numbers.DASH


def _line(member: Member) -> Text:
    if not member.where:
        return Text(numbers.DASH)
    # The share comes first, since the name may be cut.
    top = member.where[0]
    return Text(f"{numbers.show(top.share, 'ratio'):>4} {inside.place(top)}")

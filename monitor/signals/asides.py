"""What the phases beside the steps take: how much, how often, and at which lines."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from whyidle.monitor.code.callees import reads_at
from whyidle.monitor.code.source import dotted, nodes_at
from whyidle.monitor.core.amounts import LEAST_SAMPLES, MOST_SHOWN, MOSTLY, NEARLY_ALL
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain, Place, Severity
from whyidle.monitor.core.host_class import HOST_LOOKS, HostClass
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.account import HostAccount, HostRow, by_line
from whyidle.monitor.signals.gain import Side, comes_back
from whyidle.monitor.signals.phases import BESIDE, STOPPING, WORDS, Phase
from whyidle.monitor.signals.window import Window

# A title has 60 characters.
LONGEST_NAME: Final = 18
MARKED: Final = "marked as this by the job's own code, or its trainer"


def is_aside(account: HostAccount, row: HostRow) -> bool:
    """Tell whether a row is of a phase beside the steps, whose work is there to be saved."""
    # What waits there may wait for the steps before it.
    return row.phase in BESIDE and row.phase in account.phases and _is_work(account, row)


@dataclass(frozen=True, slots=True)
class Taken:
    """What some rows take of the main thread's time."""

    account: HostAccount
    rows: tuple[HostRow, ...]
    # Without what may be a wait for the steps before.
    least: float
    most: float

    @property
    def is_all(self) -> bool:
        """Whether hardly a look found anything else, though it is only done every few steps."""
        if not all(row.due for row in self.rows):
            return False
        others = [row for row in self.account.rows if row not in self.rows]
        # As it was come to, or left, a step may have been there still.
        ends = 1 | 1 << max(0, self.account.looks - 1)
        return not others or (
            self.account.looks > len(others) and all(x.when and not x.when & ~ends for x in others)
        )

    @property
    def times(self) -> int | None:
        """How often that came in the window; ``None``: not known."""
        account = self.account
        if self.is_all:
            # It began before, and has not ended.
            return 1
        seen = 0
        for row in self.rows:
            seen |= row.when
        looks = seen.bit_count()
        if not account.looks or not looks:
            return None
        is_dense = self.most * account.looks >= MOSTLY * looks
        # Of the looks that it is seen in, one long time has most samples, many short ones few; who
        # is in nearly all looks comes again and again, however long each time lasts.
        if is_dense and looks < NEARLY_ALL * account.looks:
            return (seen & ~(seen << 1)).bit_count()
        return looks

    def gain(self, window: Window, left: float) -> Gain:
        """Return what comes back by a fix that leaves at most such a part of it.

        One time more or less may fall into another window of this length.
        """
        account, times = self.account, self.times
        fewer, more = (1.0, 1.0) if not times else ((times - 1) / times, (times + 1) / times)
        low = (self.least - account.error(self.least)) * fewer * (1.0 - left)
        high = (self.most + account.error(self.most)) * more
        if all(row.phase in STOPPING for row in self.rows):
            return Gain.between(low, high)
        return comes_back(window, low, high, Side.HOST)

    def evidence(self, window: Window) -> tuple[Evidence, ...]:
        """Return by class what the thread did there, and how often if that was seldom."""
        sums: dict[HostClass, float] = {}
        for row in self.rows:
            sums[row.doing] = sums.get(row.doing, 0.0) + row.share
        times = self.times
        # What came often enough moves no range by one time more or less.
        is_seldom = times is not None and times <= min(LEAST_SAMPLES, self.account.looks // 2)
        seldom = (("times in this window", times),) if times and is_seldom else ()
        marked = sum(row.share for row in self.rows if row.marked)
        return (
            *((Evidence.of(MARKED, window.job.measure(marked, "ratio")),) if marked else ()),
            *(
                Evidence.of(f"main thread: {HOST_LOOKS[doing].words}", window.job.sampled(share))
                for doing, share in sums.items()
            ),
            *(Evidence.of(name, window.job.measure(n, "count")) for name, n in seldom),
        )

    def where(self, line_of: Callable[[HostRow], CodeLine | None]) -> tuple[Place, ...]:
        """Return the lines that answer for the rows, with their shares, the largest first."""
        most = by_line(self.rows, line_of)[:MOST_SHOWN]
        return tuple(place for place in most if (place.share or 0.0) >= Severity.LOW.least)


def taken(account: HostAccount, rows: Iterable[HostRow], *, is_sure: bool = False) -> Taken:
    """Add up some rows; what waits for a device may wait for others, if it is not sure."""
    mine = tuple(rows)
    sure = (row for row in mine if is_sure or _is_work(account, row))
    return Taken(account, mine, sum(x.share for x in sure), sum(x.share for x in mine))


def _is_work(account: HostAccount, row: HostRow) -> bool:
    if row.waits:
        return False
    if not account.reads_wait or (row.phase is Phase.METRICS and row.doing is HostClass.LIBRARY):
        # It has what its line reads.
        return True
    return not (row.frames and reads_at(row.frames[0].file, row.frames[0].line))


def of_phase(account: HostAccount, phase: Phase) -> Taken | None:
    """Return what a phase takes, as far as an act shows it; ``None``: nothing, or all there is."""
    rows = [row for row in account.rows if row.phase is phase]
    shown = {_begins(row) for row in rows if row.surely}
    mine = [row for row in rows if row.surely or _begins(row) in shown]
    # A program that does little besides does so in its steps; what is in them may take most.
    is_apart = phase not in BESIDE or phase in account.phases
    return taken(account, mine) if mine and is_apart else None


def _begins(row: HostRow) -> tuple[str, str] | None:
    return None if row.begins is None else (row.begins.file, row.begins.function)


def _called(where: Sequence[Place]) -> str:
    """Return what the first line calls for what it does alone; empty where it does more."""
    nodes = nodes_at(where[0].file, where[0].line) if where else ()
    calls = [x.value for x in nodes if isinstance(x, ast.Expr) and isinstance(x.value, ast.Call)]
    # Of ``plt.draw(); plt.pause(0.1)`` the second one.
    name = dotted(calls[-1].func).removeprefix("self.") if calls else ""
    return f"{name}()" if name and len(name) <= LONGEST_NAME else ""


def found(window: Window, some: Taken, left: float) -> Found | None:
    """Return the finding about a phase; ``None``: it takes too little."""
    gain = some.gain(window, left)
    if some.least < Severity.MEDIUM.least or gain.high < Severity.MEDIUM.least:
        return None
    phase = some.rows[0].phase
    times = some.times
    # How long such a time lasts in all is not known where it fills what was looked at.
    known = None if some.is_all else gain
    # The part of the account that its time is in.
    part = Slice.IDLE_UNKNOWN if window.device == "gpu" else None
    waits = window.share(Slice.IDLE_IO) if part else None
    if waits and waits.value and phase in {Phase.CHECKPOINT, Phase.LOGGING}:
        part = Slice.IDLE_IO
    takes = "took" if times == 1 else "takes"
    where = some.where(lambda row: row.begins)
    # What stands at one line has the name of what is called there.
    is_one = bool(where) and (where[0].share or 0.0) >= NEARLY_ALL * some.most
    what = _called(where) if phase is Phase.LOGGING and is_one else ""
    title = f"{what or WORDS[phase].capitalize()} {takes} {some.most:.0%} of the main thread's time"
    return Found(
        gain=known,
        takes=some.most if known is None else None,
        evidence=some.evidence(window),
        where=where,
        slice=part,
        confidence=Confidence.INFERRED,
        # What was seen once may not come again for hours.
        severity=Severity.LOW if times == 1 else None,
        title=f"{title}, once" if times == 1 else title,
        rows=frozenset(some.rows),
    )

"""Which line of the user's code each host thread is in, at any time."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from whyidle.monitor.libraries.users import is_users
from whyidle.monitor.traces.budgets.hosts import threads_of
from whyidle.monitor.traces.grouping import numbered, present
from whyidle.monitor.traces.intervals import union
from whyidle.monitor.traces.model import Flags, Ids, Ints, Site, Trace
from whyidle.monitor.traces.where.frame_names import is_frame, site_in, site_of
from whyidle.monitor.traces.where.nesting import NONE, Labels, nest, never

Source = Literal["frames", "call stack", "hlo"]

# <built-in method item of Tensor object at 0x7f02> -> Tensor.item
_METHOD: Final = re.compile(r"^<built-in (?:function|method) (\S+?)(?: of (\S+) object at .*)?>$")
# torch.relu is a method of a type, a pybind11 function one of a capsule: those names help nobody.
_NAMELESS: Final = ("type", "PyCapsule", "pybind11")

# JAX cuts the folders off, so the owner of the modules that an import runs is unknown.
_IMPORT: Final = "$<frozen importlib"


@dataclass(frozen=True, slots=True)
class CodePoint:
    """A place in the user's code, and the call out of it that was running ("" for none)."""

    site: Site
    source: Source
    exact_line: bool
    call: str = ""


class UserCode:
    """The user's code in a trace: ``points`` by number, and the number at any time; -1 is none."""

    def __init__(self, trace: Trace) -> None:
        self.points: list[CodePoint] = []
        self._trace = trace
        self._numbers: dict[CodePoint, int] = {}
        self._frames = _Frames(trace)
        self._own: dict[int, Labels] = {}
        self._held: dict[int, Labels] = {}
        for thread in threads_of(trace.host.thread[self._frames.users]):
            self._own[thread] = self._held[thread] = self._of_frames(thread)
        for thread in threads_of(trace.host.thread[trace.stacks.row]):
            self._add_stacks(thread)
        self._told: dict[int, Labels] = {}

    def number(self, point: CodePoint) -> int:
        """Return the number of a code point; a new one gets the next."""
        number = self._numbers.setdefault(point, len(self.points))
        if number == len(self.points):
            self.points.append(point)
        return number

    @property
    def has_frames(self) -> bool:
        """Whether the trace has any Python frames."""
        return bool(self._frames.any.any())

    @property
    def threads(self) -> list[int]:
        """The threads that run the user's code."""
        return list(self._own)

    def of_site(self, site: Site | None) -> int:
        """Return the number of a line named by HLO, if it is the user's."""
        if site is None or not is_users(site.file):
            return NONE
        return self.number(CodePoint(site, "hlo", exact_line=True))

    def on(self, thread: int) -> Labels:
        """What a thread is in; where it runs no user's code, what its job's main thread is in."""
        if thread not in self._told:
            own, main = self._own.get(thread, never()), self._main_of(thread)
            self._told[thread] = own if main in (NONE, thread) else own.over(self._held[main])
        return self._told[thread]

    def at(self, threads: Ids, times: Ints) -> Ints:
        """What these threads are in at these times."""
        found = np.full(len(times), NONE)
        for thread in present(threads):
            here = threads == thread
            found[here] = self.on(thread).at(times[here])
        return found

    def _of_frames(self, thread: int) -> Labels:
        """The innermost frame of the user's, distinguished by what it calls directly."""
        host, frames = self._trace.host, self._frames
        rows = np.flatnonzero(frames.any & (host.thread == thread) & (host.end > host.start))
        start, end = host.start[rows], host.end[rows]
        imports = frames.imports[rows]
        users = frames.users[rows] & ~_within(start, start[imports], end[imports])
        parent = nest(start, end).parent
        called = ~users & np.r_[users, False][parent]
        keep = users | called
        names = host.name[rows]
        owner = np.where(called, names[parent], names)[keep]
        call = np.where(called, names, NONE)[keep]
        return nest(start[keep], end[keep]).innermost.named(self._numbered(owner, call))

    def _numbered(self, owner: Ids, call: Ids) -> Ints:
        """The number of each pair of a user's frame and a call."""
        names = self._trace.names
        width = len(names) + 1
        pairs, inverse = numbered((owner.astype(np.int64) + 1) * width + call + 1)
        numbers = []
        for pair in pairs.tolist():
            mine, called = pair // width - 1, pair % width - 1
            name = "" if called == NONE else _short(names[called])
            point = CodePoint(self._frames.site[mine], "frames", exact_line=False, call=name)
            numbers.append(self.number(point))
        return np.array(numbers, np.int64)[inverse]

    def _add_stacks(self, thread: int) -> None:
        """Use the call stacks of operators where there is no frame.

        The time between two of them stays unknown, unless both are on one line. For other threads
        the last line counts until the next: autograd's work while ``backward`` lasts.
        """
        trace = self._trace
        links = trace.stacks.take(trace.host.thread[trace.stacks.row] == thread)
        rows, first = np.unique(links.row, return_index=True)
        real = trace.host.end[rows] > trace.host.start[rows]
        rows, stacks = rows[real], links.id[first][real]
        unique, inverse = numbered(stacks)
        numbers = np.array([self._of_stack(i) for i in unique.tolist()], np.int64)[inverse]
        innermost = nest(trace.host.start[rows], trace.host.end[rows]).innermost.named(numbers)
        self._held[thread] = self._own.get(thread, never()).over(innermost.held())
        self._own[thread] = self._own.get(thread, never()).over(innermost.bridged())

    def _of_stack(self, name: int) -> int:
        """The number of a call stack. Where there are frames too, it is made of their lines."""
        site = site_in(self._trace.names[name])
        exact = not self.has_frames
        return NONE if site is None else self.number(CodePoint(site, "call stack", exact))

    def _main_of(self, thread: int) -> int:
        """The thread of the same process that runs the user's code."""
        pids = {t: self._trace.threads[t].pid for t in (thread, *self._held) if t >= 0}
        pid = pids.get(thread)
        mains = [t for t in self._held if pid is None or pids[t] in (None, pid)]
        return max(mains, key=self._mainness, default=NONE)

    def _mainness(self, thread: int) -> tuple[bool, int]:
        """The main thread comes first, then the one that is longest in the user's code."""
        line = self._held[thread]
        covered = int(np.diff(line.time)[line.label[:-1] != NONE].sum())
        return self._trace.threads[thread].main, covered


def _within(times: Ints, start: Ints, end: Ints) -> Flags:
    """Whether one of these intervals, whose starts are sorted, holds at each time."""
    start, end = union(start, end)
    i = np.searchsorted(start, times, "right") - 1
    held: Flags = (i >= 0) & (times < np.r_[end, 0][i])
    return held


class _Frames:
    """Which host spans are Python frames, and which of those are the user's."""

    def __init__(self, trace: Trace) -> None:
        self.site: dict[int, Site] = {}
        paths = _paths(trace)
        kind = np.zeros(len(trace.names) + 1, np.int8)  # the last one for spans without a name
        for i in present(trace.host.name[trace.host.name >= 0]):
            name = trace.names[i]
            if site := site_of(name):
                self.site[i] = replace(site, file=paths.get(site.file, site.file))
            kind[i] = 3 if site else 2 if name.startswith(_IMPORT) else is_frame(name)
        of_row = kind[trace.host.name]
        self.any: Flags = of_row > 0
        self.imports: Flags = of_row == 2
        self.users: Flags = of_row == 3


def _paths(trace: Trace) -> dict[str, str]:
    """The whole paths that HLO knows, by the last part, which is all that JAX's frames have."""
    paths: dict[str, set[str]] = {}
    for file in {site.file for site in trace.sources.values()}:
        paths.setdefault(file.rpartition("/")[2], set()).add(file)
    return {last: found.pop() for last, found in paths.items() if len(found) == 1}


def _short(name: str) -> str:
    """Name a call without the address of its object."""
    if not (found := _METHOD.match(name)):
        return name
    of = found[2] or ""
    return found[1] if not of or of.startswith(_NAMELESS) else f"{of}.{found[1]}"

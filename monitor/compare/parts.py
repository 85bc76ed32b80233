"""Where the time of both goes, per piece of work: slices, kernels, copies, memory, energy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Literal

from whyidle.monitor.compare.result import Kernel, Kernels, Pair, Part, Per, Transfer
from whyidle.monitor.compare.sides import Level, Side
from whyidle.monitor.core.contracts.trace import NamedJson
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.diagnosis.needs import why_no_budget
from whyidle.monitor.signals.traced import Traced

SECOND_NS: Final = 1e9
# A list of kernels that holds so much of their time holds all of them.
WHOLE: Final = 0.9995
# Kernels that are listed.
MOST_KERNELS: Final = 10
# A change of less than this share of the work is not listed.
LEAST_CHANGE: Final = 0.001
# Steps whose times are farther apart are not the same steps.
SAME_STEP: Final = 2.0
_List = Literal["top_kernels", "top_operators"]
# Lists of what ran, the best first, and what they list.
LISTS: Final[tuple[tuple[_List, str], ...]] = (
    ("top_kernels", "kernels"),
    ("top_operators", "operators"),
)
_OF: Final = {"kernels": "kernels of a GPU", "operators": "operators of a CPU"}
NO_TRACE: Final = "only a trace shows it, and none was taken"
OTHER_STEPS: Final = "its trace shows no steps, or others than the job counts"
NO_COPIES: Final = "it computes on a CPU, which has no memory of its own to copy to"
# Nothing goes anywhere: a device fills its own memory.
MEMSET: Final = "memset"
NO_POWER: Final = "no power is read"
NO_BYTES: Final = "the trace does not say"

_LEVELS: Final[dict[str, Callable[[Level], float | None]]] = {
    "mean": attrgetter("mean"),
    "peak": attrgetter("peak"),
}


@dataclass(frozen=True, slots=True)
class Work:
    """One side, and the time that a piece of its work takes: a step, a sample, or a second."""

    side: Side
    ns: float
    # Pauses between two steps included.
    mean_ns: float
    # Pieces of work in a step; ``None``: it is a second.
    pieces: float | None = None

    @property
    def trace(self) -> Traced | None:
        """Its trace."""
        return self.side.window.trace

    def portion(self) -> float | None:
        """Return by what a sum over the whole trace is multiplied, for a piece of work.

        A step is the trace's own; ``None``: it has none, or the job counts others.
        """
        trace = self.trace
        if trace is None:
            return None
        whole = float(max(1, trace.answer["budget"]["total_ns"]))
        piece = self.ns if self.pieces is None else self._traced(trace)
        return None if piece is None else piece / whole

    def _traced(self, trace: Traced) -> float | None:
        """Return how long a piece took in the trace itself: all that ran in it counts, then."""
        steps = trace.answer.get("step_budget")
        if self.pieces is None or not steps or not steps["steps"]:
            return None
        each = sum(steps["slices"].values()) / steps["steps"] / max(1, len(trace.devices))
        found = float(each / self.pieces)
        # What the trace takes for a step may be a part of what the job counts as one.
        return found if 1 / SAME_STEP < found / self.ns < SAME_STEP else None


def slices(a: Work, b: Work) -> tuple[Part, ...]:
    """Return each slice that has time on either side, in the order of the contract."""
    found = []
    for part in Slice:
        (one, why_a), (two, why_b) = _share(a.side, part), _share(b.side, part)
        share = Pair(part, "ratio", one, two, why_a, why_b)
        first, second = _time(one, a.ns), _time(two, b.ns)
        found.append(Part(part, share, Pair(part, "ns", first, second, why_a, why_b)))
    return tuple(found)


def _time(share: float | None, ns: float) -> float | None:
    return None if share is None else share * ns


def _share(side: Side, part: Slice) -> tuple[float | None, str | None]:
    """Return which share a slice has, or why that is not known."""
    window = side.window
    budget = window.budget
    total = 0 if budget is None else sum(budget["slices"].values())
    if budget is None or not total:
        return None, why_no_budget(window)
    if part in window.not_measured:
        return None, window.not_measured[part]
    return budget["slices"].get(part, 0) / total, None


def kernels(a: Work, b: Work) -> Kernels:
    """Return the kernels that gained or lost most time, the largest change first."""
    if (none := _not_comparable(a, b)) is not None:
        return Kernels((), "kernels", none)
    for key, what in LISTS:
        ours, theirs = _listed(a, key), _listed(b, key)
        if ours and theirs:
            return Kernels(_changed(ours, theirs, (a, b)), what)
    lacking = [work.side.label for work in (a, b) if _first_list(work) is None]
    if lacking:
        return Kernels((), "kernels", f"{' and '.join(lacking)}: the trace lists none")
    return Kernels((), "kernels", f"A has {_first_list(a)}, B {_first_list(b)}")


def _first_list(work: Work) -> str | None:
    """Say what its trace lists."""
    return next((_OF[what] for key, what in LISTS if _listed(work, key)), None)


def _listed(work: Work, key: _List) -> Sequence[NamedJson]:
    return [] if work.trace is None else work.trace.answer.get(key) or []


def _changed(
    ours: Sequence[NamedJson], theirs: Sequence[NamedJson], works: tuple[Work, Work]
) -> tuple[Kernel, ...]:
    one, two = _Ran(ours, works[0]), _Ran(theirs, works[1])
    names = dict.fromkeys([*one.rows, *two.rows])
    found = [
        Kernel(name, _pair(name, "ns", one, two, "total_ns"), _pair(name, "", one, two, "count"))
        for name in names
    ]

    def size(kernel: Kernel) -> float:
        # What is not among the longest is shorter than all of these.
        return abs((kernel.ns.b or 0.0) - (kernel.ns.a or 0.0))

    least = LEAST_CHANGE * max(work.ns for work in works)
    large = [kernel for kernel in found if size(kernel) >= least]
    return tuple(sorted(large, key=size, reverse=True)[:MOST_KERNELS])


_Figure = Literal["total_ns", "count"]


class _Ran:
    """What ran on one side, by name."""

    def __init__(self, rows: Sequence[NamedJson], work: Work) -> None:
        self.rows = {row["name"]: row for row in rows}
        self._portion = work.portion() or 0.0
        # What is not in a whole list did not run: that is known, and nothing.
        self._is_whole = sum(row.get("share") or 0.0 for row in rows) >= WHOLE

    def of(self, name: str, figure: _Figure) -> float | None:
        """Return a figure of a kernel, for a piece of work."""
        if name in self.rows:
            return float(self.rows[name][figure]) * self._portion
        return 0.0 if self._is_whole else None

    @property
    def why_not(self) -> str:
        """Why a kernel has no figure."""
        return f"not among its {len(self.rows)} longest"


def _pair(name: str, unit: str, one: _Ran, two: _Ran, figure: _Figure) -> Pair:
    a, b = one.of(name, figure), two.of(name, figure)
    return Pair(
        name, unit, a, b, one.why_not if a is None else None, two.why_not if b is None else None
    )


def transfers(a: Work, b: Work) -> tuple[tuple[Transfer, ...], str | None]:
    """Return the copies by direction; or why nothing is known of them."""
    if (none := _not_comparable(a, b)) is not None:
        return (), none
    ours, theirs = _copies(a), _copies(b)
    unlike = a.side.window.device != b.side.window.device
    found = []
    for name in dict.fromkeys([*ours, *theirs]):
        if unlike and not (name in ours and name in theirs):
            found.append(_copied_by_one(name, ours.get(name), theirs.get(name)))
            continue
        ns, size = zip(ours.get(name, (0.0, 0.0)), theirs.get(name, (0.0, 0.0)), strict=True)
        why = [NO_BYTES if each is None else None for each in size]
        found.append(Transfer(name, Pair(name, "ns", *ns), Pair(name, "bytes", *size, *why)))
    return tuple(found), None


_Copied = tuple[float, float | None]


def _copied_by_one(name: str, ours: _Copied | None, theirs: _Copied | None) -> Transfer:
    """Return copies that one side alone has, because the other has no device to copy to."""
    sizes = [None if each is None else each[1] for each in (ours, theirs)]
    why_a, why_b = (NO_COPIES if each is None else None for each in (ours, theirs))
    return Transfer(
        name,
        Pair(name, "ns", ours and ours[0], theirs and theirs[0], why_a, why_b),
        Pair(
            name,
            "bytes",
            sizes[0],
            sizes[1],
            why_a or (NO_BYTES if sizes[0] is None else None),
            why_b or (NO_BYTES if sizes[1] is None else None),
        ),
    )


def _copies(work: Work) -> dict[str, _Copied]:
    """Return the time and the bytes of each direction, for a piece of work."""
    found: dict[str, _Copied] = {}
    trace, portion = work.trace, work.portion() or 0.0
    for copy in () if trace is None else trace.answer.get("copies") or ():
        if copy["direction"] == MEMSET:
            continue
        ns, size = found.get(copy["direction"], (0.0, 0.0))
        more = copy["bytes"]
        both = None if size is None or more is None else size + more * portion
        found[copy["direction"]] = ns + copy["total_ns"] * portion, both
    return found


def _not_comparable(a: Work, b: Work) -> str | None:
    """Say why what ran cannot be given for the same piece of work on both sides."""
    lacking = [(work.side.label, why) for work in (a, b) if (why := _why_no_portion(work))]
    if lacking:
        names = " and ".join(label for label, why in lacking if why == lacking[0][1])
        return f"{names}: {lacking[0][1]}"
    if (a.pieces is None) is not (b.pieces is None):
        return "of one the samples of a step are known, and of the other not"
    return None


def _why_no_portion(work: Work) -> str | None:
    window = work.side.window
    if not window.traces:
        return NO_TRACE
    if window.trace is None:
        return why_no_budget(window)
    return OTHER_STEPS if work.portion() is None else None


def memory(a: Side, b: Side) -> tuple[Pair, ...]:
    """Return the mean and the peak of each kind of memory that a side knows anything of."""
    found = []
    for name in dict.fromkeys([*a.memory, *b.memory]):
        one, two = (side.memory.get(name, side.why_no_memory) for side in (a, b))
        for figure, of in _LEVELS.items():
            if isinstance(one, Level) or isinstance(two, Level):
                found.append(_levels(f"{name}, {figure}", one, two, of))
    return tuple(found)


def _levels(
    name: str, one: Level | str, two: Level | str, of: Callable[[Level], float | None]
) -> Pair:
    a, b = (None if isinstance(each, str) else of(each) for each in (one, two))
    why_a, why_b = (
        each if isinstance(each, str) else each.why_no_mean if value is None else None
        for each, value in ((one, a), (two, b))
    )
    return Pair(name, "bytes", a, b, why_a, why_b)


def energy(a: Work, b: Work, per: Per) -> Pair:
    """Return the energy of a piece of work, of the job's GPUs together."""
    one, two = _joules(a), _joules(b)
    why_a, why_b = (NO_POWER if value is None else None for value in (one, two))
    return Pair("energy", "W" if per == "second" else f"J/{per}", one, two, why_a, why_b)


def _joules(work: Work) -> float | None:
    watts = work.side.window.watts
    return None if watts is None else watts.value * work.mean_ns / SECOND_NS

"""What a comparison comes to: typed, so that screens, the dashboard and programs show the same."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from whyidle.monitor.compare.bootstrap import Compared, Interval
from whyidle.monitor.compare.sides import Side
from whyidle.monitor.core.slices import Slice

Per = Literal["step", "sample", "second"]
Which = Literal["a", "b"]


class Verdict(StrEnum):
    """What can be said of the speed of B beside A."""

    FASTER = "faster"
    SLOWER = "slower"
    # No difference beyond noise.
    SAME = "same"
    # There may be one; the data does not tell it from chance, or the machine had changed.
    UNCERTAIN = "uncertain"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Steps:
    """How long steps take, on both sides. Times are ns; of a sample where ``per`` says so.

    Of steps that were counted all the time the mean decides: it is what the whole job takes, pauses
    between single steps included. Of a trace, which has few, the middle one does.
    """

    by: Literal["mean", "median"]
    median: Compared
    # ``None``: only the middle ones are known.
    mean: Compared | None = None

    @property
    def _deciding(self) -> Compared:
        return self.mean if self.mean is not None and self.by == "mean" else self.median

    @property
    def a(self) -> Interval:
        """The time of a step of A."""
        return self._deciding.a

    @property
    def b(self) -> Interval:
        """The time of a step of B."""
        return self._deciding.b

    @property
    def speedup(self) -> Interval:
        """How many times faster B is."""
        return self._deciding.ratio

    @property
    def difference(self) -> Interval:
        """How much longer a step of B takes."""
        return self._deciding.difference


@dataclass(frozen=True, slots=True)
class Took:
    """How long the steps of one side took, in ns, also where the other side knows no steps."""

    median: Interval
    # ``None``: only the middle step is known.
    mean: Interval | None
    # What 95% of the steps stay under, where that is known.
    p95: float | None


@dataclass(frozen=True, slots=True)
class Pair:
    """One number on both sides; what one of them does not know has a reason."""

    name: str
    unit: str
    a: float | None
    b: float | None
    why_a: str | None = None
    why_b: str | None = None

    @property
    def change(self) -> float | None:
        """B minus A."""
        return None if self.a is None or self.b is None else self.b - self.a


@dataclass(frozen=True, slots=True)
class Part:
    """One slice of the budget: its share of the time, and its time."""

    slice: Slice
    share: Pair
    ns: Pair


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel, by the name of its symbol: its time and how often it ran."""

    name: str
    ns: Pair
    count: Pair

    @property
    def change(self) -> float:
        """How much time it gained or lost; what one side does not have it lost."""
        return self.ns.change or 0.0


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels that gained or lost most; none, and why, where a side knows no kernels."""

    changed: tuple[Kernel, ...]
    # "kernels" of a GPU, or "operators" of a CPU.
    what: str
    why_none: str | None = None


@dataclass(frozen=True, slots=True)
class Transfer:
    """The copies of one direction."""

    direction: str
    ns: Pair
    bytes: Pair


@dataclass(frozen=True, slots=True)
class Fault:
    """A finding on one side or on both."""

    rule: str
    title: str
    # As it is on each side; ``None``: it is not found there.
    a: str | None
    b: str | None
    # Why it is not known whether it is there.
    why_unknown: str | None = None


@dataclass(frozen=True, slots=True)
class Faults:
    """The findings of both sides."""

    gone: tuple[Fault, ...]
    new: tuple[Fault, ...]
    # On both sides.
    kept: tuple[Fault, ...]
    # Found on one side, and not checked on the other, or of another device.
    unknown: tuple[Fault, ...]
    # Found on one side, and due to other programs on the machine: neither gone nor new.
    of_neighbours: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """Something of the set-up that is not the same."""

    name: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that is different between A and B, for the same piece of work."""

    a: Side
    b: Side
    verdict: Verdict
    # What else than the steps themselves makes it uncertain.
    why_uncertain: str | None
    # Per step where both know their steps, per sample where their batches differ, else per second.
    per: Per
    # Why not per step.
    why_per: str | None
    # ``None``: one of them has no steps; ``why_no_steps`` says which, and why.
    steps: Steps | None
    why_no_steps: str | None
    # Of each side alone; ``None``: it has no steps.
    took_a: Took | None
    took_b: Took | None
    slices: tuple[Part, ...]
    kernels: Kernels
    memory: tuple[Pair, ...]
    transfers: tuple[Transfer, ...]
    why_no_transfers: str | None
    energy: Pair
    faults: Faults
    setup: tuple[Difference, ...]
    # What makes the comparison unfair, or less sure than it looks.
    warnings: tuple[str, ...]

    @property
    def speedup(self) -> Interval | None:
        """How many times faster B is."""
        return None if self.steps is None else self.steps.speedup

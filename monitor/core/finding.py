"""A finding: its gain as a range, evidence, line of code and fix; or what is missing to judge."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from pathlib import PurePath
from typing import Final, Literal, Self

from whyidle.monitor.core.measure import Measure
from whyidle.monitor.core.slices import Slice

Framework = Literal["jax", "pytorch", "tensorflow", "flux"]
FRAMEWORKS: Final[dict[Framework, str]] = {
    "jax": "JAX",
    "pytorch": "PyTorch",
    "tensorflow": "TensorFlow",
    "flux": "Julia",
}
# The frameworks that an agent's probe looks at, by its name.
PROBES: Final[dict[str, Framework]] = {
    "jax": "jax",
    "torch": "pytorch",
    "tensorflow": "tensorflow",
}
# A range whose ends are further apart than this is called uncertain.
WIDE: Final = 3.0
# No fix gains more than this share of a step: some of the time is the work itself.
MOST_LOST: Final = 0.99
ROUNDING: Final = 1e-9
# Above code that is not made from the user's own.
EXAMPLE: Final = "# An example, not your code"
AS_BEFORE: Final = "**as_before"


def at(file: str, line: int) -> str:
    """Name a line by its file, without folders; of some faults only the file is known."""
    name = PurePath(file).name
    return f"{name}:{line}" if line else name


class Severity(StrEnum):
    """How much a finding matters, most severe first."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 is the most severe."""
        return list(Severity).index(self)

    @property
    def less(self) -> Self:
        """The next one that matters less."""
        every = list(type(self))
        return every[min(self.rank + 1, len(every) - 1)]

    @property
    def least(self) -> float:
        """The least share of the time whose loss is as severe."""
        return LEAST_LOST.get(self, 0.0)

    @classmethod
    def of_share(cls, share: float) -> Severity:
        """Return the severity of losing this share of the time."""
        for severity, least in LEAST_LOST.items():
            if share >= least:
                return severity
        return cls.INFO


LEAST_LOST: Final = {Severity.HIGH: 0.20, Severity.MEDIUM: 0.05, Severity.LOW: 0.01}


class Confidence(StrEnum):
    """What a finding rests on, the best evidence first."""

    # A trace, or what the agent and the kernel count.
    MEASURED = "measured"
    # Samples of where the main thread was.
    INFERRED = "inferred"
    # Facts or source text, and nothing that shows how much time it takes.
    HINTED = "hinted"


class Knows(IntEnum):
    """What a finding knows of its lines: who knows less takes what the others leave."""

    CURE = 0
    # Another finding about the same lines knows the cure better.
    CAUSE = 1
    # And no cause: the last resort.
    LINES = 2


class Need(StrEnum):
    """What would supply a missing signal, worded as what to do next."""

    TRACE = "a trace"
    LONGER_TRACE = "a trace of whole steps"
    INSIDE = "the agent in the job"
    RECORDING = "a recording of the running job"
    LONGER = "a longer recording"
    STEPS = "steps that can be told apart"
    GPU = "the counters of a GPU"
    GPU_TRACE = "a trace of a GPU"
    GPU_NAME = "the name of the GPU"
    FRAMES = "a trace with the launches of the host"
    SOURCE = "the source of the user's code on this machine"
    COMPILING = "to see the job compile it: monitor run"
    IN_JULIA = "the inside of a Julia process, which is not read"


class Contradiction(Exception):  # noqa: N818  what was measured, not a defect of ours
    """Two signals that cannot both be true."""


def times(factor: float) -> str:
    """Return a factor with as many digits as one is known to: 1.84x, 4.7x, 32x."""
    return f"{factor:.{2 if factor < 2.995 else 1 if factor < 9.95 else 0}f}x"


def is_uncertain(speedup: Sequence[float]) -> bool:
    """Tell whether the ends of a range are far apart."""
    slow, fast = speedup
    return fast > WIDE * slow


@dataclass(frozen=True, slots=True)
class Gain:
    """The share of the time that a fix gains, between two bounds."""

    low: float
    high: float

    @classmethod
    def between(cls, low: float, high: float) -> Self:
        """Return the range of shares that a step can lose; raises Contradiction."""
        low, high = (min(MOST_LOST, max(0.0, share)) for share in (low, high))
        if low > high + ROUNDING:
            raise Contradiction(f"at least {low:.1%} of the time, and at most {high:.1%}")
        return cls(min(low, high), high)

    @property
    def expected(self) -> float:
        """The share to expect: the geometric mean of both factors, which fits measured gains best.

        ``benchmarks/faultbench/fit.py`` has the measurements, and prints how far off it is.
        """
        return 1 - math.sqrt((1 - self.low) * (1 - self.high))

    @property
    def is_sure(self) -> bool:
        """Whether the least that it gains is worth something."""
        return self.low >= LEAST_LOST[Severity.LOW]

    @property
    def speedup(self) -> tuple[float, float]:
        """How many times faster a step becomes."""
        return 1 / (1 - self.low), 1 / (1 - self.high)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One measured number that supports a finding, and its source."""

    name: str
    value: float | str
    unit: str
    source: str
    age_s: float | None = None
    window_s: float | None = None

    @classmethod
    def of(cls, name: str, measure: Measure) -> Self:
        """Make evidence of a window's measure."""
        return cls(
            name, measure.value, measure.unit, measure.source, measure.age_s, measure.window_s
        )

    @classmethod
    def known(cls, measures: Mapping[str, Measure | None]) -> tuple[Self, ...]:
        """Make evidence of those of a window's measures that are known."""
        return tuple(cls.of(name, x) for name, x in measures.items() if x is not None)


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of code and the share of samples that found the main thread there."""

    file: str
    line: int
    function: str
    share: float


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's own code, and the share of the time that belongs to it."""

    file: str
    line: int
    function: str
    share: float | None = None

    @classmethod
    def at(cls, line: SourceLine) -> Self:
        """Make a place of a line where the main thread was sampled."""
        return cls(line.file, line.line, line.function, line.share)


@dataclass(frozen=True, slots=True)
class Fix:
    """What to change: a sentence, and code that runs on the current framework release."""

    text: str
    code: str = ""
    # The line to edit, where the source says it.
    at: Place | None = None

    @property
    def example(self) -> str:
        """The code, said to be an example."""
        rest = f"; {AS_BEFORE} stands for what you have" if AS_BEFORE in self.code else ""
        return f"{EXAMPLE}{rest}:\n{self.code}" if self.code else ""


@dataclass(frozen=True, slots=True)
class Found:
    """What a rule returns for a window with its fault."""

    # ``None``: it costs memory or safety, or time of which nothing says how much. Set a severity.
    gain: Gain | None
    evidence: tuple[Evidence, ...]
    where: tuple[Place, ...] = ()
    # The slice of the time that this gain comes from.
    slice: Slice | None = None
    # Set where it does not follow from the gain.
    severity: Severity | None = None
    # A more specific title than the rule's own.
    title: str | None = None
    confidence: Confidence = Confidence.MEASURED
    # The frameworks whose fixes are shown; none: all of the rule's that the job uses.
    frameworks: tuple[Framework, ...] = ()
    # Other fixes than the rule's, where those would not fit what was found.
    fixes: Mapping[Framework, Fix] | None = None
    knows: Knows = Knows.CURE
    # The rows of the host's account that it is about; none: those under its lines, or its slice.
    rows: frozenset[object] = frozenset()
    # Without a gain: how much of the time it takes.
    takes: float | None = None

    @property
    def is_worth_a_line(self) -> bool:
        """Whether it gives back enough to be shown; what costs no time always is."""
        return self.gain is None or self.gain.expected >= LEAST_LOST[Severity.LOW]


@dataclass(frozen=True, slots=True)
class NotChecked:
    """The rule could not judge: what would allow it to."""

    need: Need
    # What exactly is missing, where that helps.
    what: str = ""


class Lacking(Exception):  # noqa: N818  what was not measured, not a defect of ours
    """A rule cannot judge: its verdict says what would allow it to."""

    def __init__(self, verdict: NotChecked) -> None:
        """Take the verdict."""
        super().__init__(verdict.need)
        self.verdict = verdict


Verdict = Found | NotChecked | None

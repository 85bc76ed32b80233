"""One side of a comparison: a window, and what only a comparison needs of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from whyidle.monitor.signals.window import Window


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps that followed each other; of a trace, one step."""

    steps: int
    # All of the time, pauses between two steps included.
    ns: float
    # The middle duration of them.
    median_ns: float


@dataclass(frozen=True, slots=True)
class Pace:
    """How long the steps took."""

    # In the order of time; without any the middle one is all that is known.
    stretches: tuple[Stretch, ...]
    middle_ns: float
    # "counted", in the job all the time, or of a "trace".
    by: str
    # As a sentence has it.
    source: str
    # What 95% of the steps stay under; ``None``: not kept, or too few steps to say.
    p95_ns: float | None = None

    @property
    def steps(self) -> int | None:
        """How many there were, where that is known."""
        return sum(each.steps for each in self.stretches) or None


@dataclass(frozen=True, slots=True)
class Level:
    """A level over the time: its mean, and the most it was."""

    mean: float | None
    peak: float | None
    why_no_mean: str | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """All that is known of one of the two."""

    # As screens name it: "run 12 (slow)", or the name of a file.
    label: str
    window: Window
    pace: Pace | None = None
    why_no_pace: str = "no step could be told apart"
    # Samples in a step; where both know it and they differ, the work is counted in samples.
    batch: float | None = None
    # Where no step is known: the time of a sample, all processes together.
    sample_ns: float | None = None
    # By what a person calls it; a word instead is why it is not known.
    memory: Mapping[str, Level | str] = field(default_factory=dict)
    why_no_memory: str = "a trace does not say how much memory was in use"

"""What a rule is. One rule is one file in ``rules/``, named after the fault.

A rule never invents a gain: it names the part of the time that its fix gives back, as a range. A
rule that lacks a signal says what would bring it, and never fires.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from whyidle.monitor.finding import Fix, Framework, Verdict
from whyidle.monitor.signals.window import Window

Detect = Callable[[Window], Verdict]


class Kind(StrEnum):
    """What a rule is about; errors and risks stand first, what is only to know last."""

    ERROR = "error"
    TIME = "time"
    MEMORY = "memory"
    INFORMATION = "information"


@dataclass(frozen=True, slots=True)
class Rule:
    """One fault. Its id is the name of its file, its page the docstring of it."""

    title: str
    documents: tuple[str, ...]
    fixes: Mapping[Framework, Fix]
    # ``None``: planned, and never fires.
    detect: Detect | None = None
    kind: Kind = Kind.TIME
    # What gets faster: where the fix makes a step larger, only the samples tell.
    paced_by: Literal["steps", "samples"] = "steps"
    # Rules whose finding explains this one away: a symptom is silent beside its cause.
    symptom_of: tuple[str, ...] = ()
    # Filled in by ``rules.load``.
    id: str = field(default="", compare=False)
    page: str = field(default="", compare=False, repr=False)

    @property
    def is_planned(self) -> bool:
        """Whether it is listed only."""
        return self.detect is None

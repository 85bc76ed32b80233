"""The window of a trace that we took ourselves, and what its account leaves out because of it.

The account of a trace begins with the first operation of a device and ends with its last. Of
anybody else's trace nothing more is known; of ours we know how long was recorded, and often how
long a step of the job takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from whyidle.monitor.core.contracts.trace import (
    BudgetJson,
    TakenJson,
    TraceJson,
    WindowFactsJson,
    WindowJson,
)

NOT_RECORDED: Final = "nothing recorded: Python, compiling, or waiting"
# Of what was asked for: below this the reader is warned, where the length of a step is unknown.
SHORT: Final = 0.5
# A trace may begin and end between two steps, and not every step takes as long as the middle one.
LEAST_OF_A_STEP: Final = 0.75


@dataclass(frozen=True, slots=True)
class TraceWindow:
    """How long was recorded, how long was asked for, and how long the job's steps take."""

    ns: int
    asked_ns: int | None = None
    # As counted in the job, not as found in the trace.
    step_ns: int | None = None

    @classmethod
    def from_taken(cls, taken: TakenJson | None) -> TraceWindow | None:
        """Return the window of a trace, from how it was taken."""
        found = None if taken is None else taken.get("window")
        return cls(**found) if found else None

    def facts(self) -> WindowFactsJson:
        """Return what ``from_taken`` reads."""
        return {"ns": self.ns, "asked_ns": self.asked_ns, "step_ns": self.step_ns}

    def to_json(self, spans: Sequence[int]) -> WindowJson:
        """Return its part of the answer; ``spans``: from first to last operation, of each device.

        ``outside_ns`` adds up, over the devices, what lies before the first and after the last.
        """
        outside = sum(max(0, self.ns - span) for span in spans)
        return {**self.facts(), "outside_ns": outside}


def is_too_short(window: WindowJson | None) -> bool:
    """Whether not even one step of the job fits into it."""
    return window is not None and too_short(window) is not None


def too_short(window: WindowJson) -> str | None:
    """Say by how much it is shorter than a step of the job; ``None`` where it is not."""
    step = window["step_ns"]
    if step is None or window["ns"] >= LEAST_OF_A_STEP * step:
        return None
    return f"{_clock(window['ns'])}, less than one of the job's steps ({_clock(step)})"


def is_mostly_outside(window: WindowJson | None, total_ns: int) -> bool:
    """Whether the account is of less than half of it; ``total_ns``: all that the account has.

    Without any operation there is no account that could mislead.
    """
    return window is not None and 0 < total_ns < window["outside_ns"]


def window_warnings(window: WindowJson, total_ns: int) -> Iterator[str]:
    """Yield what a reader must know of the window."""
    ns, asked, step = window["ns"], window["asked_ns"], window["step_ns"]
    of = "" if asked is None or asked <= ns else f" of the {_seconds(asked)} asked for"
    covers = f"The trace covers {_seconds(ns)}{of}"
    if step is not None and is_too_short(window):
        yield f"{covers}, less than one of the job's steps ({_clock(step)}): its shares say little."
    elif step is None and asked is not None and ns < SHORT * asked:
        yield f"{covers}."
    if is_mostly_outside(window, total_ns):
        outside = window["outside_ns"] / (window["outside_ns"] + total_ns)
        yield (
            f"In {outside:.0%} of the {_seconds(ns)} that it covers, before the first"
            " operation and after the last, nothing was recorded: the job was in Python,"
            " compiled, or waited."
        )


def _seconds(ns: int) -> str:
    return f"{ns / 1e9:.2g} s"


def _clock(ns: int) -> str:
    return f"{ns / 1e9:.3g} s" if ns >= 1_000_000_000 else f"{ns / 1e6:.3g} ms"


def judged(answer: TraceJson) -> BudgetJson:
    """Return the account that findings rest on: of the steps where they are most of the trace."""
    whole, steps = answer["budget"], answer.get("step_budget")
    if steps and 2 * sum(steps["slices"].values()) > sum(whole["slices"].values()):
        return steps
    return whole

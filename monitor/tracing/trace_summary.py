"""The results of a job's last trace, small enough for every tick to carry."""

from __future__ import annotations

from dataclasses import dataclass

from whyidle.monitor.core.contracts.trace import (
    AccountJson,
    BudgetJson,
    NewTraceJson,
    StepsJson,
    WindowJson,
)
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.traces.window import NOT_RECORDED, is_mostly_outside


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """A trace that was taken and analysed."""

    # Its number in the store; ``None`` if it could not be stored, and ``trouble`` says why.
    trace: int | None
    key: ProcessKey
    rank: int | None
    framework: str
    # How it was taken, in words.
    how: str
    # When its window began, on the recording's clock.
    ts_ms: int
    # The same on our monotonic clock, in seconds, and how long it was.
    at: float
    seconds: float
    # How long the job stood still for it; ``None`` if unknown.
    held_ns: int | None
    # As in the answer of ``monitor trace --json``.
    format: str
    budget: BudgetJson
    step_budget: BudgetJson | None
    steps: StepsJson
    # The distinct kinds of its devices: "gpu", "tpu" or "cpu".
    kinds: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    trouble: str | None = None
    # How much of its time the account covers, as in that answer.
    window: WindowJson | None = None

    @property
    def account(self) -> AccountJson:
        """Return the account that represents it on every screen.

        Time outside of the operations counts as unknown if it is most of the window. Else this is
        the account of the steps if they are most of the trace, and of the whole trace if not.
        """
        total = sum(self.budget["slices"].values())
        if self.window is not None and is_mostly_outside(self.window, total):
            return _with_outside(self.budget, self.window["outside_ns"])
        steps = self.step_budget
        return steps if steps and 2 * sum(steps["slices"].values()) > total else self.budget

    def age(self, now: float) -> float:
        """Return the seconds since it began."""
        return max(0.0, now - self.at)

    def as_json(self) -> NewTraceJson:
        """Return the form for programs."""
        return {
            "id": self.trace,
            "pid": self.key.pid,
            "rank": self.rank,
            "framework": self.framework,
            "how": self.how,
            "ts_ms": self.ts_ms,
            "seconds": round(self.seconds, 6),
            "held_ns": self.held_ns,
            "format": self.format,
            "kinds": list(self.kinds),
            "steps": self.steps,
            "budget": self.budget,
            "step_budget": self.step_budget,
            "warnings": list(self.warnings),
            "trouble": self.trouble,
            "window": self.window,
        }


def _with_outside(budget: BudgetJson, outside: int) -> BudgetJson:
    part, details = Slice.IDLE_UNKNOWN, budget.get("details", {})
    return {
        **budget,
        "slices": {**budget["slices"], part: budget["slices"].get(part, 0) + outside},
        "details": {**details, part: {**details.get(part, {}), NOT_RECORDED: outside}},
    }

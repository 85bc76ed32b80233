"""The result of a probe: known values, and a reason for each unknown one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from whyidle.monitor.core.metrics import Metric, Scope

# Reasons, in the words that screens show. Any other is the name of an NVML or system error.
UNSUPPORTED: Final = "not supported here"
NO_PERMISSION: Final = "no permission"
LATE: Final = "NVML took too long for this tick"
IDLE: Final = "idle: no sample"
LOST: Final = "GPU lost"
BLANK: Final = "blank value"
HUNG: Final = "NVML does not answer"
FIRST: Final = "needs a second sample"
NO_LIMIT: Final = "no limit set"
NOT_JOINED: Final = "only a recording looks which processes live"
NO_XID: Final = "none since the run began"
NO_TORCH: Final = "PyTorch is not in use here, as far as the agent knows"
NO_JAX: Final = "JAX is not in use here, as far as the agent knows"
NO_JULIA: Final = "only Julia's collector says it"
FAILED: Final = "this part of the tick failed, a defect of whyidle: see monitor doctor"
# Nothing is wrong with these: no need to show them to anybody.
HARMLESS: Final = frozenset({FIRST, NO_LIMIT, NO_XID})


def by_reason(unknown: Iterable[tuple[Metric, str]]) -> list[str]:
    """Return why metrics have no value, one line per reason, harmless reasons left out."""
    reasons: dict[str, dict[str, None]] = {}
    for metric, reason in unknown:
        if reason not in HARMLESS:
            reasons.setdefault(reason, {})[metric.words] = None
    return [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]


@dataclass(slots=True)
class Reading:
    """One subject at one tick. A metric in neither dict was not due."""

    values: dict[Metric, float] = field(default_factory=dict)
    unknown: dict[Metric, str] = field(default_factory=dict)

    def put(self, metric: Metric, value: float | None, reason: str) -> None:
        """Record a value, or why there is none."""
        if value is None:
            self.unknown[metric] = reason
        else:
            self.values[metric] = value

    def get(self, metric: Metric) -> float | None:
        """Return the value, ``None`` when unknown."""
        return self.values.get(metric)


@dataclass(slots=True)
class Tick:
    """All readings of one moment: by scope, then by the subject's id in the store."""

    ts_ms: int
    rows: dict[Scope, dict[int, Reading]] = field(default_factory=dict)

"""The health of the recording: its overhead, the age of each source's data, what went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from whyidle.dashboard.views.newest import Newest
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric, Scope, Source
from whyidle.monitor.core.reading import by_reason
from whyidle.monitor.render import numbers
from whyidle.monitor.runs.summary import ROLLING
from whyidle.monitor.store import Event, Reader, Run

# Silence for this long, and for this many due ticks, means trouble.
SILENT_SECONDS: Final = 5.0
SILENT_TICKS: Final = 3
# What fits on the screen; the reasons for most metrics come first.
MOST_TROUBLE: Final = 4
MOST_REASONS: Final = 5
COST: Final = (
    ("CPU", m.SELF_CPU), ("memory", m.SELF_RSS), ("one sampling pass", m.SELF_TICK),
    ("NVML", m.SELF_NVML), ("missed ticks", m.SELF_MISSED),
)  # fmt: skip
# Events about the job, which the pages show as findings, marks and a list. A lost GPU concerns
# every page.
OF_THE_JOB: Final = frozenset({"finding", "retrace_storm", "gc_pause"})
SOURCES: Final[dict[Source, str]] = {
    "nvml": "GPU driver", "gpm": "GPU activity", "agent": "agent", "procfs": "system",
    "cgroup": "container limits", "monitor": "recorder",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Health:
    """What the sidebar shows, as text."""

    # For how many seconds the recorder has been silent.
    silent_s: float | None
    cost: Mapping[str, str]
    # By source: the age of its newest value, or that it has none.
    ages: Mapping[str, str]
    agent: str
    # Why the agent is not inside, and what to type.
    agent_why: str
    agent_step: str
    trouble: tuple[Event, ...]
    reasons: tuple[str, ...]


def health(reader: Reader, run: Run) -> Health:
    """Return the health of a recording."""
    newest = Newest.of(reader, run)
    inside, why, step = _agent(run.info or {})
    without = OF_THE_JOB | ROLLING
    trouble = reader.events(run.id, without=without, most=MOST_TROUBLE, with_news=False)
    return Health(
        silent_s=_silence(newest, run),
        cost={name: _cost(newest, run, metric) for name, metric in COST},
        ages=dict(_ages(newest)),
        agent=inside,
        agent_why=why,
        agent_step=step,
        trouble=tuple(reversed(trouble)),
        reasons=tuple(_reasons(newest))[:MOST_REASONS],
    )


def _cost(newest: Newest, run: Run, metric: Metric) -> str:
    value = newest.get(metric, run.id).value
    if metric is m.SELF_CPU and value is not None:
        return f"{value:.1%} of a core"
    return numbers.show(value, metric.unit)


def _silence(newest: Newest, run: Run) -> float | None:
    if not run.is_recording:
        return None
    known = [v.ts_ms for k, v in newest.values.items() if k.scope is Scope.MONITOR]
    last = max(known, default=run.started_ms)
    silent = (newest.now_ms - last) / 1000
    return silent if silent > max(SILENT_SECONDS, SILENT_TICKS / (run.hz or 1.0)) else None


def _ages(newest: Newest) -> Iterable[tuple[str, str]]:
    latest: dict[str, int] = {}
    for key, value in newest.values.items():
        source = key.metric.source
        latest[source] = max(latest.get(source, 0), value.ts_ms)
    for source, words in SOURCES.items():
        if source in latest:
            age = max(0.0, (newest.now_ms - latest[source]) / 1000)
            yield words, f"{f'{age:.0f} s' if age < 60 else numbers.duration(age)} ago"
        else:
            yield words, "no values"


def _reasons(newest: Newest) -> list[str]:
    return by_reason((key.metric, unknown.reason) for key, unknown in newest.unknown.items())


def _agent(info: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return how many processes have the agent; why some have none, and what to type."""
    processes = [p for p in info.get("processes", ()) if isinstance(p, Mapping)]
    inside = sum(bool(process.get("inside")) for process in processes)
    said = f"inside {inside} of {len(processes)} processes" if processes else "inside no process"
    outside = next((p for p in processes if not p.get("inside") and p.get("refused")), None)
    if outside is not None:
        return said, str(outside["refused"]), str(outside.get("next_step") or "")
    refused = info.get("not_entered")
    if not inside and isinstance(refused, Mapping):
        return said, str(refused.get("what", "")), str(refused.get("next_step", ""))
    return said, "", ""

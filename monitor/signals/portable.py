"""A window as JSON and back: what a recorded job looked like, for tests and reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from whyidle.monitor.core.contracts.trace import JsonObject
from whyidle.monitor.core.metrics import METRICS, Metric, Scope
from whyidle.monitor.runs.stacks import StackSamples
from whyidle.monitor.signals.opening import estimated
from whyidle.monitor.signals.recorded import Recorded
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.window import Window

_BY_NAME: Final = {f"{metric.scope}.{metric.name}": metric for metric in METRICS}
# Timelines and long lists are not needed to judge.
_OF_A_TRACE: Final = (
    "schema", "format", "events", "window", "devices", "steps", "budget", "step_budget", "kernels",
    "launching", "copies", "collectives", "calls", "where", "top_kernels", "top_operators",
    "hlo_modules", "missing", "warnings",
)  # fmt: skip
# A recorded window stays small enough to lie in a repository: some hundred kilobytes.
LONGEST_LIST: Final = 60
# The calls that are made once in a step come last in theirs.
LONGEST_OF: Final = {"calls": 120}
# Of all stacks together.
MOST_BYTES: Final = 1 << 20
MOST_CHAINS: Final = 400


def dump(window: Window) -> JsonObject:
    """Return everything that rules can ask of a window."""
    return {
        "target": window.target,
        "kind": window.kind,
        "traces": [
            {
                "answer": {
                    name: value[: LONGEST_OF.get(name, LONGEST_LIST)]
                    if isinstance(value, list)
                    else value
                    for name, value in t.answer.items()
                    if name in _OF_A_TRACE
                },
                "source": t.source, "age_s": t.age_s,
                "held_s": t.held_s, "then": _plain(t.then),
            }
            for t in window.traces
        ],
        "job": _plain(window.job),
    }  # fmt: skip


def load(data: Mapping[str, Any]) -> Window:
    """Return a window that was dumped; metrics that are gone since are left out."""
    job = _by_metric(data["job"])
    for each in job.get("helpers", ()):
        # Older windows have only lines, by their shares.
        each["stacks"] = each.get("stacks") or {"samples": 1, "lines": each["lines"]}
    recorded = msgspec.convert(job, Recorded, dec_hook=_stacks, str_keys=True)
    traces = tuple(
        Traced(
            t["answer"], t["source"], t["age_s"], t.get("held_s"),
            tuple(_by_metric(gpu) for gpu in t.get("then", ())),
        )
        for t in data["traces"]
    )  # fmt: skip
    estimate = estimated(recorded) if data["kind"] == "run" else None
    return Window(data["target"], data["kind"], traces, recorded, estimate)


def _stacks(_: type, packed: Mapping[str, Any]) -> StackSamples:
    return StackSamples.of_events([packed])


def _by_metric(value: Any) -> Any:
    """Return it with metrics in the place of their names."""
    if isinstance(value, list):
        return [_by_metric(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    return {
        _BY_NAME.get(name, name): _by_metric(each)
        for name, each in value.items()
        if name in _BY_NAME or name.partition(".")[0] not in set(Scope) or "." not in name
    }


def _plain(value: Any) -> Any:
    """Return it in words and numbers; a metric by its name."""
    if isinstance(value, StackSamples):
        return value.packed(MOST_BYTES, MOST_CHAINS)
    if isinstance(value, Mapping):
        return {
            f"{key.scope}.{key.name}" if isinstance(key, Metric) else str(key): _plain(each)
            for key, each in value.items()
        }
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return round(value, 9) if isinstance(value, float) else value

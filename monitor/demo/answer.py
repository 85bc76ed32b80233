"""The JSON answer of ``monitor demo``."""

from __future__ import annotations

from typing import Any, Final, Literal

from whyidle.monitor.compare import Comparison
from whyidle.monitor.core.contracts.comparison import DemoJson, DemoSideJson
from whyidle.monitor.core.contracts.diagnosis import brief
from whyidle.monitor.demo.outcome import NOT_PRINTED, Half, Outcome

Which = Literal["a", "b"]
# Of what the middle time of a step and its bounds are.
BY: Final = {
    "counted": "median of the steps counted in the job",
    "trace": "median of the steps of a trace",
}
AS_PRINTED: Final = "mean, as the program printed it"


def as_json(outcome: Outcome) -> DemoJson:
    """Return the answer of one pair."""
    predicted = outcome.predicted
    return DemoJson(
        fault=outcome.pair.name,
        framework=outcome.pair.framework,
        before=_side(outcome, outcome.before, "a"),
        after=_side(outcome, outcome.after, "b"),
        predicted=None if predicted is None else [round(n, 3) for n in predicted],
        measured=[None if n is None else round(n, 3) for n in outcome.measured],
        measured_over=outcome.measured_over,
        as_predicted=outcome.is_as_predicted,
        findings_gone=outcome.gone,
        findings_left=outcome.left,
        findings_new=outcome.new,
        findings_not_judged=outcome.not_judged,
        waited_for_core=[_rounded(outcome.before.waited), _rounded(outcome.after.waited)],
        unknown=outcome.unknown,
    )


def _side(outcome: Outcome, half: Half, which: Which) -> DemoSideJson:
    watched = half.watched
    return DemoSideJson(
        run=watched.run,
        script=str(watched.script),
        **_steps(outcome.comparison, half, which),
        samples_per_s=watched.samples_per_s,
        top=outcome.top(half),
        findings=[brief(each) for each in half.findings],
        budget=half.diagnosis.budget,
        budget_source=half.diagnosis.budget_source,
        overhead=half.diagnosis.overhead,
        not_measured=half.diagnosis.not_measured,
    )


def _steps(found: Comparison, half: Half, which: Which) -> dict[str, Any]:
    """Return the median of the steps that were seen, else the mean that the program printed."""
    side, took = (found.a, found.took_a) if which == "a" else (found.b, found.took_b)
    unknown, mean, of = {}, None, None
    if half.watched.step_ms is None:
        unknown["mean_step_ns"] = NOT_PRINTED
    else:
        mean, of = half.watched.step_ms * 1e6, AS_PRINTED
    step: list[float | None]
    if took is not None and side.pace is not None:
        step, of, why = took.median.ends, BY[side.pace.by], took.median.why_no_bounds
    else:
        step, why = [None, mean, None], side.why_no_pace
    if None in step:
        unknown["step_ns"] = why or "it is not known how much its steps vary"
    return {
        "step_ns": [_whole(each) for each in step],
        "step_ns_of": of,
        "mean_step_ns": _whole(mean),
        "unknown": unknown,
    }


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


def _whole(ns: float | None) -> int | None:
    return None if ns is None else round(ns)

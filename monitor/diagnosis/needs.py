"""What would let a rule judge that could not, or tell more of what it judged; and how to get it."""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core.errors import NotJudged
from whyidle.monitor.core.finding import Gain, Need, NotChecked, is_uncertain
from whyidle.monitor.signals.window import Window
from whyidle.monitor.trying.knobs import of_rule

MOSTLY_UNKNOWN: Final = "where most of the time goes is unknown"
_WAYS: Final[dict[Need, dict[str, str]]] = {
    Need.TRACE: {
        "run": "monitor trace PID --run RUN",
        "over": "taken by itself when a job is watched for longer",
        "file": "a longer trace",
    },
    Need.INSIDE: {
        "run": "monitor attach PID, without --observe",
        "over": "monitor run, or monitor attach PID without --observe",
        "file": "monitor attach PID",
    },
    Need.RECORDING: {"run": "monitor attach PID", "file": "monitor attach PID"},
}


def needs(window: Window, verdict: NotChecked) -> str:
    """Say what would allow a rule to judge, and the command for it."""
    if verdict.need is Need.INSIDE and verdict.what and window.job.inside:
        return f"{verdict.what}, which the agent in the job does not see"
    ways = _WAYS.get(verdict.need, {})
    way = ways.get("over") if window.is_over else None
    way = way or ways.get(window.kind)
    what = f" ({verdict.what})" if verdict.what else ""
    return f"{verdict.need}{what}: {way}" if way else f"{verdict.need}{what}"


def not_judged(window: Window) -> NotJudged:
    """Say why it means nothing that nothing is found."""
    why = why_no_budget(window) if window.budget is None else MOSTLY_UNKNOWN
    what = f"Too little is known to judge it: {why}."
    return NotJudged(what, f"It needs {needs(window, NotChecked(Need.TRACE))}.")


def why_no_budget(window: Window) -> str:
    """Say why it is not known where the time goes."""
    if window.traces:
        return "the traces cover less than a step, or show no work of any device"
    return "no trace was taken, and no counter says how busy the device was"


def narrowed_by(window: Window, rule: str, gain: Gain) -> str | None:
    """Say what would narrow a wide range, the cheapest first; ``None``: it decides as it is."""
    if not is_uncertain(gain.speedup) or window.kind == "file":
        return None
    pid = None if window.is_over else window.job.pid
    if pid is not None and of_rule(rule):
        return f"See what can be tried in the running job: monitor try {pid} --suggest"
    # Of a CPU the samples say as much, and TensorFlow's profiler nothing.
    can_be_had = window.lacks(Need.TRACE).need is Need.TRACE and window.device == "gpu"
    if window.trace is None and pid is not None and can_be_had:
        return f"A trace may narrow it: monitor trace {pid}"
    run = window.target.removeprefix("run ")
    return f"Make the change, watch again, then type: monitor compare {run} last"

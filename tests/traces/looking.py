"""What the analysis of a trace finds at its first look."""

from __future__ import annotations

from whyidle.monitor.traces import steps
from whyidle.monitor.traces.launches import Launches, match
from whyidle.monitor.traces.model import Stretch, Trace
from whyidle.monitor.traces.steps import TraceSteps
from whyidle.monitor.traces.whole import Whole


def launched(trace: Trace) -> list[Launches]:
    return [match(trace, device.ops) for device in trace.devices]


def looked_at(trace: Trace) -> Whole:
    whole = Whole(trace)
    whole.look(Stretch(trace), launched(trace))
    return whole


def steps_of(trace: Trace) -> TraceSteps:
    return looked_at(trace).steps()


def repeated(trace: Trace) -> TraceSteps:
    """Whatever markers there are."""
    return steps.repeated(trace, launched(trace))

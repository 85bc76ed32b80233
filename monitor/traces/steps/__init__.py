"""Where the steps of a job begin and end: by markers, else by repetition."""

from __future__ import annotations

from whyidle.monitor.traces.steps.finding import TraceSteps, agreeing, as_run, repeated

__all__ = ["TraceSteps", "agreeing", "as_run", "repeated"]

"""Where the steps of a job begin and end: told by markers, else found by repetition."""

from __future__ import annotations

from whyidle.monitor.traces.steps.finding import Steps, agreeing, as_run, find, repeated

__all__ = ["Steps", "agreeing", "as_run", "find", "repeated"]

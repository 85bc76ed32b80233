"""What must hold of steps, however they were found."""

from __future__ import annotations

from whyidle.monitor.traces import steps


def agree(found: steps.TraceSteps, marked: steps.TraceSteps) -> None:
    """As the brief of the step finder has it: the count exactly, the median within 2%."""
    assert len(found) == len(marked)
    assert found.median
    assert marked.median
    assert abs(found.median / marked.median - 1) <= 0.02


def well_formed(found: steps.TraceSteps) -> None:
    assert (found.end > found.start).all()
    assert (found.start[1:] >= found.end[:-1]).all()
    assert (found.source == "none") == (len(found) == 0)
    assert (found.median is None) == (len(found) == 0)

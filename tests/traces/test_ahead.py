"""Steps of a host that ran ahead are cut by what the device ran."""

from __future__ import annotations

from tests.traces.building import Op, Span, a_trace
from tests.traces.looking import steps_of
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.model import Marks
from whyidle.monitor.traces.steps import as_run

STEPS, OPS = 10, 7


def a_job(ops_of_last: int = OPS) -> tuple[list[Op], list[Span]]:
    """Ten steps of seven operations, dispatched in 100 ns, run in 7,000."""
    count = (STEPS - 1) * OPS + ops_of_last
    ops: list[Op] = [(100 + 100 * i, 190 + 100 * i, Cause.KERNEL, None) for i in range(count)]
    return ops, [(10 * i, 10 * i + 9, Cause.AROUND, 0, None) for i in range(STEPS)]


def test_steps_are_cut_by_the_work_of_the_device() -> None:
    trace = a_trace(*a_job())
    trace.marks = Marks.of(
        start=[10 * i for i in range(STEPS)],
        end=[10 * i + 9 for i in range(STEPS)],
        name=[Cause.AROUND] * STEPS,
    )
    found = as_run(trace, steps_of(trace))
    assert (len(found.start), found.median, found.source) == (STEPS, 100 * OPS, "markers")
    assert found.start[0] == trace.devices[0].ops.start[0]
    assert found.end[-1] == trace.devices[0].ops.end[-1]


def test_where_the_steps_differ_the_host_is_believed() -> None:
    trace = a_trace(*a_job(ops_of_last=3))
    trace.marks = Marks.of(
        start=[10 * i for i in range(STEPS)],
        end=[10 * i + 9 for i in range(STEPS)],
        name=[Cause.AROUND] * STEPS,
    )
    found = steps_of(trace)
    assert as_run(trace, found) is found

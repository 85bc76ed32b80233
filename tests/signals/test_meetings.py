"""Who comes last to a collective, how long the others wait, and what it did before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.traces.ranks_folder import Job
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.signals.meetings import Meetings, meetings
from whyidle.monitor.traces.budgets.budget import Segments
from whyidle.monitor.traces.model import Ops
from whyidle.monitor.traces.ranks.answer import read_ranks


def at_step(folder: Path, step: int, most: int = 9) -> Meetings:
    job = read_ranks([str(folder)]).side_by_side()
    start, end = int(job.steps[0][step]), int(job.steps[1][step])
    ops = [device.ops for device in job.trace.devices]
    return meetings(ops, job.segments, start, end, most)


@pytest.mark.parametrize("ranks", [2, 5])
def test_the_late_rank_is_last_by_what_it_computes_longer(tmp_path: Path, ranks: int) -> None:
    Job(ranks, 6, late=0.4, who=1, noise=0.0, skew_us=1e5).write(tmp_path)
    found = at_step(tmp_path, 3)
    assert found.count == 4
    for one in found.shown:
        assert one.ranks == ranks
        assert one.last == 1
        # A tenth of a step in each of four.
        assert one.waited == pytest.approx(10_000_000, rel=0.01)
        assert one.longer == (Slice.COMPUTE, pytest.approx(10_000_000, rel=0.01))
        assert one.before[Slice.COMPUTE] == pytest.approx(35_000_000, rel=0.01)
    assert [one.came for one in found.shown] == sorted(one.came for one in found.shown)


def test_only_the_longest_waits_are_listed_and_all_are_counted(tmp_path: Path) -> None:
    Job(2, 6, late=0.4, how="one collective", noise=0.0).write(tmp_path)
    found = at_step(tmp_path, 2, most=1)
    assert found.count == 4
    assert [one.last for one in found.shown] == [1]
    assert found.shown[0].waited == pytest.approx(40_000_000, rel=0.01)


def test_without_a_common_collective_there_is_nothing() -> None:
    assert meetings([Ops.of(), Ops.of()], [Segments.of(), Segments.of()], 0, 9, 3).count == 0

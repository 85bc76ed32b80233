"""A person looks at the ranks of a job under each other, in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.dashboard import rank_jobs
from tests.dashboard.conftest import Tab, serving
from tests.traces.ranks_folder import Job


def test_ranks_stand_under_each_other_and_another_step_is_a_click_away(
    tmp_path: Path, new_tab: Callable[..., Tab]
) -> None:
    job = Job(12, 6, late=0.3, who=9, noise=0.0, skew_us=1e5).write(tmp_path / "job")
    with serving(rank_jobs.make(tmp_path, job)) as served:
        tab = new_tab()
        tab.open(served.url("timeline"))
        tab.drawn("lanes")
        labels = tab.chart("lanes", "c.layout.yaxis.ticktext")
        assert labels[:2] == ["steps", "GPU 1 rank 9"]
        assert len([label for label in labels if "rank" in label]) == 8
        # A line for each collective of the step, where its last rank came.
        assert tab.chart("lanes", "c.layout.shapes.length") == 4
        assert "compute 32.5 ms, 7.50 ms more than the others" in tab.text()
        tab.page.get_by_role("button", name="Whole trace").click()
        tab.page.wait_for_selector("text=all of the trace")
        tab.page.get_by_role("button", name="Next step").click()
        tab.page.wait_for_selector("text=step 1 of 6")

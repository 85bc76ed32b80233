"""``window.ranks``: by a trace of several ranks, else by what was seen of them live."""

from __future__ import annotations

from pathlib import Path

from tests.traces.ranks_folder import Job
from whyidle.monitor.signals import opening
from whyidle.monitor.signals.window import Window
from whyidle.monitor.traces.ranks.answer import job_answer


def test_a_folder_says_who_is_late(tmp_path: Path) -> None:
    answer = job_answer([str(Job(4, late=0.2, per_host=2).write(tmp_path))])
    found = opening.of_answer(answer, "job").ranks
    assert found is not None
    assert found.straggler is not None
    assert (found.straggler.rank, found.straggler.host) == (3, "node1")
    assert found.straggler in found.each
    assert [each.rank for each in found.each] == [0, 1, 2, 3]
    low, high = found.straggler.late
    assert low < 0.2 / 1.22 * 1.1
    assert high > 0.2 / 1.22 * 0.9
    assert found.steps == 20


def test_without_such_a_trace_and_ranks_seen_live_nobody_is_late() -> None:
    assert Window("run 1").ranks is None

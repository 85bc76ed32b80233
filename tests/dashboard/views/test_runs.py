"""Which runs belong beside each other, and what they are called in a picker."""

from __future__ import annotations

import time

from whyidle.dashboard.views import runs
from whyidle.monitor.store import Run


def run(number: int, script: str | None = "train.py", **more: object) -> Run:
    return Run(**{"id": number, "script": script, "ended_ms": 1, **more})  # type: ignore[arg-type]


def ids(known: list[Run], number: int) -> tuple[int | None, int | None]:
    pair = runs.beside(known, next(each for each in known if each.id == number))
    return pair[0] and pair[0].id, pair[1] and pair[1].id


def test_a_run_stands_beside_the_newest_before_it_of_the_same_program() -> None:
    known = [run(1), run(2, "other.py"), run(3), run(4, "other.py"), run(5)]
    assert ids(known, 5) == (3, 5)
    assert ids(known, 4) == (2, 4)
    assert ids(known[::-1], 5) == (3, 5)


def test_before_and_after_in_one_folder_belong_together() -> None:
    known = [run(1, "demos/x/before_torch.py"), run(2, "demos/x/after_torch.py"), run(3, "y/a.py")]
    assert ids(known, 2) == (1, 2)
    assert ids(known, 3) == (None, 3)


def test_the_first_run_of_a_program_stands_beside_the_newest_after_it() -> None:
    known = [run(1), run(2), run(3)]
    assert ids(known, 1) == (1, 3)
    assert runs.after(known, known[2]) is None


def test_programs_whose_names_are_not_known_are_not_alike() -> None:
    assert ids([run(1, None), run(2, None)], 2) == (None, 2)


def test_the_name_of_a_run_is_shown_as_it_is() -> None:
    assert "3 · x_y_z*<b> · " in runs.called(run(3, label="x_y_z*<b>"))
    assert runs.called(run(3, None)).startswith("3 · job · ")
    assert "\x1b" not in runs.called(run(3, label="a\x1b[31m"))
    assert "\x1b" not in runs.called(run(3, end_reason="a\x1b[31m"))


def test_before_and_after_are_distinct_in_the_width_of_the_sidebar() -> None:
    folder = "/home/somebody/a/long/way/down/to/demo_workloads/input_starved"
    one, other = (run(12, f"{folder}/{name}_torch.py") for name in ("before", "after"))
    assert runs.called(one)[:28] != runs.called(other)[:28]
    assert "before_torch.py" in runs.called(one)[:28]
    assert "after_torch.py" in runs.called(other)[:28]
    assert len(runs.called(run(3, label="x" * 500))) < 60


def test_runs_of_one_program_differ_by_when_they_began_and_how_they_are() -> None:
    now_ms = time.time_ns() // 1_000_000
    clock = time.strftime("%H:%M", time.localtime(now_ms / 1000))
    label = runs.called(run(3, started_ms=now_ms, end_reason="stopped by the user"))
    assert label == f"3 · train.py · {clock} · stopped by the user"
    long_ago = runs.called(run(3, started_ms=0))
    assert time.strftime("%m-%d", time.localtime(0)) in long_ago
    assert runs.called(run(4, started_ms=now_ms, ended_ms=None)).endswith("● recording")

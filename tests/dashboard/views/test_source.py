"""Only code that the job itself could read is shown, and never a line that is not there."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from whyidle.dashboard import settings
from whyidle.dashboard.views import source
from whyidle.dashboard.views.source import Code
from whyidle.monitor.core.contracts.diagnosis import PlaceJson
from whyidle.monitor.store import Run

PROGRAM = "\n".join(
    ["import torch", "", "", "def load(path):", "    return path", "", "", "def train():"]
    + [f"    x = {i}" for i in range(9, 40)]
)


@pytest.fixture(autouse=True)
def is_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings._Current, "settings", settings.Settings())


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return path


def run(**more: object) -> Run:
    later_ms = int(time.time() * 1000) + 60_000
    return Run(**{"id": 1, "started_ms": later_ms, **more})  # type: ignore[arg-type]


def around(file: object, line: int, function: str = "train", of: Run | None = None) -> Code | str:
    return source.around(PlaceJson(file=str(file), line=line, function=function), of or run())


def shown(file: object, line: int, function: str = "train", of: Run | None = None) -> Code:
    code = around(file, line, function, of)
    assert isinstance(code, Code), code
    return code


def test_the_lines_around_the_place_are_shown_and_no_others(program: Path) -> None:
    code = shown(program, 20)
    assert code.first == 15
    assert code.lines == tuple(f"    x = {i}" for i in range(15, 26))
    assert code.caveats == ()


def test_at_the_ends_of_the_file_there_are_fewer(program: Path) -> None:
    assert shown(program, 1, "<module>").first == 1
    assert shown(program, 39).lines[-1] == "    x = 39"


def test_a_line_that_the_file_does_not_have_any_more_is_not_made_up(program: Path) -> None:
    assert around(program, 40) == source.SHORTER
    assert around(program, 0) == source.NO_LINE


def test_a_file_that_was_changed_since_the_run_began_says_so(program: Path) -> None:
    (doubt,) = shown(program, 20, of=run(started_ms=1_000)).caveats
    assert doubt.startswith("changed since the run began")


def test_a_function_that_is_not_at_the_line_says_so(program: Path) -> None:
    assert shown(program, 20, "load").caveats == ("load is not at this line",)
    assert shown(program, 5, "load").caveats == ()
    # A compiled function is named by the line that calls it.
    program.write_text(PROGRAM + "\n    load(x)")
    assert shown(program, 40, "load").caveats == ()
    assert shown(program, 20, "<lambda>").caveats == ()
    assert shown(program, 20, "Trainer.train").caveats == ()


def test_what_was_recorded_on_another_machine_says_so(program: Path) -> None:
    (doubt,) = shown(program, 20, of=run(host="elsewhere")).caveats
    assert "recorded on elsewhere" in doubt
    (doubt,) = shown(program, 20, of=run(container="0123")).caveats
    assert "container" in doubt


def test_a_link_is_not_followed(program: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.py"
    link.symlink_to(program)
    assert isinstance(around(link, 20), str)


def test_a_pipe_does_not_hold_the_page_up(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)
    assert around(pipe, 1) == source.NOT_A_FILE


def test_what_is_too_large_for_code_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "large.py"
    path.write_bytes(b"x = 1\n" * 200_000)
    assert around(path, 1) == source.NOT_A_FILE


@pytest.mark.parametrize("file", ["/etc/passwd", "train.py", "/etc/../etc/hostname", "<string>"])
def test_what_is_no_python_file_with_a_whole_path_is_not_read(file: str) -> None:
    assert around(file, 1) == source.NO_SOURCE


def test_a_file_that_the_user_of_the_job_may_not_read_is_not_shown(program: Path) -> None:
    assert around(program, 20, of=run(user="nobody")) == source.NOT_THE_JOBS
    assert around(program, 20, of=run(user="no such user")) == source.NOT_THE_JOBS
    assert isinstance(around(program, 20), Code)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    assert around(tmp_path / "gone.py", 1) == "No such file or directory"


def test_the_programs_of_the_demos_are_found_wherever_they_were_recorded() -> None:
    there = "/home/somebody/whyidle/demo_workloads/input_starved/before_torch.py"
    code = shown(there, 30, "__getitem__", run(started_ms=1_000, host="elsewhere"))
    assert code.caveats == ()
    assert any("def __getitem__" in line for line in code.lines)
    after = shown(there.replace("before", "after"), 41, "train", run(started_ms=1_000))
    assert any("num_workers=8" in line for line in after.lines)
    assert isinstance(around("/x/demo_workloads/../../../etc/x.py", 1), str)


def test_the_name_of_a_demo_leads_to_no_other_file(program: Path) -> None:
    assert around(f"/x/demo_workloads/{program}", 20) == "No such file or directory"


def test_a_long_line_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    path.write_text("x = 1 " + "#" * 5000)
    assert len(shown(path, 1, "<module>").lines[0]) == source.LONGEST_LINE


def test_the_programs_of_the_sample_are_the_demos(monkeypatch: pytest.MonkeyPatch) -> None:
    there = "/tmp/job/input_starved/before_torch.py"
    assert isinstance(around(there, 30, "__getitem__"), str)
    monkeypatch.setattr(settings._Current, "settings", settings.Settings(is_sample=True))
    assert any("def __getitem__" in line for line in shown(there, 30, "__getitem__").lines)

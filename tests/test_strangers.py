"""The bench of real programs: what a case must say, and a program that runs as it was left."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.strangers import checkout, jobs
from benchmarks.strangers.__main__ import main
from benchmarks.strangers.cases import Case, Change, Edit, MalformedError, cases
from benchmarks.strangers.checkout import NotAtHand, written
from benchmarks.strangers.inputs import MAKERS
from benchmarks.strangers.judge import followed, is_right, missed
from benchmarks.strangers.report import programs, scored
from benchmarks.strangers.watch import rename
from whyidle.monitor import rules

PROGRAM = """\
import time
STEPS = 10 ** 9
for step in range(STEPS):
    time.sleep(0.005)
    done = step
"""
CASE = Case(
    name="sleeps", kind="pytorch", repository="ours/sleeps", commit="HEAD", licence="ours",
    paths=(".",), folder=".", command=("python", "main.py"), tick="main.py:5", healthy=False,
    truth="It sleeps at main.py:4.", main=(("main.py", 4),), acceptable=("host_code",),
)  # fmt: skip


@pytest.fixture
def mirrors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of clones with one of ours in it."""
    clone = tmp_path / "mirrors" / "ours+sleeps" / "repo"
    clone.mkdir(parents=True)
    (clone / "main.py").write_text(PROGRAM)
    cells = [("code", "%matplotlib inline\n"), ("markdown", "# text"), ("code", "x = 1\ny = 2")]
    made = [{"cell_type": kind, "source": [text]} for kind, text in cells]
    (clone / "book.ipynb").write_text(json.dumps({"cells": made}))
    git = ["git", "-C", str(clone), "-c", "user.name=a", "-c", "user.email=a@localhost"]
    for line in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *line], check=True)
    monkeypatch.setattr(checkout, "JOBS", tmp_path / "jobs")
    monkeypatch.setattr(jobs, "PYTHON", sys.executable)
    return tmp_path / "mirrors"


def test_each_case_names_a_commit_a_licence_and_what_there_is() -> None:
    named = set(rules.load())
    found = list(cases())
    assert found
    for case in found:
        assert re.fullmatch(r"[0-9a-f]{40}", case.commit), case.name
        assert case.licence, case.name
        assert re.fullmatch(r"call:[\w.]+:[\w.]+|.+\.py:\d+", case.tick), case.name
        followed = {rule for change in case.changes for rule in change.follows}
        assert {*case.acceptable, *followed} <= named, case.name
        assert {each.partition(":")[0] for each in case.inputs} <= set(MAKERS), case.name
        # Of a healthy program nothing need be said; of any other something must be right to say.
        says = case.healthy or case.acceptable or case.main
        assert says or not case.truth, case.name


def test_a_repository_is_on_one_side() -> None:
    assert replace(CASE, name="other").side == CASE.side
    sides = {replace(CASE, repository=f"ours/{n}").side for n in range(20)}
    assert sides == {"tune", "heldout"}


def test_lines_stay_where_they_are(mirrors: Path) -> None:
    case = replace(CASE, edits=(Edit("main.py", 1, 2, "import time; STEPS = 5"),))
    lines = (written(case, mirrors, counting=True) / "main.py").read_text().splitlines()
    assert lines[0] == "import time; STEPS = 5"
    assert lines[1] == ""
    assert lines[3] == "    time.sleep(0.005)"
    assert lines[4] == "    __tick__[0] += 1; done = step"


def test_what_is_judged_has_no_line_of_ours_that_counts(mirrors: Path) -> None:
    assert (written(CASE, mirrors) / "main.py").read_text() == PROGRAM


def test_a_change_may_take_more_lines_than_it_replaces(mirrors: Path) -> None:
    change = Change("less", (), (Edit("main.py", 4, 4, "    a = 1\n    b = 2"),))
    text = (written(CASE, mirrors, change, counting=True) / "main.py").read_text()
    assert text.splitlines()[3:] == ["    a = 1", "    b = 2", "    __tick__[0] += 1; done = step"]


@pytest.mark.parametrize(
    "edit",
    [Edit("main.py", 4, 4, "a = 1\nb = 2"), Edit("main.py", 90, 91, "a = 1")],
)
def test_an_edit_that_would_move_lines_is_refused(mirrors: Path, edit: Edit) -> None:
    with pytest.raises(MalformedError):
        written(replace(CASE, edits=(edit,)), mirrors)


def test_a_notebook_runs_as_a_file(mirrors: Path) -> None:
    case = replace(CASE, command=("python", "book.ipynb"))
    text = (written(case, mirrors) / "book.py").read_text()
    assert text == "# %matplotlib inline\n\n\nx = 1\ny = 2\n"
    compile(text, "book.py", "exec")


def test_a_repository_that_is_not_there_is_said(mirrors: Path) -> None:
    with pytest.raises(NotAtHand, match="no-such-commit"):
        written(replace(CASE, commit="no-such-commit"), mirrors)


def test_its_steps_are_counted_and_it_sees_nothing_else_of_ours(mirrors: Path) -> None:
    job = jobs.Job(CASE, mirrors)
    try:
        job.wait_for_steps(3)
        first = job.counted()[0]
        assert job.is_running
        job.wait_for_steps(first + 3)
    finally:
        job.end()
    assert not job.is_running
    assert (job.folder / "output").read_text() == ""


def test_what_it_starts_in_a_session_of_its_own_ends_with_it(mirrors: Path) -> None:
    starts = "subprocess.Popen(['sleep', '60'], start_new_session=True)"
    edit = Edit(
        "main.py", 1, 2, f"import subprocess, time; print({starts}.pid, flush=True)\nSTEPS = 9**9"
    )
    job = jobs.Job(replace(CASE, edits=(edit,)), mirrors)
    try:
        job.wait_for_steps(1)
        child = Path("/proc") / (job.folder / "output").read_text().strip()
        assert "sleep" in (child / "cmdline").read_text()
    finally:
        job.end()
    # The kernel takes a moment; a zombie has no command line.
    until = time.monotonic() + 10
    while child.exists() and (child / "cmdline").read_bytes():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_calls_of_a_library_are_counted(mirrors: Path) -> None:
    case = replace(CASE, tick="call:json.decoder:JSONDecoder.decode", edits=(
        Edit("main.py", 4, 4, "    import json; json.loads('1'); time.sleep(0.005)"),
    ))  # fmt: skip
    job = jobs.Job(case, mirrors)
    try:
        job.wait_for_steps(3)
    finally:
        job.end()


def test_a_program_that_ends_is_said_with_its_last_words(mirrors: Path) -> None:
    case = replace(CASE, edits=(Edit("main.py", 4, 4, "    raise SystemExit('no data')"),))
    job = jobs.Job(case, mirrors)
    try:
        with pytest.raises(jobs.Failed, match="no data"):
            job.wait_for_steps(3)
    finally:
        job.end()


@pytest.mark.parametrize(
    ("gain", "outcome"),
    [
        ((0.42, 0.44, 0.46), "harmful"),
        ((0.97, 1.0, 1.03), "empty"),
        ((1.6, 1.8, 2.0), "gains"),
        ((1.1, 1.2, 1.3), "less"),
        (None, "not measured"),
    ],
)
def test_advice_is_held_against_what_following_it_gave(
    gain: tuple[float, float, float] | None, outcome: str
) -> None:
    case = replace(CASE, changes=(Change("compiled", ("eager_launch_bound",)),))
    found = {"rule": "eager_launch_bound", "severity": "high", "speedup": [1.5, 5.2]}
    measured = {} if gain is None else {"compiled": {"gain": gain}}
    assert followed(case, found, measured)["outcome"] == outcome


def test_a_gain_that_nothing_speaks_of_is_missed() -> None:
    case = replace(CASE, changes=(Change("kept", ("input_starved",)),))
    measured = {"kept": {"gain": [1.9, 2.0, 2.1]}}
    assert list(missed(case, [], measured)) == ["kept (2.00x)"]
    assert list(missed(case, [{"rule": "input_starved"}], measured)) == []
    assert list(missed(case, [], {"kept": {"gain": [0.99, 1.0, 1.01]}})) == []


def _answer(rule: str | None, severity: str = "low", line: int | None = None) -> dict[str, Any]:
    found = [] if rule is None else [{"rule": rule, "severity": severity}]
    where = [] if line is None else [{"file": "/a/main.py", "line": line}]
    return {"findings": found, "verdict": {"text": "", "where": where}}


def test_a_first_statement_is_right_by_its_rule_or_by_its_line() -> None:
    assert is_right(_answer("host_code", "high"), CASE)
    assert is_right(_answer(None, line=4), CASE)
    assert is_right(_answer("gc_pauses", "low", line=4), CASE)
    assert not is_right(_answer("gc_pauses", "high", line=4), CASE)
    assert not is_right(_answer(None, line=90), CASE)
    assert not is_right(_answer(None), CASE)


def _row(**named: Any) -> dict[str, Any]:
    return {
        "case": "sleeps", "side": "heldout", "healthy": False, "acceptable": True, "loud": [],
        "missed": [], "unspoken": 0.0, "steps": {"said": 1.0, "true": 1.0, "right": True},
        "widths": [], "unharmed": True,
        "weight": {"mean": 0.05, "worst": 0.5, "seconds": [[0.4, 0.8], [0.1, 1.2], [0.0, 0.5]]},
        "first": ["host_code", "high", [1.5, 2.0]], "verdict": None,
    } | named  # fmt: skip


def test_the_scores_count_what_was_followed() -> None:
    loud = [
        {
            "rule": "host_code",
            "promised": [1.5, 2.0],
            "gain": [0.4, 0.5, 0.6],
            "outcome": "harmful",
        },
        {"rule": "gc_pauses", "promised": [1.5, 2.0], "gain": None, "outcome": "not measured"},
    ]
    rows = [_row(loud=loud), _row(acceptable=False), _row(healthy=True, acceptable=False)]
    found = scored(rows)["heldout"]
    assert (found["acceptable"], found["loud"], found["followed"]) == (0.5, 2, 1)
    assert (found["harmful"], found["healthy_loud"]) == (1.0, 1)
    # Not the second in which one program pauses, nor one that few were watched in.
    rows += [_row(weight={"mean": 0.1, "worst": 0.3, "seconds": [[0.3, 1.0], [0.2, 1.1]]})]
    assert scored(rows)["heldout"]["lost_in_worst"] == 0.2
    text = programs(rows, {"sleeps": "It sleeps."})
    assert "0.50x harmful" in text
    assert "It sleeps." in text


def test_an_unknown_case_ends_with_those_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["strangers", "--case", "no_such"])
    with pytest.raises(SystemExit, match="nanogpt_shakespeare"):
        main()


def test_a_recording_names_no_folder_of_its_machine(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    with sqlite3.connect(store) as database:
        database.execute("CREATE TABLE event (id INTEGER, 'text' TEXT, data TEXT, seen REAL)")
        at = '{"file": "/home/me/venv/lib/a.py", "other": "/home/you/b.py"}'
        database.execute("INSERT INTO event VALUES (1, '/home/me/venv', ?, 0.5)", (at,))
    rename(store, "/home/me/venv", "/venv")
    with sqlite3.connect(store) as database:
        (row,) = database.execute("SELECT * FROM event").fetchall()
    assert row == (1, "/venv", at.replace("/home/me/venv", "/venv"), 0.5)

"""compare: the contract, the screen, exit codes, and what is said of bad targets."""

from __future__ import annotations

import json
import math
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.commands.tracefiles import kineto
from tests.conftest import ROOT, Monitor, lines
from whyidle.monitor.errors import Exit
from whyidle.monitor.metrics import JOB_LOADER_WAIT, JOB_RSS, JOB_STEP_P50, JOB_STEPS, Scope
from whyidle.monitor.reading import Reading, Tick
from whyidle.monitor.slices import Slice
from whyidle.monitor.state import DATABASE
from whyidle.monitor.store import NewRun, Writer, schema

START_MS = 1_700_000_000_000
TRACES = ROOT / "tests" / "data" / "traces"


def record(state: Path, label: str, step_ms: float, waits: float, *, seconds: int = 60) -> int:
    """A recording of steps that take so long, two percent up and down by turns."""
    with Writer.open(state / DATABASE) as writer:
        number = writer.begin_run(NewRun(label=label, started_ms=START_MS, target_pid=7))
        values = {JOB_STEPS: 1000 / step_ms, JOB_STEP_P50: step_ms / 1000,
                  JOB_LOADER_WAIT: waits, JOB_RSS: 1e9}  # fmt: skip
        for second in range(seconds):
            ts_ms = START_MS + 1000 * second
            writer.append(number, Tick(ts_ms, {Scope.JOB: {number: Reading(dict(values))}}))
        middles = [round(step_ms * 1e6 * (1 + 0.02 * math.sin(i * i))) for i in range(seconds)]
        counted = {"steps": 20 * seconds, "source": "optimizer", "step_p50_ns": middles[0],
                   "stretches": [[20, 20 * ns, ns] for ns in middles]}  # fmt: skip
        process = {"pid": 7, "rank": None, "method": "ptrace", "inside": True, "stops_ms": [],
                   "refused": None, "next_step": None, "counted": counted}  # fmt: skip
        writer.describe_run(number, info={"processes": [process]})
        writer.end_run(number, "job ended")
    return number


@pytest.fixture
def runs(state: Path) -> None:
    record(state, "before", 40.0, 0.5)
    record(state, "after", 22.0, 0.008, seconds=200)


def told(monitor: Monitor, *arguments: object) -> dict[str, Any]:
    done = monitor("compare", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    (answer,) = lines(done.stdout)
    return answer


def test_the_contract_of_two_runs_of_different_lengths(monitor: Monitor, runs: None) -> None:
    answer = told(monitor, "before", "after")
    assert (answer["verdict"], answer["per"]) == ("faster", "step")
    for which, step_ns in (("a", 40e6), ("b", 22e6)):
        low, middle, high = answer["step_ns"][which]
        assert low <= middle <= high
        assert middle == pytest.approx(step_ns, rel=0.03)
        assert answer["slices"][which].keys() == set(Slice)
        known = [ns for ns in answer["slices"][which].values() if ns is not None]
        assert sum(known) == pytest.approx(step_ns, rel=0.03)
    low, middle, high = answer["speedup"]
    assert low < 40 / 22 < high
    assert low <= middle <= high
    assert [f["rule"] for f in answer["findings_gone"]] == ["input_starved"]
    assert answer["findings_new"] == []
    assert answer["energy"] == {
        "unit": "J/step", "a": None, "b": None,
        "unknown": {"a": "no power is read", "b": "no power is read"},
    }  # fmt: skip
    nulls = [part for part, ns in answer["slices"]["a"].items() if ns is None]
    assert all(f"slices.a.{part}" in answer["unknown"] for part in nulls)


def test_the_screen_begins_with_the_verdict_and_fits_a_terminal(
    monitor: Monitor, runs: None
) -> None:
    done = monitor("compare", "before", "after", env={"COLUMNS": "80", "PYTHONUTF8": "1"})
    assert done.stdout.splitlines() == SCREEN.splitlines()[1:]


SCREEN = """
B is 1.82x faster [1.81, 1.82]: step 40.0 -> 22.0 ms on average
A: run 1 (before), 1,200 steps, counted by optimizer
B: run 2 (after), 4,000 steps, counted by optimizer

A iiiiiiiiiiiiii input 50% iiiiiiiiiiiiii············· unknown 50% ·············
B i·············· unknown 99% ···············
time of a step         A        B    change  share A  share B
i idle: input    20.0 ms   176 µs  -19.8 ms      50%  0.8%
· idle: unknown  20.0 ms  21.8 ms  +1.84 ms      50%  99%

gone  HIGH   The device waits for the next batch  [input_starved]

Kernels: run 1 (before) and run 2 (after): only a trace tells: none was taken of
  it.

      A        B  change
954 MiB  954 MiB       0  resident memory, mean
954 MiB  954 MiB       0  resident memory, peak
"""


def test_equal_runs_differ_by_nothing_beyond_noise(monitor: Monitor, state: Path) -> None:
    for label in ("one", "two"):
        record(state, label, 30.0, 0.2)
    assert told(monitor, "one", "two")["verdict"] == "same"
    done = monitor("compare", "one", "two", "--fail-slower", "0")
    assert done.stdout.startswith("No difference beyond noise: step 30")
    assert done.returncode == 0


def test_a_trace_beside_a_run(monitor: Monitor, runs: None) -> None:
    trace = TRACES / "kineto" / "cpu_steps_stacks.json.gz"
    answer = told(monitor, "before", trace)
    assert answer["speedup_by"] == "median"
    assert answer["speedup"][0] is None
    assert answer["unknown"]["bounds"] == "4 samples of the time of a step: too few"
    assert answer["unknown"]["kernels"]
    assert any("of a trace" in text for text in answer["warnings"])
    assert answer["memory"][0]["unknown"]["b"]


def test_runs_whose_steps_only_kept_traces_show_have_no_bounds(
    monitor: Monitor, runs: None, state: Path
) -> None:
    trace = TRACES / "kineto" / "cpu_steps_stacks.json.gz"
    with Writer.open(state / DATABASE) as writer:
        numbers = [writer.begin_run(NewRun(label=label)) for label in ("one", "two")]
        for number in numbers:
            writer.end_run(number, "job ended")
    for number in numbers:
        done = monitor("trace", trace, "--run", number)
        assert done.returncode == 0, done.stderr
    answer = told(monitor, "one", "two")
    assert answer["a"]["steps"] == 4
    assert answer["speedup"] == [None, 1.0, None]
    assert answer["verdict"] == "uncertain"
    assert any("which slows them" in text for text in answer["warnings"])


def test_operators_of_two_traces_of_a_cpu(monitor: Monitor) -> None:
    files = [
        TRACES / "kineto" / "cpu_plain.json.gz",
        TRACES / "kineto" / "cpu_steps_stacks.json.gz",
    ]
    answer = told(monitor, *files)
    assert answer["kernels_are"] == "operators"
    assert answer["kernels"]


@pytest.mark.parametrize(
    ("a", "b", "percent", "code"),
    [
        ("after", "before", "5", Exit.FINDINGS),
        ("after", "before", "90", Exit.OK),
        ("before", "after", "0", Exit.OK),
    ],
)
def test_a_script_can_ask_whether_it_got_slower(  # noqa: PLR0917
    monitor: Monitor, runs: None, a: str, b: str, percent: str, code: int
) -> None:
    done = monitor("compare", a, b, "--fail-slower", percent)
    assert done.returncode == code
    if code:
        assert "slower than A; 5% are allowed." in done.stderr


def test_what_cannot_be_told_does_not_pass_for_a_script(monitor: Monitor, runs: None) -> None:
    trace = TRACES / "kineto" / "cpu_steps_stacks.json.gz"
    done = monitor("compare", "before", trace, "--fail-slower", "5")
    assert done.returncode == Exit.NOT_JUDGED
    assert "cannot be told" in done.stderr
    # The comparison itself is shown all the same.
    assert done.stdout


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ("before", "nonsense", "B: there is no recording and no file 'nonsense'."),
        ("gone.json.gz", "before", "A: there is no file 'gone.json.gz'."),
        ("before", "./after", "B: there is no file './after'."),
        ("last", "after", "A and B are the same recording, run 2."),
        ("1", "before", "A and B are the same recording, run 1."),
    ],
)
def test_bad_targets(monitor: Monitor, runs: None, a: str, b: str, said: str) -> None:
    done = monitor("compare", a, b)
    assert done.returncode == Exit.USAGE
    assert said in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 2


def test_the_same_file_by_another_name(monitor: Monitor, tmp_path: Path) -> None:
    one, two = tmp_path / "train.json", tmp_path / "again.json"
    one.write_text(json.dumps(kineto()))
    two.symlink_to(one)
    done = monitor("compare", one, two)
    assert done.returncode == Exit.USAGE
    assert "the same file" in done.stderr


def test_nothing_is_recorded_yet(monitor: Monitor) -> None:
    done = monitor("compare", "1", "2")
    assert done.returncode == Exit.USAGE
    assert "monitor attach PID" in done.stderr


def test_a_file_that_is_no_trace(monitor: Monitor, runs: None, tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_text("[]")
    done = monitor("compare", "before", path)
    assert done.returncode != 0
    assert "notes.json" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_store_of_a_newer_program(monitor: Monitor, runs: None, state: Path) -> None:
    connection = sqlite3.connect(state / DATABASE)
    connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    connection.close()
    done = monitor("compare", "before", "after")
    assert done.returncode == Exit.STORAGE
    assert "newer whyidle" in done.stderr

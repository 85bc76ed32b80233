"""compare: the contract, the screen, exit codes, and what is said of bad targets."""

from __future__ import annotations

import gzip
import json
import math
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.commands.tracefiles import kineto
from tests.conftest import ROOT, Monitor, lines
from whyidle.monitor.compare.pace import BETWEEN_RUNS
from whyidle.monitor.core.errors import Exit
from whyidle.monitor.core.metrics import (
    JOB_LOADER_WAIT,
    JOB_MAIN_THREAD_WAIT,
    JOB_RSS,
    JOB_STEP_P50,
    JOB_STEPS,
    Scope,
)
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.core.reading import Reading, Tick
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.store import NewRun, Writer, schema

START_MS = 1_700_000_000_000
TRACES = ROOT / "tests" / "data" / "traces"


def record(
    state: Path, label: str, step_ms: float, waits: float, *, seconds: int = 60,
    crowded: float | None = None, starts: int = 0,
) -> int:  # fmt: skip
    """A recording of steps that take so long, two percent up and down by turns.

    While it starts it takes no steps, and three times the memory.
    """
    with Writer.open(state / DATABASE) as writer:
        number = writer.begin_run(NewRun(label=label, started_ms=START_MS, target_pid=7))
        values = {JOB_STEPS: 1000 / step_ms, JOB_STEP_P50: step_ms / 1000,
                  JOB_LOADER_WAIT: waits, JOB_RSS: 1e9}  # fmt: skip
        if crowded is not None:
            values[JOB_MAIN_THREAD_WAIT] = crowded
        for second in range(starts + seconds):
            ts_ms = START_MS + 1000 * second
            values_now = dict(values) if second >= starts else {JOB_RSS: 3e9}
            writer.append(number, Tick(ts_ms, {Scope.JOB: {number: Reading(values_now)}}))
        middles = [round(step_ms * 1e6 * (1 + 0.02 * math.sin(i * i))) for i in range(seconds)]
        counted = {"steps": 20 * seconds, "source": "optimizer",
                   "step_p50_ns": next(iter(middles), None),
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


def answered(monitor: Monitor, *arguments: object) -> dict[str, Any]:
    done = monitor("compare", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    (answer,) = lines(done.stdout)
    return answer


def test_the_contract_of_two_runs_of_different_lengths(monitor: Monitor, runs: None) -> None:
    answer = answered(monitor, "before", "after")
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
   step: median 39.9 [39.7, 40.2] ms, mean 40.0 ms
B: run 2 (after), 4,000 steps, counted by optimizer
   step: median 22.0 [21.9, 22.1] ms, mean 22.0 ms

A i░░░░░░░░░░░░░ input 50% ░░░░░░░░░░░░░░············· unknown 50% ·············
B i·············· unknown 99% ···············
time of a step         A        B    change  share A  share B
i idle: input    20.0 ms   176 µs  -19.8 ms      50%  0.8%
· idle: unknown  20.0 ms  21.8 ms  +1.84 ms      50%  99%

gone  HIGH   input_starved: The device waits for the next batch

Kernels and copies: run 1 (before) and run 2 (after): only a trace shows it, and
  none was taken.

      A        B  change
954 MiB  954 MiB       0  resident memory, mean
954 MiB  954 MiB       0  resident memory, peak
Energy is not known: no power is read.
"""


def test_equal_runs_differ_by_nothing_beyond_noise(monitor: Monitor, state: Path) -> None:
    for label in ("one", "two"):
        record(state, label, 30.0, 0.2)
    assert answered(monitor, "one", "two")["verdict"] == "same"
    done = monitor("compare", "one", "two", "--fail-slower", "3")
    assert done.stdout.startswith("No difference beyond noise: step 30")
    assert done.returncode == 0


@pytest.mark.parametrize("percent", ["0", "2.9", "-1"])
def test_a_script_cannot_ask_for_less_than_runs_of_one_program_differ_by(
    monitor: Monitor, runs: None, percent: str
) -> None:
    done = monitor("compare", "before", "after", f"--fail-slower={percent}")
    assert done.returncode == Exit.USAGE
    assert "one program differs by 3% from run to run" in done.stderr
    assert "--fail-slower 3" in done.stderr
    assert done.stdout == ""
    output = " ".join(monitor("compare", "--help").stdout.split())
    assert f"less than {BETWEEN_RUNS:.0%} is never called a difference" in output
    assert "only beyond noise" in output


def test_a_machine_that_was_busier_for_one_judges_neither_for_a_script(
    monitor: Monitor, state: Path
) -> None:
    record(state, "calm", 20.0, 0.0, crowded=0.01)
    record(state, "busy", 45.0, 0.0, crowded=0.4)
    answer = answered(monitor, "calm", "busy")
    assert answer["verdict"] == "uncertain"
    assert answer["unknown"]["verdict"] == "the machine was not the same for both"
    done = monitor("compare", "calm", "busy", "--fail-slower", "5", env={"COLUMNS": "100"})
    assert done.returncode == Exit.NOT_JUDGED
    assert "the machine was not the same for both" in done.stderr
    assert "Perhaps 2.25x slower" in done.stdout
    assert "It is not certain: the machine was not the same for both." in done.stdout


def test_memory_while_a_job_starts_is_in_its_peak_and_not_in_its_mean(
    monitor: Monitor, state: Path
) -> None:
    for label in ("one", "two"):
        record(state, label, 20.0, 0.0, starts=20)
    mean, peak = answered(monitor, "one", "two")["memory"]
    assert (mean["name"], mean["a"]) == ("resident memory, mean", 1e9)
    assert (peak["name"], peak["a"]) == ("resident memory, peak", 3e9)


def test_memory_of_a_job_whose_start_nobody_saw_has_no_mean(monitor: Monitor, state: Path) -> None:
    for label in ("one", "two"):
        record(state, label, 20.0, 0.0, seconds=0, starts=20)
    mean, peak = answered(monitor, "one", "two")["memory"]
    assert mean["a"] is None
    assert "start-up" in mean["unknown"]["a"]
    assert peak["a"] == 3e9


def test_a_folder_is_called_one_and_the_trace_in_it_named(
    monitor: Monitor, runs: None, tmp_path: Path
) -> None:
    path = tmp_path / "train.json"
    path.write_text(json.dumps(kineto()))
    done = monitor("compare", "before", tmp_path)
    assert done.returncode == Exit.USAGE
    assert f"B: {tmp_path} is a folder." in done.stderr
    assert f"The newest trace in it: {path}" in done.stderr


@pytest.mark.parametrize("share", [0.5, 0.99])
def test_a_profile_that_is_cut_off_is_warned_of(
    monitor: Monitor, tmp_path: Path, share: float
) -> None:
    whole = gzip.decompress((TRACES / "xplane" / "cpu_plain.xplane.pb.gz").read_bytes())
    cut, good = tmp_path / "cut.xplane.pb", tmp_path / "good.xplane.pb"
    cut.write_bytes(whole[: int(share * len(whole))])
    good.write_bytes(whole)
    said = "cut.xplane.pb: The file is cut off: what is missing is left out."
    assert said in answered(monitor, good, cut)["warnings"]


def test_a_trace_beside_a_run(monitor: Monitor, runs: None) -> None:
    trace = TRACES / "kineto" / "cpu_steps_stacks.json.gz"
    answer = answered(monitor, "before", trace)
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
    answer = answered(monitor, "one", "two")
    assert answer["a"]["steps"] == 4
    assert answer["speedup"] == [None, 1.0, None]
    assert answer["verdict"] == "uncertain"
    assert any("which slows them" in text for text in answer["warnings"])


def test_operators_of_two_traces_of_a_cpu(monitor: Monitor) -> None:
    files = [
        TRACES / "kineto" / "cpu_plain.json.gz",
        TRACES / "kineto" / "cpu_steps_stacks.json.gz",
    ]
    answer = answered(monitor, *files)
    assert answer["kernels_are"] == "operators"
    assert answer["kernels"]


@pytest.mark.parametrize(
    ("a", "b", "percent", "code"),
    [
        ("after", "before", "5", Exit.FINDINGS),
        ("after", "before", "90", Exit.OK),
        ("before", "after", "3", Exit.OK),
    ],
)
def test_a_script_can_ask_whether_it_got_slower(  # noqa: PLR0917
    monitor: Monitor, runs: None, a: str, b: str, percent: str, code: int
) -> None:
    done = monitor("compare", a, b, "--fail-slower", percent)
    assert done.returncode == code
    if code:
        assert "slower than A; 5% are allowed." in done.stderr


def test_what_is_not_known_does_not_pass_for_a_script(monitor: Monitor, runs: None) -> None:
    trace = TRACES / "kineto" / "cpu_steps_stacks.json.gz"
    done = monitor("compare", "before", trace, "--fail-slower", "5")
    assert done.returncode == Exit.NOT_JUDGED
    assert "It is not known whether B is slower" in done.stderr
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

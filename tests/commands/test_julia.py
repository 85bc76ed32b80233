"""A real Julia, watched: its collector read from outside, its end told, its steps where marked."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, Monitor, lines
from whyidle.agents import wire

JULIA = ROOT / ".venv" / "bin" / "julia"
pytestmark = pytest.mark.skipif(
    not JULIA.exists(), reason="no Julia here: .ci/julia gets one on Debian amd64"
)
# It collects all objects again and again, and says at its end for how long.
COLLECTS = """
kept, turn = [Dict("name" => "file $i") for i in 1:50_000], 0
t, before = time(), Base.gc_num().total_time
while time() - t < 9
    global turn += 1
    sum(rand(200_000))
    GC.gc()
    if turn == 5; println("ready"); flush(stdout); end
end
println((Base.gc_num().total_time - before) / 1e9 / (time() - t))
"""
STEPS = """
t, made = time(), 0
while time() - t < 6
    WhyIdle.@step sleep(0.02)
    global made += 1
end
println(stderr, "made ", made)
"""


def started(tmp_path: Path, code: str) -> subprocess.Popen[str]:
    script = tmp_path / "train.jl"
    script.write_text(code)
    job = subprocess.Popen([JULIA, script], stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    assert job.stdout.readline() == "ready\n"
    return job


def test_the_collectors_share_is_what_julia_says_itself_and_the_end_is_told(
    tmp_path: Path, monitor: Monitor
) -> None:
    job = started(tmp_path, COLLECTS)
    try:
        done = monitor("attach", job.pid, "--json")
        assert job.stdout is not None
        said = float(job.communicate()[0])
    finally:
        job.kill()
        job.wait()
    *ticks, summary = lines(done.stdout)
    shares = [x["job"]["gc_pause_ratio"] for x in ticks if x["job"]["gc_pause_ratio"] is not None]
    assert len(shares) >= 4
    assert sum(shares) / len(shares) == pytest.approx(said, abs=0.15)
    (agent,) = ticks[-1]["agents"]
    assert agent["framework"]["julia"]["version"].startswith("1.")
    assert agent["method"] == "outside"
    assert summary["end"].startswith("job ended")
    assert summary["attached"] == "outside"
    found = next(each for each in summary["findings"] if each["rule"] == "gc_pauses")
    assert found["severity"] == "high"
    assert found["title"] == "The job has Julia collect garbage in its loop"
    assert set(found["fixes"]) == {"flux"}
    assert [(Path(x["file"]).name, x["line"]) for x in found["where"]] == [("train.jl", 7)]


def test_marks_of_steps_come_with_monitor_run_and_leave_nothing(
    tmp_path: Path, monitor: Monitor
) -> None:
    script = tmp_path / "steps.jl"
    script.write_text(STEPS)
    done = monitor("run", "--json", "--", JULIA, script, env={"LC_ALL": "C"})
    assert done.returncode == 0
    made = int(done.stderr.rpartition("made ")[2].split()[0])
    summary = lines(done.stdout)[-1]
    # The first mark only begins a step.
    assert made - 20 <= summary["steps"] <= made
    assert summary["training"]["steps_source"] == "whyidle.step"
    assert summary["training"]["step_p50_s"] == pytest.approx(0.021, abs=0.004)
    (agent,) = summary["agents"]
    folder = Path("/tmp") / wire.folder_name(os.getuid())
    assert not (folder / wire.spool_name(agent["pid"])).exists()


def test_marks_change_nothing_of_a_program_and_its_errors(tmp_path: Path) -> None:
    script = tmp_path / "program.jl"
    script.write_text(
        "x = WhyIdle.@step 1 + 1\nWhyIdle.step()\nprintln(x, ' ', ARGS, ' ', PROGRAM_FILE)\n"
        'WhyIdle.@step error("of the user\'s")\n'
    )
    marks = ROOT / "agents" / wire.JULIA_MARKS
    # Also where its file cannot be written.
    for code in ("", "close(WhyIdle.STATE.file); "):
        done = subprocess.run(
            [JULIA, "-L", marks, "-e", f"{code}include(popfirst!(ARGS))", script, "a", "b"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 1
        assert done.stdout.startswith('2 ["a", "b"] ')
        assert "of the user's" in done.stderr


def test_the_mark_is_put_before_what_julia_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    from whyidle.monitor.app.launch import with_marks  # noqa: PLC0415  of this test alone

    marks = str(Path(wire.__file__).parent / wire.JULIA_MARKS)
    cases: list[tuple[list[str], Any]] = [
        (["julia", "a.jl", "-L"], ["julia", "-L", marks, "a.jl", "-L"]),
        (["/x/julia", "+1.10", "a.jl"], ["/x/julia", "+1.10", "-L", marks, "a.jl"]),
        (["julia"], ["julia", "-L", marks]),
        (["python", "julia"], ["python", "julia"]),
    ]
    for command, expected in cases:
        assert with_marks(command) == expected
    monkeypatch.setattr("whyidle.monitor.app.launch.JULIA_MARKS", "julia/nowhere.jl")
    assert with_marks(["julia", "a.jl"]) == ["julia", "a.jl"]


INTERRUPTED = """
include(ARGS[1])
ccall(:jl_exit_on_sigint, Cvoid, (Cint,), 0)
WhyIdle.step()
try
    println("ready"); flush(stdout)
    t = time()
    while time() - t < 20; WhyIdle.step(); end
    println("lost")
catch error
    println(typeof(error))
end
"""


def test_an_interrupt_in_the_middle_of_a_mark_is_the_users(tmp_path: Path) -> None:
    script = tmp_path / "train.jl"
    script.write_text(INTERRUPTED)
    marks = Path(wire.__file__).parent / wire.JULIA_MARKS
    job = subprocess.Popen([JULIA, script, marks], stdout=subprocess.PIPE, text=True)
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        time.sleep(1)
        job.send_signal(signal.SIGINT)
        assert job.communicate(timeout=30)[0] == "InterruptException\n"
    finally:
        job.kill()
        job.wait()

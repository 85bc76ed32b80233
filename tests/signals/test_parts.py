"""A job of several parts: what computes for the others is judged, whoever was named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import toy_engine
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.core.reading import Reading, Tick
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.diagnosis.diagnose import as_json, diagnose
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.runs.summary import STACKS
from whyidle.monitor.signals.opening import of_run
from whyidle.monitor.signals.window import Window
from whyidle.monitor.store import NewRun, Writer

START_MS = 1_700_000_000_000
FRONT, CORE, WORKER = 7, 8, 9
TITLES = {CORE: ("VLLM::EngineCore", "engine"), WORKER: ("VLLM::Worker", "worker")}
SECONDS = 30
TOY = str(Path(toy_engine.__file__))
PYTHON = "/usr/lib/python3.11"


def at(text: str, function: str) -> CodeLine:
    """Return the line of the toy that has this text."""
    lines = Path(TOY).read_text().splitlines()
    return CodeLine(TOY, next(n for n, x in enumerate(lines, 1) if text in x), function)


SPINS = Chain((at("os.sched_yield()", "wait_for"), at("turns.wait_for(DONE", "run_busy_loop")))
WAITS = Chain((at("turns.wait_for(ASKED", "worker_busy_loop"),))
ASKED = Chain((at("os.sched_yield()", "wait_for"), *WAITS.frames))
ASKS = Chain(
    (at("mine.recv()", "main"),),
    CodeLine(f"{PYTHON}/multiprocessing/connection.py", 395, "_recv"),
    CodeLine(f"{PYTHON}/multiprocessing/connection.py", 250, "recv"),
)
LOOPS = at("batch = compute(weights, batch)", "worker_busy_loop")
COMPUTES = Chain((at("torch.tanh(batch @ weights)", "compute"), LOOPS))
PENALISES = Chain(
    (at("seen += token % 7", "penalise"), at("penalise(python_s)", "worker_busy_loop"))
)


def stacks(*counted: tuple[Chain, int, int]) -> dict[str, Any]:
    """Return what is kept of samples: a chain, in how many it was, and in how many it slept."""
    found = StackSamples()
    found.samples, found.looks = sum(n for _, n, _ in counted), 10
    for chain, n, slept in counted:
        found.count(chain, n, n, slept, when=(1 << 10) - 1)
    return found.packed(1 << 14) | {"seconds": 10.0}


def recorded(folder: Path, work: dict[Chain, int], root: int = FRONT) -> Window:
    """Record the three; the worker is found at ``work``."""
    doing = {
        FRONT: stacks((ASKS, 100, 99)),
        CORE: stacks((SPINS, 100, 1)),
        WORKER: stacks(*((chain, n, 0) for chain, n in work.items())),
    }
    cores = {FRONT: 0.02, CORE: 0.9, WORKER: 0.98}
    entries = [
        {
            "pid": pid, "start_ticks": pid, "rank": None, "method": "ptrace", "inside": True,
            "stops_ms": [], "refused": None, "next_step": None,
            "frameworks": {"torch": {"version": "2.13.0+cpu", "backend": "cpu"}},
            "counted": {"steps": 200, "source": "loop"} if pid == CORE else None,
            "title": TITLES.get(pid, (None, None))[0], "role": TITLES.get(pid, (None, None))[1],
        }
        for pid in doing
    ]  # fmt: skip
    path = folder / DATABASE
    with Writer.open(path) as writer:
        run = writer.begin_run(
            NewRun(started_ms=START_MS, info={"processes": entries}, target_pid=root)
        )
        own = {pid: writer.add_process(run, pid=pid, start_ticks=pid) for pid in doing}
        for second in range(SECONDS):
            when = START_MS + 1000 * second
            rows = {
                Scope.JOB: {run: Reading({m.JOB_CPU: 1.9, m.JOB_MAIN_THREAD: 0.98})},
                Scope.PROCESS: {own[pid]: Reading({m.PROCESS_CPU: cores[pid]}) for pid in doing},
            }
            writer.append(run, Tick(when, rows))
            for pid in doing if second % 10 == 9 else ():
                writer.event(
                    run, STACKS, "-", ts_ms=when, scope=Scope.PROCESS, subject=own[pid],
                    data=doing[pid],
                )  # fmt: skip
        writer.end_run(run, "job ended")
    return of_run(path, "last")


FAULT = {PENALISES: 45, COMPUTES: 50, ASKED: 5}
HEALTHY = {COMPUTES: 97, ASKED: 3}


def said(window: Window) -> DiagnosisJson:
    return as_json(diagnose(window))


@pytest.mark.parametrize("root", [FRONT, WORKER])
def test_the_worker_is_judged_whoever_was_named(tmp_path: Path, root: int) -> None:
    window = recorded(tmp_path, FAULT, root)
    assert window.job.pid == WORKER
    verdict = said(window).verdict
    assert verdict.where[0].function == "penalise"
    assert verdict.rule == "host_code"


def test_the_verdict_names_the_process_that_it_is_about(tmp_path: Path) -> None:
    verdict = said(recorded(tmp_path, FAULT)).verdict
    assert verdict.text.startswith("Process 9 (VLLM::Worker): ")
    assert verdict.process
    assert (verdict.process.pid, verdict.process.role) == (WORKER, "worker")


def test_named_itself_it_needs_no_name(tmp_path: Path) -> None:
    verdict = said(recorded(tmp_path, FAULT, WORKER)).verdict
    assert "VLLM::Worker" not in verdict.text
    assert not verdict.process


def test_a_busy_worker_has_nothing_loud(tmp_path: Path) -> None:
    answer = said(recorded(tmp_path, HEALTHY))
    assert [x.rule for x in answer.findings if Severity(x.severity).rank <= 1] == []
    assert answer.verdict.share is None


def test_a_worker_that_waits_is_idle_and_no_line_of_the_users_is_to_blame(tmp_path: Path) -> None:
    window = recorded(tmp_path, {COMPUTES: 40, ASKED: 60})
    assert window.shares[Slice.IDLE_OTHER_PROCESS] == pytest.approx(0.6, abs=0.02)
    answer = said(window)
    assert answer.findings == []
    assert "60% of the time is waiting for another process" in answer.verdict.text


def test_the_others_are_no_loaders_and_their_spinning_is_no_work(tmp_path: Path) -> None:
    job = recorded(tmp_path, HEALTHY).job
    assert job.helpers == ()
    assert job.parts < 0.05

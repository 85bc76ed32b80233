"""What the head of a recording says of the job's processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.render.snapshots import inside, outside
from whyidle.agents import wire
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.recording import run_metadata as module
from whyidle.monitor.recording.run_metadata import RunMetadata
from whyidle.monitor.runs.summary import summarise
from whyidle.monitor.store import NewRun, Reader, Writer


def test_a_process_is_named_by_its_start_too_and_only_when_it_stays(tmp_path: Path) -> None:
    path = tmp_path / DATABASE
    with Writer.open(path) as writer:
        run = writer.begin_run(NewRun(target_pid=4001))
        head = RunMetadata(writer, run)
        first, brief = inside(), inside(4003, settled=False)
        second = outside(4001)
        again = type(second)(second.key._replace(start_ticks=2), None, second.method)
        head.members((first, brief))
        head.members((again,))
        writer.end_run(run, "done")
    with Reader.open(path) as reader:
        (found,) = reader.runs()
    assert found.info is not None
    entries = [(e["pid"], e["start_ticks"], e["inside"]) for e in found.info["processes"]]
    assert entries == [(4001, 1, True), (4001, 2, False)]
    run_summary = summarise(path, str(run))
    assert run_summary.principal is not None
    assert run_summary.principal.start_ticks == 1


FACTS = {
    "torch": {
        "version": "2.13.0",
        "model": "Net",
        "batch_size": 32,
        "autocast": ["bfloat16"],
        "loaders": [1, 2],
    }
}


def sums(steps: int) -> dict[str, Any]:
    return {
        "steps": steps, "source": "optimizer", "step_p50_ns": 10, "step_p95_ns": 20,
        "totals": {wire.COMPILES: [steps, 2.0]},
    }  # fmt: skip


def test_what_trains_and_what_it_did_stands_in_the_head(tmp_path: Path) -> None:
    path = tmp_path / DATABASE
    with Writer.open(path) as writer:
        run = writer.begin_run(NewRun(target_pid=4001))
        head = RunMetadata(writer, run)
        member = inside(framework=FACTS, steps_source="optimizer")
        head.members((member,))
        head.counted(0.0, lambda: {member.key: sums(5)})
        head.counted(module.COUNT_SECONDS / 2, lambda: {member.key: sums(6)})
        assert stored(path)["counted"]["steps"] == 5
        # The agent has left: what it said stays.
        head.members((outside(4001),))
        head.counted(float("inf"), lambda: {member.key: sums(7)})
        writer.end_run(run, "done")
    assert stored(path)["frameworks"] == {
        "torch": {
            "version": "2.13.0", "model": "Net", "batch_size": 32, "autocast": ["bfloat16"],
        }
    }  # fmt: skip
    trained = summarise(path, str(run)).trained
    assert (trained.framework, trained.model, trained.batch_size) == ("PyTorch", "Net", 32)
    assert (trained.steps, trained.steps_source, trained.compiles) == (7, "optimizer", 7)


def stored(path: Path) -> dict[str, Any]:
    with Reader.open(path) as reader:
        (run,) = reader.runs()
    assert run.info is not None
    (entry,) = run.info["processes"]
    found: dict[str, Any] = entry
    return found

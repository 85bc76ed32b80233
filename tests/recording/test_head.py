"""What the head of a recording says of the job's processes."""

from __future__ import annotations

from pathlib import Path

from tests.render.shown import inside, outside
from whyidle.monitor.recording.head import Head
from whyidle.monitor.state import DATABASE
from whyidle.monitor.store import NewRun, Reader, Writer
from whyidle.monitor.summary import summarise


def test_a_process_is_named_by_its_start_too_and_only_when_it_stays(tmp_path: Path) -> None:
    path = tmp_path / DATABASE
    with Writer.open(path) as writer:
        run = writer.begin_run(NewRun(target_pid=4001))
        head = Head(writer, run)
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
    told = summarise(path, str(run))
    assert told.principal is not None
    assert told.principal.start_ticks == 1

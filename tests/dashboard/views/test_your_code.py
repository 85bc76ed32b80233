"""The user's own lines: where the main thread was, and what it did there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dashboard import chains
from tests.dashboard.gpu_jobs import Job, job
from whyidle.dashboard.views import time_range, your_code
from whyidle.dashboard.views.your_code import YourCode
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals import code_boxes
from whyidle.monitor.store import NewRun, Reader, Writer


@pytest.fixture
def made(tmp_path: Path) -> Job:
    return job(tmp_path / DATABASE, gpus=2, seconds=300)


@pytest.fixture
def reader(made: Job) -> Iterator[Reader]:
    with Reader.open(made.writer.path) as opened:
        yield opened


def shown(made: Job, reader: Reader, past: str = "all", place: int = 0) -> YourCode | None:
    made.end()
    run = reader.find("last")
    who = your_code.sampled(reader, run)[place]
    return your_code.of(reader, run, who, time_range.of(reader, run, past, 0))


def test_the_hottest_lines_come_first_with_what_the_thread_did(
    made: Job, reader: Reader, tmp_path: Path
) -> None:
    chains.keep(made, chains.packed(chains.samples(chains.script(tmp_path))))
    found = shown(made, reader)
    assert found is not None
    first, *others = found.lines
    assert code_boxes.named(first.line) == "train.py:13 in tokens"
    assert first.share == pytest.approx(0.4)
    assert 0.05 < first.error < 0.15
    model = next(each for each in others if each.line and each.line.line == 19)
    assert model.doing == pytest.approx({HostClass.FRAMEWORK: 0.18, HostClass.FRAMEWORK_WAIT: 0.02})
    assert code_boxes.named(found.lines[-1].line) == code_boxes.NO_CODE
    assert sum(each.share for each in found.lines) == pytest.approx(1)


def test_boxes_stand_below_their_callers_and_their_ends_add_up(
    made: Job, reader: Reader, tmp_path: Path
) -> None:
    chains.keep(made, chains.packed(chains.samples(chains.script(tmp_path))))
    found = shown(made, reader)
    assert found is not None
    boxes = {box.key: box for box in found.boxes}
    assert len(boxes) == len(found.boxes)
    assert sum(box.share for box in found.boxes if box.is_end) == pytest.approx(1)
    for box in found.boxes[1:]:
        below = [each.share for each in found.boxes if each.parent == box.key]
        assert sum(below) == pytest.approx(box.share) if below else box.is_end
    sort = next(box for box in found.boxes if box.line and box.line.line == 7)
    way = []
    while sort.parent:
        way.append(sort.line.line if sort.line else None)
        sort = boxes[sort.parent]
    assert way == [7, 18, 27, 30]
    assert (sort.words, sort.colour) == ("main thread", None)
    # A line that does two things has a box of each.
    model = next(box for box in found.boxes if box.line and box.line.line == 19)
    ends = [box for box in found.boxes if box.parent == model.key]
    assert [box.colour for box in ends] == [HostClass.FRAMEWORK, HostClass.FRAMEWORK_WAIT]


def test_a_chain_whose_outer_lines_were_cut_off_stands_where_others_show_it(
    made: Job, reader: Reader
) -> None:
    lines = [CodeLine("/job/deep.py", i, f"f{i}") for i in range(9)]
    samples = StackSamples()
    for chain in (lines[:5], lines[3:9]):
        samples.samples += 10
        samples.count(Chain(tuple(chain[::-1]), None), 10, 10)
    chains.keep(made, chains.packed(samples))
    found = shown(made, reader)
    assert found is not None
    root = found.boxes[0]
    assert [box.words for box in found.boxes if box.parent == root.key] == ["deep.py:0 in f0"]


def test_too_small_boxes_become_one_of_rarer_lines(made: Job, reader: Reader) -> None:
    samples = StackSamples()
    for i in range(1000):
        place = CodeLine("/job/wide.py", i, "f")
        count = 1000 if i == 0 else 1
        samples.samples += count
        samples.count(Chain((place, CodeLine("/job/wide.py", 2000, "main"))), count)
    chains.keep(made, samples.packed(1 << 20, most_rows=1000))
    found = shown(made, reader)
    assert found is not None
    assert len(found.boxes) < 10
    rare = next(box for box in found.boxes if box.words == code_boxes.RARER)
    assert rare.share == pytest.approx(0.5, abs=0.01)
    assert found.more_lines == 999


def test_each_process_has_its_own(made: Job, reader: Reader, tmp_path: Path) -> None:
    file = chains.script(tmp_path)
    chains.keep(made, chains.packed(chains.samples(file)))
    chains.keep(made, chains.packed(chains.samples(file, 3)), rank=1)
    names = [each.name for each in your_code.sampled(reader, reader.find("last"))]
    assert names == ["rank 0", "rank 1"]
    found = shown(made, reader, place=1)
    assert found is not None
    assert found.account.samples == 300


def test_only_the_samples_of_the_range_count(made: Job, reader: Reader, tmp_path: Path) -> None:
    data = chains.packed(chains.samples(chains.script(tmp_path)))
    for ago_s in (0, 30, 90, 200):
        chains.keep(made, data, ago_s=ago_s)
    found = shown(made, reader, "1m")
    assert found is not None
    assert found.account.samples == 200


def test_a_range_without_samples_says_so(made: Job, reader: Reader, tmp_path: Path) -> None:
    chains.keep(made, chains.packed(chains.samples(chains.script(tmp_path))), ago_s=90)
    assert shown(made, reader, "1m") is None
    why, _ = your_code.why_not(reader, reader.find("last"), anything=True)
    assert why == your_code.NONE_HERE


def test_a_long_run_is_read_in_part_and_evenly(
    made: Job, reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(your_code, "MOST_EVENTS", 10)
    data = chains.packed(chains.samples(chains.script(tmp_path)))
    for ago_s in range(0, 250, 10):
        chains.keep(made, data, ago_s=ago_s)
    found = shown(made, reader)
    assert found is not None
    assert found.account.samples == 1000
    assert "Read from 10 of 25 records, spread evenly over the range." in found.caveats


def test_samples_of_an_older_program_show_their_lines(made: Job, reader: Reader) -> None:
    lines = [
        {"file": "/job/old.py", "line": 3, "function": "f", "share": 0.6},
        {"file": "/job/old.py", "line": 9, "function": "g", "share": 0.2},
    ]
    leaf = {"file": "/lib/python3.11/json.py", "line": 1, "function": "loads", "share": 0.9}
    chains.keep(made, {"samples": 50, "lines": lines, "leaves": [leaf]})
    found = shown(made, reader)
    assert found is not None
    assert [each.line and each.line.line for each in found.lines] == [3, 9]
    assert found.lines[0].share == pytest.approx(0.75)
    assert any("of an older program" in each for each in found.caveats)
    assert any("do not say whether the thread waited" in each for each in found.caveats)


def test_without_an_agent_it_says_why_and_what_to_type(tmp_path: Path) -> None:
    with Writer.open(tmp_path / DATABASE) as writer:
        refusal = {"what": "ptrace is not allowed.", "next_step": "sudo monitor attach 7"}
        writer.end_run(writer.begin_run(NewRun(info={"not_entered": refusal})), "stopped")
        writer.end_run(writer.begin_run(NewRun(info={})), "stopped")
    with Reader.open(tmp_path / DATABASE) as reader:
        assert your_code.sampled(reader, reader.find("1")) == []
        why = your_code.why_not(reader, reader.find("1"), anything=False)
        assert why == ("ptrace is not allowed.", "sudo monitor attach 7")
        why = your_code.why_not(reader, reader.find("2"), anything=False)
        assert why == (your_code.NOT_SAMPLED, "monitor attach PID")

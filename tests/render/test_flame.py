"""Stacks for other tools: each format holds what the account says, and no name breaks it."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands.tracefiles import kineto
from tests.conftest import Monitor
from tests.render.test_hosts import HOSTILE
from tests.rules.windows import recorded
from whyidle.monitor.app.report import OF_STACKS, WRITERS
from whyidle.monitor.commands.report import FORMATS
from whyidle.monitor.core.errors import Exit
from whyidle.monitor.core.protobuf import BYTES, fields
from whyidle.monitor.diagnosis.diagnose import as_json, diagnose
from whyidle.monitor.render import flame
from whyidle.monitor.render.report import Report
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.account import account_of

RECORDED = ("metrics_on_host/before_torch", "environment_stepping/before_torch")


def made(name: str) -> Report:
    window = recorded(name)
    return Report.of(window, as_json(diagnose(window)), None)


def of_names(*names: str) -> Report:
    report, stacks = made(RECORDED[0]), StackSamples()
    for name in names:
        line = CodeLine(f"/job/{name}.py", 3, name)
        stacks.samples += 10
        stacks.count(Chain((line,), line), 10, 10, 0.0)
    return Report(
        report.answer, {}, report.repository, account_of(stacks), None, {}, report.seconds
    )


def sums(report: Report) -> Counter[tuple[str, ...]]:
    found: Counter[tuple[str, ...]] = Counter()
    for stack, ns in flame.stacks(report):
        found[tuple(frame.name for frame in stack)] += ns
    return found


@pytest.mark.parametrize("name", RECORDED)
def test_the_stacks_are_all_of_the_time_and_end_with_what_the_thread_does(name: str) -> None:
    report = made(name)
    found = sums(report)
    assert report.host is not None
    whole = sum(row.share for row in report.host.rows) * report.seconds * 1e9
    assert sum(found.values()) == pytest.approx(whole, rel=1e-6)
    assert all(stack[-1].startswith("[") for stack in found)


def test_the_command_offers_what_can_be_written() -> None:
    assert {*FORMATS} == {*WRITERS} | {*OF_STACKS}


def test_a_wait_is_as_wide_as_it_is_long() -> None:
    report, stacks = made(RECORDED[0]), StackSamples()
    line = CodeLine("/job/train.py", 3, "train")
    idle = CodeLine("/usr/lib/python3.11/threading.py", 9, "wait")
    stacks.samples = 40
    stacks.count(Chain((line,), idle), 30, 30, 30.0)
    stacks.count(Chain((line,), line), 10, 10, 0.0)
    waits = replace(report, host=account_of(stacks), seconds=4.0)
    found = sums(waits)
    assert found["train", "[waiting]"] == pytest.approx(3e9)
    assert sum(found.values()) == pytest.approx(4e9)


@pytest.mark.parametrize("name", RECORDED)
def test_every_format_says_the_same(name: str) -> None:
    report = made(name)
    wanted = sums(report)
    assert of_collapsed(flame.collapsed(report)) == pytest.approx(
        Counter({k: n / 1000 for k, n in wanted.items()}),
        abs=len(report.host.rows),  # type: ignore[union-attr]
    )
    assert of_speedscope(flame.speedscope(report)) == wanted
    assert of_pprof(flame.pprof(report)) == wanted


def test_no_name_breaks_a_line_or_adds_a_frame() -> None:
    report = of_names("a;b 7", "c\nd 5", HOSTILE)
    lines = flame.collapsed(report).splitlines()
    assert len(lines) == 3
    assert all(line.count(";") == 1 for line in lines)
    assert of_speedscope(flame.speedscope(report)) == sums(report)
    assert of_pprof(flame.pprof(report)) == sums(report)


def of_collapsed(text: str) -> Counter[tuple[str, ...]]:
    found: Counter[tuple[str, ...]] = Counter()
    for line in text.splitlines():
        stack, _, us = line.rpartition(" ")
        found[tuple(frame.partition(" (")[0] for frame in stack.split(";"))] += int(us)
    return found


def of_speedscope(text: str) -> Counter[tuple[str, ...]]:
    said = json.loads(text)
    names = [frame["name"] for frame in said["shared"]["frames"]]
    profile = said["profiles"][0]
    assert profile["endValue"] == sum(profile["weights"])
    found: Counter[tuple[str, ...]] = Counter()
    for stack, ns in zip(profile["samples"], profile["weights"], strict=True):
        found[tuple(names[n] for n in stack)] += ns
    return found


def of_pprof(packed: bytes) -> Counter[tuple[str, ...]]:
    """Read it by the numbers of the .proto file."""
    data = gzip.decompress(packed)

    def parts(begin: int, end: int, number: int) -> Iterator[tuple[int, int]]:
        for n, wire, value, stop in fields(data, begin, end):
            if n == number:
                yield (value, stop if wire == BYTES else value)

    def one(begin: int, end: int, number: int) -> int:
        return next(value for value, _ in parts(begin, end, number))

    whole = (0, len(data))
    texts = [data[a:b].decode() for a, b in parts(*whole, 6)]
    assert texts[0] == ""
    functions = {one(a, b, 1): texts[one(a, b, 2)] for a, b in parts(*whole, 5)}
    places = {one(a, b, 1): functions[one(*next(parts(a, b, 4)), 1)] for a, b in parts(*whole, 4)}
    found: Counter[tuple[str, ...]] = Counter()
    for a, b in parts(*whole, 2):
        stack = [places[value] for value, _ in parts(a, b, 1)]
        found[tuple(reversed(stack))] += one(a, b, 2)
    return found


@pytest.mark.parametrize("written", ["speedscope", "collapsed", "pprof"])
def test_a_trace_has_no_stacks(written: str, monitor: Monitor, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(json.dumps(kineto()))
    ran = monitor("report", "trace.json", "--format", written, cwd=tmp_path)
    assert ran.returncode == Exit.USAGE
    assert "has no stacks" in ran.stderr
    assert "--perfetto" in ran.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["trace.json"]

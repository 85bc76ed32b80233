"""Quotes in names, which PyTorch writes as they are: the names come out, no other event is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.traces.kineto_text import load, plain
from whyidle.monitor.traces.model import Trace

NAMES = [
    'the "first" step',
    '"',
    '""',
    'ends with "',
    '"quoted"',
    'a "b", "c" d',
    'back\\slash "and" quotes\\',
    "plain",
    'epoch "é"',
    '{"a": 1}',
    '["x", "y"]',
]
# As each version writes a line or more of an event.
NEW = """
  {{
    "ph": "X",
    "cat": "user_annotation",
    "name": "{name}",
    "pid": 7,
    "tid": 70,
    "ts": {at}.250,
    "dur": 1.500,
    "args": {{
      "External id": {at}, "Concrete Inputs": ["", "[1, 2]"], "finished": true
    }}
  }}"""
OLD = """
  {{
    "ph": "X", "cat": "user_annotation",
    "name": "{name}", "pid": 7, "tid": "thread 70 (python)",
    "ts": {at}.250, "dur": 1.500,
    "args": {{
      "External id": {at}
    }}
  }}"""
OLDEST = (
    '{{"name": "{name}", "ph": "X", "cat": "user_annotation", "ts": {at}.250, "dur": 1.500, '
    '"tid": 1, "pid": "CPU functions", "args": {{}}}}'
)
META = """
  {
    "ph": "M", "name": "process_name", "ts": 1, "pid": 7, "tid": 0,
    "args": {
      "name": "python"
    }
  }, {
    "ph": "X", "cat": "Trace", "ts": 1, "dur": 9,
    "pid": "Spans", "tid": "PyTorch Profiler",
    "name": "PyTorch Profiler (0)",
    "args": {
      "Op count": 0
    }
  }"""
FORMS = pytest.mark.parametrize("form", [NEW, OLD, OLDEST], ids=["new", "old", "oldest"])
CHUNKS = [*range(1, 30), 64, 100, 300, 1000, 1 << 20]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


def written(form: str, names: list[str], change: Callable[[str], str] = str) -> str:
    events = [form.format(name=change(name), at=at) for at, name in enumerate(names)]
    return '{"schemaVersion": 1, "traceEvents": [' + ",".join([META, *events]) + "\n]}"


def names(trace: Trace) -> list[str]:
    return [row[4] for row in plain(trace)["host"]]


def escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')


def said(number: int) -> str:
    what = f"{number} name{'s' * (number > 1)}"
    return f"{what} could be read by a guess only: quotes in it are not escaped."


@FORMS
def test_every_name_with_quotes_is_read_wherever_the_file_is_cut(path: Path, form: str) -> None:
    wanted = plain(load(path, written(form, NAMES, escaped)))
    assert wanted.pop("warnings") == []
    for chunk in CHUNKS:
        found = plain(load(path, written(form, NAMES), chunk))
        assert found.pop("warnings") == [said(10)], chunk
        assert found == wanted, chunk


@FORMS
def test_names_that_are_escaped_stay_as_they_are_beside_one_that_is_not(
    path: Path, form: str
) -> None:
    kept = ['say "hi"', 'a\\"b', 'C:\\x\\"']
    bare = [*map(escaped, kept), 'not "escaped"']
    for chunk in CHUNKS:
        trace = load(path, written(form, bare), chunk)
        assert names(trace) == [*kept, 'not "escaped"']
        assert trace.warnings == [said(1)]


@FORMS
def test_a_trace_in_which_each_event_has_quotes_is_read_to_its_end(path: Path, form: str) -> None:
    many = [f'step "{at}"' for at in range(3000)]
    trace = load(path, written(form, many), 1 << 16)
    assert names(trace) == many
    assert trace.warnings == ["3,000" + said(3000)[4:]]


def test_a_name_with_a_key_in_it_is_read_where_it_has_a_line_of_its_own(path: Path) -> None:
    odd = ['x", "pid": 3, "y', '"}, {"', 'x", "args": {"a": "b']
    trace = load(path, written(NEW, odd))
    assert names(trace) == odd
    assert trace.events == len(odd) + 2


def test_a_name_that_cannot_be_told_from_keys_costs_only_its_event(path: Path) -> None:
    text = written(OLD, ["before", 'x", "ph": {, "y": "', "after"])
    trace = load(path, text)
    assert {"before", "after"} <= set(names(trace))
    assert trace.warnings


HOSTILE = {
    "keys": '"name":' * 300_000,
    "names": '"name": "' * 200_000,
    "quotes": '"name": "' + '"' * 2_000_000,
    "lines": '"name": "x"", "pid": \n' * 100_000,
    "braces": '"name": "x" ' + "} " * 1_000_000,
    "blanks": '"name": "x"' + " " * 2_000_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_quotes_cost_little(path: Path, text: str) -> None:
    began = time.monotonic()
    trace = load(path, '[{"ph": "X",' + text + "}, {}]")
    assert time.monotonic() - began < 20
    assert trace.warnings

"""The parts of the reader of stacks, without a job."""

from __future__ import annotations

import pytest

from tests.attach.targets import running, target_of
from whyidle.monitor.attach.stack_reader import layout, lines
from whyidle.monitor.attach.stack_reader.layout import Lines
from whyidle.monitor.attach.stack_reader.owner import CodeOwner


def f(number: int) -> int:
    total = 0
    for each in range(number):
        if each % 2:
            total += each

    try:
        total //= number
    except ZeroDivisionError:
        return -1
    return total


def test_lines_are_those_that_python_says() -> None:
    code = f.__code__
    spans = lines.spans(Lines.LOCATIONS, code.co_linetable, code.co_firstlineno)
    for start, end, line in code.co_lines():
        for instruction in range(start, end, 2):
            found = lines.line_at(spans, instruction)
            assert line is None or found == line


def test_tables_of_older_pythons() -> None:
    # Line 10 for 6 bytes, 12 for 4, then back to 11.
    pairs = bytes([6, 2, 4, 255])
    spans = lines.spans(Lines.LNOTAB, pairs, 10)
    assert [lines.line_at(spans, at) for at in (0, 5, 6, 9, 10, 500)] == [10, 10, 12, 12, 11, 11]
    # No line for the first two bytes, 10 for 4, 15 for 2; from 3.10 on nothing is behind the end.
    spans = lines.spans(Lines.LINE_TABLE, bytes([2, 128, 4, 0, 2, 5]), 10)
    assert [lines.line_at(spans, at) for at in (0, 2, 4, 6, 8)] == [None, 10, 10, 15, None]


@pytest.mark.parametrize("table", [b"\xf0", b"\xf0\x40"])
def test_a_table_that_is_cut_off_is_seen(table: bytes) -> None:
    with pytest.raises(IndexError):
        lines.spans(Lines.LOCATIONS, table, 1)


def test_a_table_of_a_version_that_is_not_known_is_none() -> None:
    words = [0] * layout.TABLE_WORDS
    assert layout.version_in(words) is None
    words[0] = int.from_bytes(layout.COOKIE, "little")
    words[1] = 0x030F00F0
    assert layout.version_in(words) == (3, 15)
    assert layout.from_table(words) is None


def test_whose_code_it_is() -> None:
    with running() as job:
        target = target_of(job.pid)
        owner = CodeOwner(target)
    program = target.exe or ""
    theirs = [
        "<frozen importlib._bootstrap>",
        "<string>",
        "/v/lib/python3.11/site-packages/torch/nn.py",
        "/usr/lib/python3/dist-packages/numpy/core.py",
        "/usr/lib/python3.12/json/decoder.py",
        "/opt/lib64/python3.13t/ast.py",
        program.rpartition("/")[0] + "/torchrun",
    ]
    users = [
        "/home/u/train.py",
        "train.py",
        "/home/u/lib/data.py",
        "<stdin>",
        "<ipython-input-3-abc>",
    ]
    assert [file for file in theirs if owner.is_users(file)] == []
    assert [file for file in users if not owner.is_users(file)] == []

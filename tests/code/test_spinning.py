"""Lines that only ask again and again whether something has come."""

from __future__ import annotations

from pathlib import Path

import pytest

from whyidle.monitor.code.spinning import spins_at
from whyidle.monitor.runs.stacks import CodeLine

SOURCE = """
import os
from os import sched_yield

def wait(flags, number):
    while flags[0] < number:
        os.sched_yield()
    while not flags[1]:
        sched_yield()
        continue
    while not flags[2]:
        number = number + flags[3]
        os.sched_yield()
    while not flags[4]:
        pass
    os.sched_yield()
"""


# What works between two looks works; what never gives its core away may wait for a device.
@pytest.mark.parametrize(("line", "spins"), [(n, n in {6, 7, 8, 9, 10}) for n in range(5, 17)])
def test_only_a_loop_that_does_nothing_else_spins(tmp_path: Path, line: int, spins: bool) -> None:
    file = tmp_path / "ring.py"
    file.write_text(SOURCE)
    assert spins_at(CodeLine(str(file), line, "wait")) is spins


def test_a_source_that_cannot_be_read_says_nothing() -> None:
    assert not spins_at(CodeLine("/gone/ring.py", 5, "wait"))

"""Small rules of the agent: whose code a line is, and when it samples less."""

from __future__ import annotations

import json
import os
import sys
import time

import pytest

from whyidle.agents import python
from whyidle.agents.code_owner import MOST_KNOWN, CodeOwner
from whyidle.agents.context import ProbeContext
from whyidle.agents.python import BUDGET_SHARE, WINDOW_NS, OverheadMeter, PythonProbe
from whyidle.agents.timers import Timers

OVER = int(BUDGET_SHARE * WINDOW_NS) + 1


@pytest.mark.parametrize(
    ("file", "its"),
    [
        ("/home/ada/train.py", True),
        ("train.py", True),
        # Installed from its source folder.
        ("/home/ada/project/src/project/model.py", True),
        ("<stdin>", True),
        ("<ipython-input-3-0123456789ab>", True),
        ("<python-input-0>", True),
        ("/tmp/ipykernel_123/456.py", True),
        ("<string>", False),
        ("<frozen importlib._bootstrap>", False),
        ("<_whyidle_agent.core>", False),
        (json.__file__, False),
        (os.__file__, False),
        (f"{sys.prefix}/bin/torchrun", False),
        ("/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", False),
        ("/usr/lib/python3/dist-packages/numpy/core.py", False),
    ],
)
def test_whose_a_file_is(file: str, its: bool) -> None:
    assert CodeOwner().is_users(file) is its


def test_a_framework_may_lie_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    made = type(sys)("flax")
    made.__file__ = "/home/ada/flax/flax/__init__.py"
    monkeypatch.setitem(sys.modules, "flax", made)
    owner = CodeOwner()
    assert not owner.is_users("/home/ada/flax/flax/linen/module.py")
    assert owner.is_users("/home/ada/flax/examples/train.py")


def test_made_up_names_do_not_fill_the_memory() -> None:
    owner = CodeOwner()
    for n in range(MOST_KNOWN + 10):
        owner.is_users(f"/made/up/{n}.py")
    assert len(owner._known) <= MOST_KNOWN


class Clock:
    """CPU time that a test spends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0
        monkeypatch.setattr(python.time, "thread_time_ns", lambda: self.now)


def test_one_window_over_the_budget_is_let_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    found = OverheadMeter()
    said = []
    for used in (OVER, 0, OVER, OVER, OVER, 0):
        clock.now += used
        said.append(found.is_over())
    assert said == [False, False, False, True, False, False]


def test_a_new_thread_begins_at_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    clock.now = 100 * OVER
    found = OverheadMeter()
    for now in (OVER, 2 * OVER):
        clock.now = now
        last = found.is_over()
    assert last


def test_sampling_slows_down_and_ends_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    said: list[str] = []
    context = ProbeContext(Timers(), lambda _: None, said.append, 1)
    probe = PythonProbe(context)
    assert probe.begin() is None
    try:
        for _ in range(12):
            clock.now += OVER
            probe._check_overhead(time.monotonic_ns())
    finally:
        context.hooks.undo()
    assert [line.split(":")[0] for line in said] == [
        "2.5 stack samples a second",
        "no stack samples",
    ]

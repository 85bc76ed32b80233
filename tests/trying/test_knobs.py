"""The table of knobs: complete, and of one mind with the agent and the rules."""

from __future__ import annotations

import pytest

from whyidle.agents.knobs import KNOBS as OF_AGENT
from whyidle.monitor import rules
from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.trying.knobs import KNOBS, named, of_rule
from whyidle.monitor.trying.thread_settings import SETTINGS


def test_what_the_agent_turns_is_what_the_monitor_offers() -> None:
    assert {name for name, knob in KNOBS.items() if knob.is_inside} == set(OF_AGENT)
    assert {k.setting for k in KNOBS.values() if not k.is_inside} == set(SETTINGS)


def test_each_points_to_rules_that_there_are() -> None:
    there = rules.load()
    for knob in KNOBS.values():
        assert knob.rules, knob.name
        for rule in knob.rules:
            assert rule in there
            assert knob in of_rule(rule)


def test_each_says_what_it_needs_risks_and_how_it_is_undone() -> None:
    for knob in KNOBS.values():
        assert all((knob.does, knob.needs, knob.risk, knob.undone))


def test_what_changes_digits_is_marked() -> None:
    assert {name for name, knob in KNOBS.items() if knob.numerics} == {
        "torch.threads", "torch.matmul_precision", "cudnn.benchmark", "cudnn.tf32"
    }  # fmt: skip


def test_values_are_plain_and_checked() -> None:
    assert named("gc.threshold=700")[1] == 700
    assert named("gc.freeze")[1] is None
    assert named("cudnn.benchmark=off")[1] is False
    assert named("cpu.affinity=0")[1] == [0]
    for text in ("gc.freeze=1", "gc.threshold=many", "torch.threads", "helpers.nice=-5", "nothing",
                 "cudnn.benchmark=yes", "cpu.affinity=99999"):  # fmt: skip
        with pytest.raises(UsageProblem):
            named(text)

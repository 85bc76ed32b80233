"""The bars of several devices."""

from __future__ import annotations

from tests.render.trace_answers import ACCOUNT, answer, budget, device
from whyidle.monitor.render.trace import screen


def test_a_device_without_any_time_says_so() -> None:
    trace = answer(device(ACCOUNT), device(budget(), index="1"))
    assert "no work" in screen(trace, name="a.json", top=0)


def test_the_name_of_a_device_is_no_markup() -> None:
    for index in ("[/]", "[red]x", "[link=http://a]1"):
        trace = answer(device(ACCOUNT), device(ACCOUNT, index=index))
        assert index[:6] in screen(trace, name="a.json", top=0)

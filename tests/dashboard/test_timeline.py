"""A person goes through a trace: clicks on a gap, zooms, goes from step to step, sends a link."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.dashboard import timelines
from tests.dashboard.conftest import Served, Tab, serving

# The middle of the loader's gap of the slowest step, in nanoseconds of the trace.
GAP_NS = 215_000_000
SHOWN_MS = "c.layout.xaxis.range[1]"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return timelines.make(tmp_path_factory.mktemp("timeline"))


@pytest.fixture(scope="module")
def served(store: Path) -> Iterator[Served]:
    with serving(store) as running:
        yield running


@pytest.fixture
def tab(served: Served, new_tab: Callable[..., Tab]) -> Tab:
    found = new_tab()
    found.open(served.url("timeline"))
    found.drawn("lanes")
    return found


def place(tab: Tab, at_ms: float, line: int) -> tuple[float, float]:
    """Where on the page a moment of a line of the lanes is."""
    x, y = tab.chart(
        "lanes",
        f"(() => {{ const a = c._fullLayout, b = c.getBoundingClientRect();"
        f" return [b.x + a.xaxis._offset + a.xaxis.d2p({at_ms}),"
        f" b.y + a.yaxis._offset + a.yaxis.d2p(a.yaxis.tickvals[{line}])]; }})()",
    )
    return x, y


def drag(tab: Tab, start_ms: float, end_ms: float, line: int = 2) -> None:
    tab.page.mouse.move(*place(tab, start_ms, line))
    tab.page.mouse.down()
    tab.page.mouse.move(*place(tab, end_ms, line), steps=6)
    tab.page.mouse.up()


def wait_for_address(tab: Tab, part: str) -> None:
    tab.page.wait_for_url(re.compile(re.escape(part)), timeout=20_000)


def wait_for_lanes(tab: Tab, condition: str) -> None:
    """Wait until the lanes ``c`` are what the condition says."""
    tab.page.wait_for_function(
        "() => [...document.querySelectorAll('[data-whyidle=lanes]')]"
        f".some(c => c.layout && {condition})",
        timeout=20_000,
    )


def test_what_is_clicked_on_is_explained(tab: Tab) -> None:
    tab.page.mouse.click(*place(tab, GAP_NS / 1e6, 1))
    tab.page.wait_for_selector("text=did meanwhile")
    wait_for_lanes(tab, "c.layout.shapes.length === 1")
    words = tab.text()
    assert "idle: input" in words
    assert timelines.LOADER in words
    assert re.search(r"called cudaMemcpyAsync only 9\d\.\d ms into the gap", words)
    assert "train.py(12): train" in words
    # The sixth kernel of the first step has markup for a name.
    at = (timelines.LOADS[0] + 30 + timelines.COPY) / 1000 + 5.5 * 2.1
    # Plotly takes two clicks within 300 ms for a double one, wherever they are.
    tab.page.wait_for_timeout(350)
    tab.page.mouse.click(*place(tab, at, 2))
    tab.page.wait_for_selector("text=launched by")
    tab.page.get_by_test_id("stCode").get_by_text(timelines.HOSTILE).wait_for()
    assert tab.page.query_selector("img[src=x]") is None


def test_zooming_and_going_from_step_to_step(tab: Tab) -> None:
    pieces = "c.data.map(t => t.y.length).reduce((a, b) => a + b)"
    whole = tab.chart("lanes", pieces)
    drag(tab, 60, 90)
    wait_for_lanes(tab, "c.layout.xaxis.range[1] < 40")
    wait_for_address(tab, "window=")
    assert tab.chart("lanes", SHOWN_MS) == pytest.approx(30, abs=2)
    assert tab.chart("lanes", pieces) > whole / 5
    tab.page.mouse.dblclick(*place(tab, 15, 2))
    wait_for_lanes(tab, "c.layout.xaxis.range[1] > 400")
    assert "window=" not in tab.page.url
    tab.page.get_by_role("button", name="Slowest step").click()
    tab.page.wait_for_selector("text=step 3 of 5")
    wait_for_lanes(tab, "Math.abs(c.layout.xaxis.range[1] - 116.6) < 0.1")
    tab.page.get_by_role("button", name="Next step").click()
    tab.page.wait_for_selector("text=step 4 of 5")
    wait_for_lanes(tab, "Math.abs(c.layout.xaxis.range[1] - 86.6) < 0.1")


def test_a_link_shows_the_same_again(served: Served, new_tab: Callable[..., Tab]) -> None:
    tab = new_tab(color_scheme="dark")
    at = f"idle-0-{GAP_NS}-{GAP_NS}"
    url = served.url("timeline", trace=1, window="173000000-290000000", at=at, by="kind")
    tab.open(url)
    tab.page.wait_for_selector("text=did meanwhile")
    tab.drawn("lanes")
    assert tab.chart("lanes", SHOWN_MS) == pytest.approx(117)
    assert "data loader" in tab.chart("lanes", "c.data.map(t => t.name).join()")


def test_a_click_on_a_step_shows_that_step(tab: Tab) -> None:
    tab.page.mouse.click(*place(tab, 200, 0))
    tab.page.wait_for_selector("text=step 3 of 5")
    wait_for_lanes(tab, "Math.abs(c.layout.xaxis.range[1] - 116.6) < 0.1")
    assert "at=" not in tab.page.url


def test_a_click_beside_a_thin_gap_is_taken_for_one_on_it(
    served: Served, new_tab: Callable[..., Tab]
) -> None:
    tab = new_tab()
    tab.open(served.url("timeline", window="62000000-82000000"))
    tab.drawn("lanes")
    # The sixth gap ends at 11.73 ms of what is shown; then a kernel runs.
    tab.page.mouse.click(*place(tab, 11.85, 1))
    tab.page.wait_for_selector("text=Begins 73.6 ms into the trace")
    assert "idle-0-736" in tab.page.url

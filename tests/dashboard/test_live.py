"""The charts move, and what the reader did to them stays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.dashboard.conftest import Served, Tab, serving
from tests.dashboard.stores import Made, make

NEWEST = "c.data[0].x.at(-1)"
COLOUR = "c._fullLayout.font.color"
SHOWN = "c._fullLayout.xaxis.range.map(each => c._fullLayout.xaxis.r2l(each))"


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store that a recorder writes to once a second."""
    path = tmp_path_factory.mktemp("growing") / "whyidle.db"
    ready, over = threading.Event(), threading.Event()

    def record() -> None:
        made: Made = make(path, seconds=120, gpus=2)
        ready.set()
        while not over.wait(1.0):
            made.more(1)
        made.end()

    recorder = threading.Thread(target=record)
    recorder.start()
    assert ready.wait(30)
    yield path
    over.set()
    recorder.join()


@pytest.fixture(scope="module")
def served(growing: Path) -> Iterator[Served]:
    with serving(growing) as running:
        yield running


def zoom(tab: Tab, name: str) -> None:
    """Drag over a chart, as a reader does who wants to see more of it."""
    box = tab.page.locator(f"[data-whyidle={name}] .nsewdrag").first.bounding_box()
    middle = box["y"] + box["height"] / 2
    tab.page.mouse.move(box["x"] + 0.3 * box["width"], middle)
    tab.page.mouse.down()
    tab.page.mouse.move(box["x"] + 0.6 * box["width"], middle, steps=5)
    tab.page.mouse.up()


def test_the_data_moves_while_the_zoom_of_the_reader_stays(
    served: Served, new_tab: Callable[..., Tab]
) -> None:
    tab = new_tab()
    tab.open(served.url())
    tab.drawn("story")
    zoom(tab, "story")
    whole = tab.chart("story", "c.data[0].x.at(0)")
    zoomed = tab.chart("story", SHOWN)
    assert zoomed[0] > whole
    before, times = (
        tab.chart("story", NEWEST),
        int(tab.chart("story", "c.dataset.drawn")),
    )
    tab.drawn("story", times + 2)
    assert tab.chart("story", NEWEST) > before
    assert tab.chart("story", SHOWN) == zoomed


def test_what_the_reader_points_at_stays_explained(
    served: Served, new_tab: Callable[..., Tab]
) -> None:
    tab = new_tab()
    tab.open(served.url())
    tab.drawn("story")
    box = tab.page.locator("[data-whyidle=story] .nsewdrag").first.bounding_box()
    at = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    tab.page.mouse.move(at[0] - 5, at[1])
    tab.page.mouse.move(*at)
    label = tab.page.locator("[data-whyidle=story] .hoverlayer .legend")
    label.wait_for()
    first, times = label.text_content(), int(tab.chart("story", "c.dataset.drawn"))
    tab.drawn("story", times + 3)
    assert label.count() == 1
    # The time under the pointer is another one by now.
    assert label.text_content() != first


def test_another_range_is_shown_instead_of_the_old_zoom(
    served: Served, new_tab: Callable[..., Tab]
) -> None:
    tab = new_tab()
    tab.open(served.url(range="5m"))
    tab.drawn("story")
    zoom(tab, "story")
    zoomed = tab.chart("story", SHOWN)
    times = int(tab.chart("story", "c.dataset.drawn"))
    tab.page.get_by_text("1m", exact=True).click()
    tab.drawn("story", times + 2)
    start, end = tab.chart("story", SHOWN)
    assert [start, end] != zoomed
    # The range follows what comes in within a second.
    assert start < tab.chart("story", NEWEST) <= end + 1000


def test_a_chart_that_is_left_leaves_nothing_behind(
    served: Served, new_tab: Callable[..., Tab]
) -> None:
    tab = new_tab()
    tab.open(served.url())
    tab.drawn("story")
    tab.chart("story", "window.left = c")
    tab.page.get_by_role("link", name="Fix", exact=True).click()
    tab.page.wait_for_selector("text=Measure it")
    tab.page.wait_for_function("() => !window.left._fullLayout && !window.left.isConnected")


def test_no_request_leaves_the_machine(served: Served, new_tab: Callable[..., Tab]) -> None:
    tab = new_tab()
    tab.open(served.url())
    tab.drawn("story")
    ours = (f"http://127.0.0.1:{served.port}/", f"ws://127.0.0.1:{served.port}/", "data:", "blob:")
    assert [url for url in tab.asked if not url.startswith(ours)] == []


def test_in_a_dark_browser_the_charts_are_dark_too(
    served: Served, new_tab: Callable[..., Tab]
) -> None:
    texts = {}
    for scheme in ("light", "dark"):
        tab = new_tab(color_scheme=scheme)
        tab.open(served.url())
        tab.drawn("story")
        texts[scheme] = tab.chart("story", COLOUR)
    assert texts["light"] != texts["dark"]


def test_charts_follow_from_light_to_dark(tmp_path: Path, new_tab: Callable[..., Tab]) -> None:
    # When a run is over, nothing else redraws anything.
    store = tmp_path / "whyidle.db"
    make(store, seconds=60, gpus=2).end()
    with serving(store) as running:
        tab = new_tab(color_scheme="light")
        tab.open(running.url())
        tab.drawn("story")
        tab.settled()
        light = tab.chart("story", COLOUR)
        for scheme, is_light in (("dark", False), ("light", True)):
            tab.page.emulate_media(color_scheme=scheme)
            tab.page.wait_for_function(
                "([light, same]) => [...document.querySelectorAll('[data-whyidle=story]')]"
                ".some(c => (c._fullLayout.font.color === light) === same)",
                arg=[light, is_light],
            )

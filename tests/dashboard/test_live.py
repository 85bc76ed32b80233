"""The charts move, and what the reader did to them stays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.dashboard.conftest import Looked, Served, serving
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


def zoom(looked: Looked, name: str) -> None:
    """Drag over a chart, as a reader does who wants to see more of it."""
    box = looked.page.locator(f"[data-whyidle={name}] .nsewdrag").first.bounding_box()
    middle = box["y"] + box["height"] / 2
    looked.page.mouse.move(box["x"] + 0.3 * box["width"], middle)
    looked.page.mouse.down()
    looked.page.mouse.move(box["x"] + 0.6 * box["width"], middle, steps=5)
    looked.page.mouse.up()


def test_the_data_moves_while_the_zoom_of_the_reader_stays(
    served: Served, look: Callable[..., Looked]
) -> None:
    looked = look()
    looked.open(served.url())
    looked.drawn("activity")
    zoom(looked, "activity")
    whole = looked.chart("activity", "c.data[0].x.at(0)")
    zoomed = looked.chart("activity", SHOWN)
    assert zoomed[0] > whole
    before, times = (
        looked.chart("activity", NEWEST),
        int(looked.chart("activity", "c.dataset.drawn")),
    )
    looked.drawn("activity", times + 2)
    assert looked.chart("activity", NEWEST) > before
    assert looked.chart("activity", SHOWN) == zoomed


def test_what_the_reader_points_at_is_told_all_the_while(
    served: Served, look: Callable[..., Looked]
) -> None:
    looked = look()
    looked.open(served.url())
    looked.drawn("activity")
    box = looked.page.locator("[data-whyidle=activity] .nsewdrag").first.bounding_box()
    at = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    looked.page.mouse.move(at[0] - 5, at[1])
    looked.page.mouse.move(*at)
    label = looked.page.locator("[data-whyidle=activity] .hoverlayer .legend")
    label.wait_for()
    first, times = label.text_content(), int(looked.chart("activity", "c.dataset.drawn"))
    looked.drawn("activity", times + 3)
    assert label.count() == 1
    # The time under the pointer is another one by now.
    assert label.text_content() != first


def test_who_chooses_another_range_sees_that_and_not_the_old_zoom(
    served: Served, look: Callable[..., Looked]
) -> None:
    looked = look()
    looked.open(served.url(range="5m"))
    looked.drawn("activity")
    zoom(looked, "activity")
    zoomed = looked.chart("activity", SHOWN)
    times = int(looked.chart("activity", "c.dataset.drawn"))
    looked.page.get_by_text("1m", exact=True).click()
    looked.drawn("activity", times + 2)
    start, end = looked.chart("activity", SHOWN)
    assert [start, end] != zoomed
    assert start < looked.chart("activity", NEWEST) <= end


def test_a_chart_that_is_left_leaves_nothing_behind(
    served: Served, look: Callable[..., Looked]
) -> None:
    looked = look()
    looked.open(served.url())
    looked.drawn("activity")
    looked.chart("activity", "window.left = c")
    looked.page.get_by_role("link", name="Fix", exact=True).click()
    looked.page.wait_for_selector("text=Measure it")
    looked.page.wait_for_function("() => !window.left._fullLayout && !window.left.isConnected")


def test_no_request_leaves_the_machine(served: Served, look: Callable[..., Looked]) -> None:
    looked = look()
    looked.open(served.url())
    looked.drawn("activity")
    ours = (f"http://127.0.0.1:{served.port}/", f"ws://127.0.0.1:{served.port}/", "data:", "blob:")
    assert [url for url in looked.asked if not url.startswith(ours)] == []


def test_in_a_dark_browser_the_charts_are_dark_too(
    served: Served, look: Callable[..., Looked]
) -> None:
    texts = {}
    for scheme in ("light", "dark"):
        looked = look(color_scheme=scheme)
        looked.open(served.url())
        looked.drawn("activity")
        texts[scheme] = looked.chart("activity", COLOUR)
    assert texts["light"] != texts["dark"]


def test_whoever_goes_from_light_to_dark_takes_the_charts_along(
    tmp_path: Path, look: Callable[..., Looked]
) -> None:
    # Of a run that is over nothing else draws anything anew.
    store = tmp_path / "whyidle.db"
    make(store, seconds=60, gpus=2).end()
    with serving(store) as running:
        looked = look(color_scheme="light")
        looked.open(running.url())
        looked.drawn("activity")
        looked.settled()
        light = looked.chart("activity", COLOUR)
        for scheme, is_light in (("dark", False), ("light", True)):
            looked.page.emulate_media(color_scheme=scheme)
            looked.page.wait_for_function(
                "([light, same]) => [...document.querySelectorAll('[data-whyidle=activity]')]"
                ".some(c => (c._fullLayout.font.color === light) === same)",
                arg=[light, is_light],
            )

"""Whatever a job says stays a word: no page runs it, follows it or fetches it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.conftest import Served, Tab, serving
from tests.dashboard.hostile import MARK, make_hostile
from whyidle.dashboard.pages import PAGES

# What would be there if one of the words had been taken for markup: of HTML, markdown or Plotly.
_TAKEN = (
    "[data-evil], img[src='x'], [src*=evil], [href*=evil], [href^='javascript:'], svg a,"
    " .katex, [data-testid=stIconMaterial] [data-evil]"
)
_COUNT = f"document.querySelectorAll(`{_TAKEN}`).length"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    path = tmp_path_factory.mktemp("hostile") / "whyidle.db"
    return path, make_hostile(path)


@pytest.fixture(scope="module")
def served(store: tuple[Path, int]) -> Iterator[Served]:
    with serving(store[0]) as running:
        yield running


def check(tab: Tab) -> None:
    """Nothing ran, nothing was taken for markup, nobody else was asked."""
    assert tab.page.evaluate("window.ran") is None
    assert tab.page.evaluate(_COUNT) == 0
    assert not [url for url in tab.asked if "evil" in url]


@pytest.mark.parametrize("page", PAGES)
def test_no_page_takes_a_word_of_a_job_for_more(
    served: Served, store: tuple[Path, int], new_tab: Callable[..., Tab], page: str
) -> None:
    tab = new_tab()
    said: list[Any] = []
    tab.page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    # A recorded run on a CPU, and one with GPUs and the trace of one.
    for run in (1, store[1]):
        # The comparison is of two.
        tab.open(served.url(page, run=run, a=run, b=2), ".w-top .w-sub")
        tab.settled()
        # It is there, as a word.
        main = tab.page.inner_text("[data-testid=stMainBlockContainer]")
        assert MARK in main, f"run {run}: {main[:2000]}"
        assert "encountered an error" not in tab.text()
        # What a chart shows of a point.
        for chart in tab.page.locator(".nsewdrag").all()[:4]:
            chart.hover(force=True)
            tab.page.evaluate("new Promise(done => setTimeout(done, 50))")
        check(tab)
    # The names of all runs, as the picker has them.
    tab.page.locator("[data-testid=stSelectbox] input").first.click()
    tab.page.wait_for_selector("[role=option]")
    check(tab)
    assert said == []


def test_markup_would_be_noticed(served: Served, new_tab: Callable[..., Tab]) -> None:
    tab = new_tab()
    tab.open(served.url())
    tab.page.evaluate("document.body.insertAdjacentHTML('beforeend', '<b data-evil=1></b>')")
    assert tab.page.evaluate(_COUNT) == 1
    # And what is written into the page does not run.
    tab.page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=window.ran=1>')"
    )
    tab.page.wait_for_function("() => document.querySelector('img[src=x]').complete")
    assert tab.page.evaluate("window.ran") is None
    assert any("Content Security Policy" in each for each in tab.complaints)
    tab.complaints.clear()

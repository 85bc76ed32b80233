"""Whatever a job says stays a word: no page runs it, follows it or fetches it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.conftest import Looked, Served, serving
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


def check(looked: Looked) -> None:
    """Nothing ran, nothing was taken for markup, nobody else was asked."""
    assert looked.page.evaluate("window.ran") is None
    assert looked.page.evaluate(_COUNT) == 0
    assert not [url for url in looked.asked if "evil" in url]


@pytest.mark.parametrize("page", PAGES)
def test_no_page_takes_a_word_of_a_job_for_more(
    served: Served, store: tuple[Path, int], look: Callable[..., Looked], page: str
) -> None:
    looked = look()
    said: list[Any] = []
    looked.page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    # A recorded run on a CPU, and one with GPUs and the trace of one.
    for run in (1, store[1]):
        # The comparison is of two.
        looked.open(served.url(page, run=run, a=run, b=2), "[data-testid=stSidebar] .w-sub")
        looked.settled()
        # It is there, as a word.
        main = looked.page.inner_text("[data-testid=stMainBlockContainer]")
        assert MARK in main, f"run {run}: {main[:2000]}"
        assert "encountered an error" not in looked.text()
        # What a chart tells of a point.
        for chart in looked.page.locator(".nsewdrag").all()[:4]:
            chart.hover(force=True)
            looked.page.evaluate("new Promise(done => setTimeout(done, 50))")
        check(looked)
    # The names of all runs, as the picker has them.
    looked.page.locator("[data-testid=stSelectbox] input").first.click()
    looked.page.wait_for_selector("[role=option]")
    check(looked)
    assert said == []


def test_markup_would_be_noticed(served: Served, look: Callable[..., Looked]) -> None:
    looked = look()
    looked.open(served.url())
    looked.page.evaluate("document.body.insertAdjacentHTML('beforeend', '<b data-evil=1></b>')")
    assert looked.page.evaluate(_COUNT) == 1
    # And what is written into the page does not run.
    looked.page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=window.ran=1>')"
    )
    looked.page.wait_for_function("() => document.querySelector('img[src=x]').complete")
    assert looked.page.evaluate("window.ran") is None
    assert any("Content Security Policy" in each for each in looked.complaints)
    looked.complaints.clear()

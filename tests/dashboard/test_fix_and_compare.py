"""What a person does with a finding: see the code, change it, and see whether that helped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.dashboard.conftest import Served, Tab, serving
from tests.dashboard.pairs import make
from whyidle.dashboard import theme as colours

HERE = ".w-code .here"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    store = tmp_path_factory.mktemp("pair") / "whyidle.db"
    make(store)
    with serving(store) as running:
        yield running


def style(tab: Tab, selector: str, name: str) -> Any:
    return tab.page.eval_on_selector(selector, f"e => getComputedStyle(e)['{name}']")


def test_the_page_shows_the_line_that_costs_and_what_to_write_instead(
    served: Served, new_tab: Callable[..., Tab]
) -> None:
    tab = new_tab()
    tab.open(served.url("fix", run=1), HERE)
    assert "time.sleep(READ_SECONDS)" in tab.page.inner_text(HERE)
    tab.page.wait_for_selector("text=num_workers")
    assert style(tab, HERE, "backgroundColor") != style(tab, ".w-code", "backgroundColor")


def test_in_the_dark_the_code_is_light_on_dark(served: Served, new_tab: Callable[..., Tab]) -> None:
    tab = new_tab(color_scheme="dark")
    tab.open(served.url("fix", run=1), HERE)
    shades = [int(x) for x in re.findall(r"\d+", style(tab, HERE, "color"))[:3]]
    assert min(shades) > 180
    # What lies under it lets the page through.
    assert " / 0.0" in style(tab, ".w-code", "backgroundColor")


def test_from_a_finding_to_what_came_of_it_and_back(
    served: Served, new_tab: Callable[..., Tab]
) -> None:
    tab = new_tab()
    tab.open(served.url("fix", run=1), HERE)
    tab.page.click("text=Compare with run 2")
    tab.drawn("changes")
    for name in ("promise", "budgets", "steps"):
        tab.drawn(name)
    assert "B is 2.2" in tab.text()
    tab.page.click("a:has-text('input_starved')")
    tab.page.wait_for_selector(HERE)


def test_better_is_green_and_worse_is_red(served: Served, new_tab: Callable[..., Tab]) -> None:
    tab = new_tab()
    tab.open(served.url("compare", a=1, b=2, run=2))
    tab.drawn("changes")
    assert tab.chart("changes", "c.data[0].marker.color[0]") == colours.BETTER
    assert tab.chart("changes", "c.data[0].text[0]").startswith("-")
    drawn = int(tab.chart("changes", "c.dataset.drawn"))
    tab.page.click("button:has-text('Swap')")
    tab.drawn("changes", drawn + 1)
    assert tab.chart("changes", "c.data[0].marker.color[0]") == colours.WORSE
    assert tab.chart("changes", "c.data[0].text[0]").startswith("+")
    # The address is a link to what is seen.
    tab.page.wait_for_function("location.search.includes('a=2')")

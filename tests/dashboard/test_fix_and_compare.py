"""What a person does with a finding: see the code, change it, and see whether that helped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.dashboard.conftest import Looked, Served, serving
from tests.dashboard.pairs import make
from whyidle.dashboard import theme as colours

HERE = ".w-code .here"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    store = tmp_path_factory.mktemp("pair") / "whyidle.db"
    make(store)
    with serving(store) as running:
        yield running


def style(looked: Looked, selector: str, name: str) -> Any:
    return looked.page.eval_on_selector(selector, f"e => getComputedStyle(e)['{name}']")


def test_the_page_shows_the_line_that_costs_and_what_to_write_instead(
    served: Served, look: Callable[..., Looked]
) -> None:
    looked = look()
    looked.open(served.url("fix", run=1), HERE)
    assert "time.sleep(READ_SECONDS)" in looked.page.inner_text(HERE)
    looked.page.wait_for_selector("text=num_workers")
    assert style(looked, HERE, "backgroundColor") != style(looked, ".w-code", "backgroundColor")


def test_in_the_dark_the_code_is_light_on_dark(served: Served, look: Callable[..., Looked]) -> None:
    looked = look(color_scheme="dark")
    looked.open(served.url("fix", run=1), HERE)
    shades = [int(x) for x in re.findall(r"\d+", style(looked, HERE, "color"))[:3]]
    assert min(shades) > 180
    # What lies under it lets the page through.
    assert " / 0.0" in style(looked, ".w-code", "backgroundColor")


def test_from_a_finding_to_what_came_of_it_and_back(
    served: Served, look: Callable[..., Looked]
) -> None:
    looked = look()
    looked.open(served.url("fix", run=1), HERE)
    looked.page.click("text=Compare with run 2")
    looked.drawn("changes")
    for name in ("promise", "budgets", "steps"):
        looked.drawn(name)
    assert "B is 2.2" in looked.text()
    looked.page.click("a:has-text('input_starved')")
    looked.page.wait_for_selector(HERE)


def test_better_is_green_and_worse_is_red(served: Served, look: Callable[..., Looked]) -> None:
    looked = look()
    looked.open(served.url("compare", a=1, b=2, run=2))
    looked.drawn("changes")
    assert looked.chart("changes", "c.data[0].marker.color[0]") == colours.BETTER
    assert looked.chart("changes", "c.data[0].text[0]").startswith("-")
    drawn = int(looked.chart("changes", "c.dataset.drawn"))
    looked.page.click("button:has-text('Swap')")
    looked.drawn("changes", drawn + 1)
    assert looked.chart("changes", "c.data[0].marker.color[0]") == colours.WORSE
    assert looked.chart("changes", "c.data[0].text[0]").startswith("+")
    # The address is a link to what is seen.
    looked.page.wait_for_function("location.search.includes('a=2')")

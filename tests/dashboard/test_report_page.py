"""The page of a report in a browser: light, dark, narrow and printed; a click looks into a box."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.dashboard.conftest import Tab
from tests.render.test_report import evil_report, made
from whyidle.monitor.render import report_html


@pytest.fixture
def page(tmp_path: Path) -> str:
    path = tmp_path / "report.html"
    path.write_text(report_html.page(made("checkpoint_blocks/before_torch")))
    return path.as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [380, 1200])
def test_it_is_read_in_each_light_and_width(
    new_tab: Callable[..., Tab], page: str, tmp_path: Path, scheme: str, width: int
) -> None:
    tab = new_tab(color_scheme=scheme, viewport={"width": width, "height": 900})
    tab.open(page, "h1")
    body = "getComputedStyle(document.body)"
    back, ink = tab.page.evaluate(f"[{body}.backgroundColor, {body}.color]")
    dark = "rgb(16, 20, 24)"
    assert (back == dark) is (scheme == "dark")
    assert ink != back
    # Nothing is wider than the page, and nothing was asked for.
    assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.asked == [page]


def test_a_click_looks_into_a_box_and_escape_shows_all(
    new_tab: Callable[..., Tab], page: str
) -> None:
    tab = new_tab()
    tab.open(page, ".icicle button")
    widths = "[...document.querySelectorAll('.icicle button')].map(b => b.offsetWidth)"
    before = tab.page.evaluate(widths)
    least = min(range(len(before)), key=lambda place: before[place] if before[place] > 20 else 1e9)
    tab.page.locator(".icicle button").nth(least).click()
    after = tab.page.evaluate(widths)
    assert after[least] > 0.98 * before[0]
    tab.page.keyboard.press("Escape")
    assert tab.page.evaluate(widths) == before


def test_it_prints_whole_and_on_white(
    new_tab: Callable[..., Tab], page: str, tmp_path: Path
) -> None:
    tab = new_tab(color_scheme="dark")
    tab.open(page, "h1")
    tab.page.emulate_media(media="print")
    back = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert back == "rgb(255, 255, 255)"
    assert tab.page.pdf().startswith(b"%PDF")
    assert tab.page.evaluate("[...document.querySelectorAll('details')].every(d => d.open)")


def test_nothing_of_a_job_runs_in_it(new_tab: Callable[..., Tab], tmp_path: Path) -> None:
    path = tmp_path / "evil.html"
    text = report_html.page(evil_report())
    path.write_text(text.replace("<body>", "<body><script>window.ran = 1</script>", 1))
    tab = new_tab()
    tab.open(path.as_uri(), "h1")
    # Even a script that came into the page by a defect of ours would not run.
    assert tab.page.evaluate("window.ran === undefined")
    assert tab.asked == [path.as_uri()]
    refused = [each for each in tab.complaints if "Content Security Policy" in each]
    assert len(refused) == len(tab.complaints) == 1
    tab.complaints.clear()

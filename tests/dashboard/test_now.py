"""The pages Now and Memory & transfers as a person sees and uses them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.dashboard.conftest import Served, Tab, serving
from tests.dashboard.gpu_jobs import job

SHOWN = "c.layout.xaxis.range.join()"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("gpus") / "whyidle.db"
    job(path, gpus=8, seconds=300).end()
    with serving(path) as running:
        yield running


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("page", "charts"), [
    ("now", ["story"]),
    ("memory", ["memory", "power", "pool", "rss", "pcie", "nvlink", "readback", "calls"]),
])  # fmt: skip
def test_all_charts_are_drawn_without_complaints(
    served: Served, new_tab: Callable[..., Tab], page: str, charts: list[str], scheme: str
) -> None:
    tab = new_tab(color_scheme=scheme)
    tab.open(served.url(page))
    for chart in charts:
        tab.drawn(chart)


def test_zoom_to_a_peak_and_back(served: Served, new_tab: Callable[..., Tab]) -> None:
    tab = new_tab()
    tab.open(served.url())
    tab.drawn("story")
    whole = tab.chart("story", SHOWN)
    tab.page.get_by_text("Jump to the peak of").first.click()
    for wanted in (True, False):
        button = tab.page.get_by_role("radio", name="memory").or_(
            tab.page.get_by_role("button", name="memory", exact=True)
        )
        button.first.click()
        tab.page.wait_for_function(
            "([whole, wanted]) => { const c = [...document.querySelectorAll('[data-whyidle]')]"
            ".find(e => e.dataset.whyidle === 'story');"
            " return (c.layout.xaxis.range.join() !== whole) === wanted; }",
            arg=[whole, wanted],
            timeout=20_000,
        )
        assert ("peak=memory" in tab.page.url) == wanted


def test_the_top_finding_leads_to_how_it_is_fixed(
    served: Served, new_tab: Callable[..., Tab]
) -> None:
    tab = new_tab()
    tab.open(served.url())
    tab.page.get_by_text("Show the fix").click()
    tab.page.wait_for_url("**/fix?**")
    assert "run=1" in tab.page.url


def test_what_is_shown_can_be_had_as_a_table(
    served: Served, new_tab: Callable[..., Tab], tmp_path: Path
) -> None:
    tab = new_tab()
    tab.open(served.url(gpu="3"))
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name="Download CSV").click()
    download.value.save_as(tmp_path / "shown.csv")
    head = (tmp_path / "shown.csv").read_text().splitlines()[0]
    assert "GPU 3: memory used (bytes)" in head
    assert "GPU 4" not in head


def test_the_page_follows_a_run_that_ends_and_a_store_that_goes_and_comes_back(
    new_tab: Callable[..., Tab], tmp_path: Path
) -> None:
    path = tmp_path / "state" / "whyidle.db"
    gone, comes = job(path, gpus=1, seconds=60), "job ended: exit code 0"
    with serving(path) as running:
        tab = new_tab()
        tab.open(running.url())
        for file in path.parent.glob("whyidle.db*"):
            file.unlink()
        tab.page.get_by_text("Nothing is recorded yet").first.wait_for(timeout=30_000)
        again = job(path, gpus=1, seconds=60)
        tab.drawn("story")
        again.end()
        tab.page.get_by_text(comes).first.wait_for(timeout=30_000)
    gone.writer.close()

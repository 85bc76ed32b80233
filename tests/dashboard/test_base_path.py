"""Behind a proxy: each page stands below the path that is ours there, and asks for nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from tests.dashboard.conftest import Served, Tab, serving
from whyidle.dashboard import sample
from whyidle.dashboard.pages import PAGES

BASE = "gpu1/whyidle"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with sample.copied() as store, serving(store, "--base-path", f"/{BASE}") as running:
        yield running


def test_every_page_loads_below_the_path_and_complains_of_nothing(
    served: Served, new_tab: Callable[..., Tab]
) -> None:
    tab = new_tab()
    for page in PAGES:
        tab.open(served.url(f"{BASE}/{page}", run=3), wait="[data-drawn], .w-budget")
        tab.settled()
        assert urlsplit(tab.page.url).path.startswith(f"/{BASE}/")
        assert "token" not in tab.page.url
    ours = f"127.0.0.1:{served.port}/{BASE}/"
    asked = {url.partition("://")[2] for url in tab.asked if url.startswith(("http", "ws"))}
    assert f"{ours}_stcore/stream" in asked
    assert {url for url in asked if not url.startswith(ours)} == set()


def test_from_page_to_page_the_path_stays(served: Served, new_tab: Callable[..., Tab]) -> None:
    tab = new_tab()
    tab.open(served.url(f"{BASE}/", run=3))
    for page, (title, _) in list(PAGES.items())[1:]:
        tab.page.get_by_role("link", name=title, exact=True).first.click()
        tab.page.wait_for_url(f"**/{BASE}/{page}*")
        tab.settled()

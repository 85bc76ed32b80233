"""Behind a proxy: each page stands below the path that is ours there, and asks for nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from tests.dashboard.conftest import Looked, Served, serving
from whyidle.dashboard import sample
from whyidle.dashboard.pages import PAGES

BASE = "gpu1/whyidle"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with sample.copied() as store, serving(store, "--base-path", f"/{BASE}") as running:
        yield running


def test_every_page_loads_below_the_path_and_complains_of_nothing(
    served: Served, look: Callable[..., Looked]
) -> None:
    looked = look()
    for page in PAGES:
        looked.open(served.url(f"{BASE}/{page}", run=3), wait="[data-drawn], .w-budget")
        looked.settled()
        assert urlsplit(looked.page.url).path.startswith(f"/{BASE}/")
        assert "token" not in looked.page.url
    ours = f"127.0.0.1:{served.port}/{BASE}/"
    asked = {url.partition("://")[2] for url in looked.asked if url.startswith(("http", "ws"))}
    assert f"{ours}_stcore/stream" in asked
    assert {url for url in asked if not url.startswith(ours)} == set()


def test_from_page_to_page_the_path_stays(served: Served, look: Callable[..., Looked]) -> None:
    looked = look()
    looked.open(served.url(f"{BASE}/", run=3))
    for page, (title, _) in list(PAGES.items())[1:]:
        looked.page.get_by_role("link", name=title, exact=True).first.click()
        looked.page.wait_for_url(f"**/{BASE}/{page}*")
        looked.settled()

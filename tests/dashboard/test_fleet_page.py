"""The fleet page in a browser: there only where a server is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.dashboard.conftest import Tab, serving
from tests.fleet import misbehaving as bad
from tests.fleet.answers import whole
from whyidle.dashboard import sample
from whyidle.monitor.fleet.prometheus import URL


def test_from_a_run_to_the_fleet_and_back(
    new_tab: Callable[..., Tab], monkeypatch: pytest.MonkeyPatch
) -> None:
    with bad.serving(bad.Server(whole())) as server, sample.copied() as store:
        monkeypatch.setenv(URL, server.url)
        with serving(store) as running:
            tab = new_tab()
            tab.open(running.url("fleet"), wait=".w-grid")
            tab.page.get_by_text("node1:9400").first.wait_for(timeout=30_000)
            assert "GPU-hours lost" in tab.text()
            tab.page.get_by_role("link", name="Now", exact=True).first.click()
            tab.page.wait_for_selector(".st-key-run", timeout=30_000)
            tab.page.get_by_role("link", name="Fleet", exact=True).first.click()
            tab.page.get_by_text("node1:9400").first.wait_for(timeout=30_000)
            tab.settled()


def test_without_a_server_there_is_no_such_page(
    new_tab: Callable[..., Tab], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(URL, raising=False)
    with sample.copied() as store, serving(store) as running:
        tab = new_tab()
        tab.open(running.url())
        assert tab.page.get_by_role("link", name="Fleet", exact=True).count() == 0

"""Before anything is recorded: the page says what to type, and fills when a run begins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.dashboard.conftest import Tab, serving
from tests.dashboard.stores import make


def test_an_empty_page_fills_when_a_run_begins(tmp_path: Path, new_tab: Callable[..., Tab]) -> None:
    store = tmp_path / "state" / "whyidle.db"
    with serving(store) as running:
        tab = new_tab()
        tab.open(running.url(), "text=monitor attach PID")
        assert not store.parent.exists()
        made = make(store, seconds=60)
        tab.page.wait_for_selector("[data-drawn]", timeout=30_000)
        made.end()

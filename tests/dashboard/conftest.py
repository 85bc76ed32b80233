"""A dashboard that really runs, and a real browser that shows it."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

# Where the set-up could not bring them, what needs them is left out.
if find_spec("streamlit") is None or find_spec("playwright") is None:
    collect_ignore_glob = ["test_*.py"]

TOKEN = "a-token-of-tests"
STARTS_WITHIN = 60.0
# The pages that are open: they are closed before their server ends.
OPEN: list[Any] = []
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# A browser in a closed network, which must not contact anything on its own.
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
# Nothing runs at the server, and the text of the page has not changed since the last check.
STILL_MS = 200
_IS_STILL = """() => {
    const app = document.querySelector("[data-testid=stApp][data-test-script-state=notRunning]");
    const words = app && app.innerText;
    const isStill = words !== null && words === window.wordsOfTests;
    window.wordsOfTests = words;
    return isStill;
}"""


@dataclass
class Served:
    """A running dashboard."""

    port: int
    process: subprocess.Popen[str]
    token: str = TOKEN

    def url(self, path: str = "", **query: object) -> str:
        """Return the address of a page, with the token in it."""
        return f"http://127.0.0.1:{self.port}/{path}?{urlencode({**query, 'token': self.token})}"


@contextmanager
def serving(store: Path, *options: str) -> Iterator[Served]:
    """Run a dashboard over a store, at a port that it finds; the link says that it answers."""
    line = [sys.executable, "-m", "whyidle.dashboard", "--store", str(store), *options]
    environment = {**os.environ, "WHYIDLE_DASHBOARD_TOKEN": TOKEN}
    process = subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, text=True)
    running: Served | None = None
    try:
        running = Served(_port_of(process), process)
        yield running
    finally:
        for page in [each for each in OPEN if running and f":{running.port}/" in each.url]:
            page.close()
        process.terminate()
        process.communicate(timeout=20)


def _port_of(process: subprocess.Popen[str]) -> int:
    """Wait for the line with the link."""
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], STARTS_WITHIN)[0]:
        pytest.fail(f"the dashboard did not answer within {STARTS_WITHIN} s")
    said = process.stdout.readline()
    found = re.search(r"http://\S+", said)
    assert found is not None, f"the dashboard said no link, but {said!r}"
    port = urlsplit(found[0]).port
    assert port is not None
    return port


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The system's Chromium; without one its tests are left out."""
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  may not be there

    with sync_playwright() as api:
        found = api.chromium.launch(executable_path=path, args=FLAGS)
        yield found
        found.close()


@dataclass
class Tab:
    """A page in the browser, and everything that it complained about or asked for."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def open(self, url: str, wait: str = "[data-drawn]") -> None:
        """Open a page and wait until something of it is there."""
        self.page.goto(url)
        self.page.wait_for_selector(wait, timeout=30_000)

    def drawn(self, name: str, at_least: int = 1) -> None:
        """Wait until a chart was drawn so often."""
        self.page.wait_for_function(
            "([name, n]) => [...document.querySelectorAll(`[data-whyidle]`)].some("
            "e => e.dataset.whyidle === name && Number(e.dataset.drawn || 0) >= n)",
            arg=[name, at_least],
            timeout=30_000,
        )

    def settled(self) -> None:
        """Wait until the server has nothing more to draw, and the browser has drawn it.

        The server's end is known in the page before the last that it sent is there.
        """
        # What an earlier call saw says nothing of what was done to the page since.
        self.page.evaluate("delete window.wordsOfTests")
        self.page.wait_for_function(_IS_STILL, polling=STILL_MS, timeout=30_000)

    def chart(self, name: str, expression: str) -> Any:
        """Return what an expression over a chart's element ``c`` comes to."""
        return self.page.evaluate(
            f"(name) => {{ const c = [...document.querySelectorAll('[data-whyidle]')]"
            f".find(e => e.dataset.whyidle === name); return {expression}; }}",
            name,
        )

    def text(self) -> str:
        """Return all words of the page, once it is still."""
        self.settled()
        return str(self.page.inner_text("body"))


@pytest.fixture
def new_tab(browser: Any) -> Iterator[Callable[..., Tab]]:
    """Open pages; whatever the browser complains about fails the test at its end."""
    opened: list[tuple[Tab, Any]] = []

    def new(**options: Any) -> Tab:
        options = {"viewport": {"width": 1400, "height": 1000}, **options}
        context = browser.new_context(**options)
        tab = Tab(context.new_page())
        page = tab.page
        page.on("console", lambda m: m.type == "error" and tab.complaints.append(m.text))
        page.on("pageerror", lambda e: tab.complaints.append(str(e)))
        page.on("request", lambda r: tab.asked.append(r.url))
        page.on("websocket", lambda w: tab.asked.append(w.url))
        page.on("close", lambda _: OPEN.remove(page))
        OPEN.append(page)
        opened.append((tab, context))
        return tab

    yield new
    for tab, context in opened:
        context.close()
        assert tab.complaints == []

"""What a look at a long run costs: 24 h of 8 GPUs at 1 Hz, live, in a real browser.

Our page *Now* over the whole day is drawn anew again and again. Over a day it moves on only every
43 seconds, a quarter of what one of its points stands for, and costs next to nothing until then; so
here its time goes 50 times as fast, and each refresh has all charts drawn anew. For each it prints
what the server spent (CPU time of its process, by /proc) and what the browser's main thread spent
(by Chromium's own count of task time). Beside it: four plain ``st.plotly_chart`` over the raw
figures of one GPU of that day, drawn anew the same way. Both run one after the other over the same
store, while a recorder appends as many ticks as that time has seconds. Then the time from a click
on the link to the last chart, once the server and the browser's cache are warm; and what both hold
in memory after 50 and after all refreshes.

Run: .venv/bin/python benchmarks/dashboard.py [--refreshes 500] [--json]
"""

from __future__ import annotations

import argparse
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.results import Result, print_results  # noqa: E402  found by the line above
from tests.dashboard.conftest import BROWSERS, FLAGS  # noqa: E402  likewise
from tests.dashboard.stores import make  # noqa: E402  likewise

BAR_MS, BAR_FIRST_S = 200.0, 2.0
DAY, GPUS = 86_400, 8
EVERY_S = 1.0
SETTLED = 50
PATIENCE_S = 120.0
PEER_REFRESHES = 5
SPEED = 50
OURS = f"""
import sys, time, types
from pathlib import Path
from whyidle.dashboard import endpoint, frame, serve, settings
began = time.time_ns()
fast = lambda: began + (time.time_ns() - began) * {SPEED}
frame.time = types.SimpleNamespace(
    time_ns=fast, time=time.time, strftime=time.strftime, localtime=time.localtime)
settings.use(settings.Settings(store=Path(sys.argv[1]), refresh_seconds=float(sys.argv[3])))
serve.serve(endpoint.Endpoint(port=int(sys.argv[2])))
"""
# Four charts as a first try has them: every raw figure of one GPU.
PEER = """
import sqlite3, sys, time
import plotly.graph_objects as go
import streamlit as st
st.set_page_config(layout="wide")
NAMES = ("utilisation_ratio", "sm_activity_ratio", "memory_used_bytes", "power_watts")
@st.fragment(run_every=float(sys.argv[2]))
def live():
    rows = sqlite3.connect(sys.argv[1]).execute(
        f"SELECT at >> 20, {', '.join(NAMES)} FROM gpu_sample WHERE at & 1048575 = ? ORDER BY at",
        (int(sys.argv[3]),)).fetchall()
    times = [row[0] for row in rows]
    for i, name in enumerate(NAMES):
        figure = go.Figure(go.Scatter(x=times, y=[row[i + 1] for row in rows], mode="lines"))
        st.plotly_chart(figure, key=name)
    st.html(f'<div data-refreshed="{time.time()}"></div>')
live()
"""
DRAWN = "[...document.querySelectorAll('[data-drawn]')].map(e => Number(e.dataset.drawn))"


def port() -> int:
    """Return a free one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
        return found


@contextmanager
def running(line: list[str], where: int) -> Iterator[psutil.Process]:
    """Run a server until it is no longer needed."""
    child = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{where}/", timeout=5).close()
                break
            except urllib.error.HTTPError:
                break
            except OSError:
                assert child.poll() is None, "the server ended"
                time.sleep(0.1)
        yield psutil.Process(child.pid)
    finally:
        child.terminate()
        child.wait(30)


class Browser:
    """A page, and what Chromium says of it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._devtools = page.context.new_cdp_session(page)
        self._devtools.send("Performance.enable")

    def task_s(self) -> float:
        """Return how long the page's main thread has worked."""
        return self._metrics()["TaskDuration"]

    def heap_mb(self) -> float:
        """Return what its scripts hold after a collection."""
        self._devtools.send("HeapProfiler.collectGarbage")
        return self._metrics()["JSHeapUsedSize"] / 1e6

    def _metrics(self) -> dict[str, float]:
        counters = self._devtools.send("Performance.getMetrics")["metrics"]
        return {each["name"]: each["value"] for each in counters}


def until(page: Page, expression: str, *, every_ms: int = 20) -> None:
    """Wait until something holds; the page's own policy lets nothing be evaluated in it."""
    end = time.monotonic() + PATIENCE_S
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"never came true: {expression}"
        page.wait_for_timeout(every_ms)


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU time of a server."""
    times = process.cpu_times()
    return times.user + times.system


def drawn(browser: Browser) -> list[int]:
    """Return how often each chart was drawn."""
    return [int(n) for n in browser.page.evaluate(DRAWN)]


def ours(api: Any, path: str, store: Path, refreshes: int) -> dict[str, Any]:
    """Measure our page."""
    where = port()
    line = [sys.executable, "-c", OURS, str(store), str(where), str(EVERY_S)]
    with tempfile.TemporaryDirectory() as profile, running(line, where) as server:
        # With a profile, as everybody's browser has one: what it has compiled lies there.
        context = api.chromium.launch_persistent_context(
            profile, executable_path=path, args=FLAGS, viewport={"width": 1400, "height": 1000}
        )
        url = f"http://127.0.0.1:{where}/?range=24h"
        charts, first, page = 0, [], context.new_page()
        for _ in range(6):
            began = time.monotonic()
            page.goto(url)
            until(page, f"{DRAWN}.length >= {max(1, charts)}")
            first.append(time.monotonic() - began)
            page.wait_for_timeout(1500)
            charts = len(page.evaluate(DRAWN))
            if len(first) < 6:
                page.close()
                page = context.new_page()
        browser = Browser(page)
        took = _refreshes(browser, server, refreshes)
        points = page.evaluate(
            "[...document.querySelectorAll('[data-drawn]')].map("
            "e => Math.max(...e.data.map(t => t.x.length)))"
        )
        context.close()
    return {
        **took, "charts": charts, "most_points": max(points),
        "first_page_ever_s": round(first[0], 2),
        "first_page_s": round(statistics.median(first[1:]), 2),
    }  # fmt: skip


def _refreshes(browser: Browser, server: psutil.Process, refreshes: int) -> dict[str, Any]:
    """Let it refresh, and return what each took."""
    costs: list[tuple[float, float]] = []
    memory: list[tuple[float, float]] = []
    done = min(drawn(browser))
    while len(costs) < refreshes:
        before = browser.task_s(), cpu_s(server)
        target = done + 10
        until(browser.page, f"Math.min(...{DRAWN}) >= {target}", every_ms=200)
        now = min(drawn(browser))
        many = now - done
        # What waiting itself costs the page is a poll of a few elements: under a millisecond.
        costs += [
            ((browser.task_s() - before[0]) / many, (cpu_s(server) - before[1]) / many)
        ] * many
        done = now
        if not memory and len(costs) >= SETTLED:
            memory.append((server.memory_info().rss / 1e6, browser.heap_mb()))
    memory.append((server.memory_info().rss / 1e6, browser.heap_mb()))
    in_browser = statistics.median(cost[0] for cost in costs) * 1e3
    in_server = statistics.median(cost[1] for cost in costs) * 1e3
    return {
        "refreshes": len(costs),
        "browser_ms": round(in_browser, 1),
        "server_ms": round(in_server, 1),
        "refresh_ms": round(in_browser + in_server, 1),
        "server_mb": [round(rss, 1) for rss, _ in memory],
        "browser_heap_mb": [round(heap, 1) for _, heap in memory],
    }


def peer(api: Any, path: str, store: Path, gpu: int) -> dict[str, Any]:
    """Measure plain charts of raw figures."""
    where = port()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "raw.py"
        script.write_text(PEER)
        line = [
            sys.executable, "-m", "streamlit", "run", str(script),
            "--server.port", str(where), "--server.address", "127.0.0.1",
            "--server.headless", "true", "--browser.gatherUsageStats", "false",
            "--server.fileWatcherType", "none", "--", str(store), str(EVERY_S), str(gpu),
        ]  # fmt: skip
        with running(line, where) as server:
            chromium = api.chromium.launch(executable_path=path, args=FLAGS)
            page = chromium.new_context(viewport={"width": 1400, "height": 1000}).new_page()
            page.goto(f"http://127.0.0.1:{where}/")
            seen = "document.querySelector('[data-refreshed]')?.dataset.refreshed"
            plots = "document.querySelectorAll('.js-plotly-plot .scatterlayer').length >= 4"
            until(page, f"{seen} && {plots}")
            browser, costs = Browser(page), []
            for _ in range(PEER_REFRESHES):
                last = page.evaluate(seen)
                before = browser.task_s(), cpu_s(server)
                until(page, f"{seen} !== '{last}'", every_ms=500)
                costs.append((browser.task_s() - before[0], cpu_s(server) - before[1]))
            chromium.close()
    in_browser, in_server = (statistics.median(c[i] for c in costs) * 1e3 for i in (0, 1))
    return {
        "refreshes": len(costs), "browser_ms": round(in_browser, 1),
        "server_ms": round(in_server, 1), "refresh_ms": round(in_browser + in_server, 1),
    }  # fmt: skip


def measured(refreshes: int) -> dict[str, Any]:
    """Measure both over one store."""
    import shutil  # noqa: PLC0415

    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        sys.exit("No Chromium here: apt-get install chromium")
    over, found = threading.Event(), {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as api:
        store = Path(folder) / "whyidle.db"
        ready = threading.Event()
        first: list[int] = []

        def record() -> None:
            made = make(store, seconds=DAY, gpus=GPUS)
            first.append(made.gpus[0])
            ready.set()
            while not over.wait(1.0):
                made.more(SPEED)
            made.end()

        recorder = threading.Thread(target=record)
        recorder.start()
        try:
            ready.wait()
            print("the day is recorded; measuring", file=sys.stderr)
            found["ours"] = ours(api, path, store, refreshes)
            found["raw"] = peer(api, path, store, first[0])
        finally:
            over.set()
            recorder.join()
    return found


def results(found: dict[str, Any]) -> list[Result]:
    """Return the figures that are quoted."""
    mine, raw = found["ours"], found["raw"]
    after, at_end = ([f"{name} after {n}" for name in ("server", "page's scripts")]
                     for n in (SETTLED, mine["refreshes"]))  # fmt: skip
    memory = [
        Result(f"memory, {what} refreshes", value, "MB")
        for names, place in ((after, 0), (at_end, -1))
        for what, value in zip(
            names, (mine["server_mb"][place], mine["browser_heap_mb"][place]), strict=True
        )
    ]
    return [
        Result("Now, 24 h x 8 GPUs: a refresh of all", mine["refresh_ms"], "ms", BAR_MS),
        Result("of that in the server", mine["server_ms"], "ms"),
        Result("of that in the browser", mine["browser_ms"], "ms"),
        Result("4 x st.plotly_chart, raw, of one GPU", raw["refresh_ms"], "ms"),
        Result("first page, warm", mine["first_page_s"], "s", BAR_FIRST_S),
        Result("first page, a new browser and a new server", mine["first_page_ever_s"], "s"),
        *memory,
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--refreshes", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    print_results(results(measured(options.refreshes)), as_json=options.json)


if __name__ == "__main__":
    main()

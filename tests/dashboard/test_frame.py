"""What stands around the pages, in a browser: the run in the address, and what becomes of it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.conftest import command
from tests.dashboard.conftest import Served, Tab, serving
from tests.dashboard.gpu_jobs import job
from whyidle.dashboard.pages import PAGES
from whyidle.monitor.core.paths import DATABASE

SOON = 15_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("frame") / "whyidle.db"
    for name in ("x_y_z", "second", "newest"):
        job(path, gpus=1, seconds=30, label=name).end()
    with serving(path) as running:
        yield running


def gone(what: Any) -> None:
    """Wait until something is no longer on the page."""
    what.wait_for(timeout=SOON, state="detached")


def shows(tab: Tab, words: str) -> None:
    """Wait until the picker's entry has these words."""
    tab.page.wait_for_function(
        "words => (document.querySelector('.st-key-run input')?.value || '').includes(words)",
        arg=words,
        timeout=SOON,
    )


def pick(tab: Tab, words: str) -> None:
    tab.page.locator(".st-key-run input").click()
    tab.page.get_by_role("option").filter(has_text=words).click()
    shows(tab, words)
    tab.settled()


def go(tab: Tab, page: str) -> None:
    tab.page.get_by_role("link", name=PAGES[page][0], exact=True).first.click()
    tab.page.wait_for_url(f"**/{page}?*", timeout=SOON)
    tab.settled()


@pytest.mark.parametrize(("run", "name"), [("1", "x_y_z"), ("3", "newest")])
def test_the_address_of_each_page_opens_the_same_run_again(
    served: Served, new_tab: Callable[..., Tab], run: str, name: str
) -> None:
    tab = new_tab()
    tab.open(served.url(range="1m"))
    pick(tab, name)
    for page in ("code", "memory", "timeline", "fix", "compare"):
        before = tab.page.evaluate("history.length")
        way = tab.page.get_by_role("link", name=PAGES[page][0], exact=True).first
        assert parse_qs(urlsplit(way.get_attribute("href")).query)["run"] == [run]
        go(tab, page)
        shows(tab, name)
        said = parse_qs(urlsplit(tab.page.url).query)
        assert (said["run"], said["range"]) == ([run], ["1m"])
        # The pair that is compared is written there too.
        assert tab.page.evaluate("history.length") == before + 1 or page == "compare"
    copied = tab.page.url
    again = new_tab()
    again.open(served.url(), wait=".st-key-run")
    again.open(copied, wait=".st-key-run")
    shows(again, name)
    assert again.page.url == copied


@pytest.mark.parametrize(("run", "name"), [("last", "newest"), ("second", "second")])
def test_a_link_may_name_a_run_as_the_commands_do(
    served: Served, new_tab: Callable[..., Tab], run: str, name: str
) -> None:
    tab = new_tab()
    tab.open(served.url(run=run))
    shows(tab, name)
    assert "There is no recording" not in tab.text()


def test_going_back_leads_to_the_run_of_before(served: Served, new_tab: Callable[..., Tab]) -> None:
    tab = new_tab()
    tab.open(served.url(run=1))
    shows(tab, "x_y_z")
    pick(tab, "second")
    tab.page.wait_for_url("**run=2*")
    tab.page.go_back()
    shows(tab, "x_y_z")
    assert "run=1" in tab.page.url


@contextmanager
def recording(state: Path) -> Iterator[subprocess.Popen[str]]:
    """Record a job that does nothing, with a recorder of its own that can be asked and killed."""
    job = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True)
    arguments = command("attach", job.pid, "--observe", "--label", "first")
    recorder = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    try:
        assert recorder.stdout is not None
        recorder.stdout.readline()
        yield recorder
    finally:
        for process in (recorder, job):
            process.kill()
            process.communicate()


def test_a_new_label_is_confirmed_and_shown_and_the_run_then_ends(
    state: Path, new_tab: Callable[..., Tab]
) -> None:
    with recording(state) as recorder, serving(state / DATABASE) as running:
        tab = new_tab()
        tab.open(running.url(), wait=".st-key-run")
        shows(tab, "first")
        shows(tab, "recording")
        tab.page.get_by_text("Label this run").click()
        tab.page.get_by_label("Label", exact=True).fill("x_y_z")
        tab.page.get_by_role("button", name="Save").click()
        tab.page.get_by_text("Saved: the run is now called x_y_z.").wait_for(timeout=SOON)
        shows(tab, "1 · x_y_z · ")
        recorder.send_signal(signal.SIGINT)
        shows(tab, "stopped by the user")
        tab.page.get_by_text("It is no longer recorded").wait_for(timeout=SOON, state="attached")
        gone(tab.page.get_by_text("Pause", exact=True))
        assert "There is no recording" not in tab.text()
        assert "run=1" in tab.page.url


def test_a_killed_recorder_is_shown_also_on_a_page_that_was_stopped(
    state: Path, new_tab: Callable[..., Tab]
) -> None:
    with recording(state) as recorder, serving(state / DATABASE) as running:
        tab = new_tab()
        tab.open(running.url(), wait=".st-key-run")
        tab.page.get_by_text("Pause", exact=True).click()
        tab.settled()
        recorder.kill()
        recorder.wait()
        tab.page.get_by_text("Its recorder was killed. It was last heard").wait_for(timeout=SOON)
        shows(tab, "its recorder was killed")
        gone(tab.page.get_by_text("Pause", exact=True))
        gone(tab.page.get_by_role("button", name="trace"))


def test_while_it_is_recorded_time_goes_on_and_silence_is_counted(
    state: Path, new_tab: Callable[..., Tab]
) -> None:
    with recording(state) as recorder, serving(state / DATABASE) as running:
        tab = new_tab()
        tab.open(running.url(), wait=".st-key-run")
        recorder.send_signal(signal.SIGSTOP)
        tab.page.get_by_text("The recorder has been silent for").wait_for(timeout=SOON)
        # Trouble is seen before anything is opened, and what was opened stays open.
        tab.page.locator(".w-amber").wait_for(timeout=SOON)
        tab.page.locator(".w-health summary").click()
        tab.page.get_by_text(re.compile("[6-9] s ago")).first.wait_for(timeout=SOON)
        said = tab.page.locator(".w-top > .w-sub").first.inner_text()
        tab.page.wait_for_function(
            "said => !document.body.innerText.includes(said)", arg=said, timeout=SOON
        )

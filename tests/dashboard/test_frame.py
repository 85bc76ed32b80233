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
from tests.dashboard.conftest import Looked, Served, serving
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


def shows(looked: Looked, words: str) -> None:
    """Wait until the picker's entry has these words."""
    looked.page.wait_for_function(
        "words => (document.querySelector('.st-key-run input')?.value || '').includes(words)",
        arg=words,
        timeout=SOON,
    )


def pick(looked: Looked, words: str) -> None:
    looked.page.locator(".st-key-run input").click()
    looked.page.get_by_role("option").filter(has_text=words).click()
    shows(looked, words)
    looked.settled()


def go(looked: Looked, page: str) -> None:
    looked.page.get_by_role("link", name=PAGES[page][0], exact=True).first.click()
    looked.page.wait_for_url(f"**/{page}?*", timeout=SOON)
    looked.settled()


@pytest.mark.parametrize(("run", "name"), [("1", "x_y_z"), ("3", "newest")])
def test_the_address_of_each_page_opens_the_same_run_again(
    served: Served, look: Callable[..., Looked], run: str, name: str
) -> None:
    looked = look()
    looked.open(served.url(range="1m"))
    pick(looked, name)
    for page in ("memory", "timeline", "fix", "compare"):
        before = looked.page.evaluate("history.length")
        way = looked.page.get_by_role("link", name=PAGES[page][0], exact=True).first
        assert parse_qs(urlsplit(way.get_attribute("href")).query)["run"] == [run]
        go(looked, page)
        shows(looked, name)
        said = parse_qs(urlsplit(looked.page.url).query)
        assert (said["run"], said["range"]) == ([run], ["1m"])
        # The pair that is compared is written there too.
        assert looked.page.evaluate("history.length") == before + 1 or page == "compare"
    copied = looked.page.url
    again = look()
    again.open(served.url(), wait=".st-key-run")
    again.open(copied, wait=".st-key-run")
    shows(again, name)
    assert again.page.url == copied


@pytest.mark.parametrize(("run", "name"), [("last", "newest"), ("second", "second")])
def test_a_link_may_name_a_run_as_the_commands_do(
    served: Served, look: Callable[..., Looked], run: str, name: str
) -> None:
    looked = look()
    looked.open(served.url(run=run))
    shows(looked, name)
    assert "There is no recording" not in looked.text()


def test_going_back_leads_to_the_run_of_before(served: Served, look: Callable[..., Looked]) -> None:
    looked = look()
    looked.open(served.url(run=1))
    shows(looked, "x_y_z")
    pick(looked, "second")
    looked.page.wait_for_url("**run=2*")
    looked.page.go_back()
    shows(looked, "x_y_z")
    assert "run=1" in looked.page.url


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
    state: Path, look: Callable[..., Looked]
) -> None:
    with recording(state) as recorder, serving(state / DATABASE) as running:
        looked = look()
        looked.open(running.url(), wait=".st-key-run")
        shows(looked, "first")
        shows(looked, "recording")
        looked.page.get_by_text("Label this run").click()
        looked.page.get_by_label("Label", exact=True).fill("x_y_z")
        looked.page.get_by_role("button", name="Save").click()
        looked.page.get_by_text("Saved: the run is now called x_y_z.").wait_for(timeout=SOON)
        shows(looked, "1 · x_y_z · ")
        recorder.send_signal(signal.SIGINT)
        shows(looked, "stopped by the user")
        looked.page.get_by_text("It is no longer recorded").wait_for(timeout=SOON, state="attached")
        gone(looked.page.get_by_text("Pause", exact=True))
        assert "There is no recording" not in looked.text()
        assert "run=1" in looked.page.url


def test_a_recorder_that_is_killed_is_told_also_on_a_page_that_was_stopped(
    state: Path, look: Callable[..., Looked]
) -> None:
    with recording(state) as recorder, serving(state / DATABASE) as running:
        looked = look()
        looked.open(running.url(), wait=".st-key-run")
        looked.page.get_by_text("Pause", exact=True).click()
        looked.settled()
        recorder.kill()
        recorder.wait()
        looked.page.get_by_text("Its recorder was killed. It was last heard").wait_for(timeout=SOON)
        shows(looked, "its recorder was killed")
        gone(looked.page.get_by_text("Pause", exact=True))
        gone(looked.page.get_by_role("button", name="trace"))


def test_while_it_is_recorded_time_goes_on_and_silence_is_counted(
    state: Path, look: Callable[..., Looked]
) -> None:
    with recording(state) as recorder, serving(state / DATABASE) as running:
        looked = look()
        looked.open(running.url(), wait=".st-key-run")
        recorder.send_signal(signal.SIGSTOP)
        looked.page.get_by_text("The recorder has been silent for").wait_for(timeout=SOON)
        looked.page.get_by_text(re.compile("[6-9] s ago")).first.wait_for(timeout=SOON)
        said = looked.page.get_by_text("recording · ").first.inner_text()
        looked.page.wait_for_function(
            "said => !document.body.innerText.includes(said)", arg=said, timeout=SOON
        )

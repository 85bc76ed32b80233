"""The fleet page: what it shows when a server knows all, half, and nothing."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from streamlit.testing.v1 import AppTest

from tests.dashboard.apps import SECONDS, App
from tests.fleet import misbehaving as bad
from tests.fleet.answers import JOB, whole
from whyidle.dashboard import sample, settings
from whyidle.dashboard.views import fleet
from whyidle.monitor.core.contracts.fleet import LostJson
from whyidle.monitor.fleet.prometheus import URL
from whyidle.monitor.render.numbers import DASH
from whyidle.monitor.store import Reader


def _script() -> None:
    # It runs as a script of its own, which knows nothing of this file.
    from whyidle.dashboard import frame  # noqa: PLC0415
    from whyidle.dashboard.pages import fleet  # noqa: PLC0415

    frame.alone(fleet.page)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[bad.Server]:
    # Each run of the page asks anew.
    monkeypatch.setattr(fleet, "EVERY_SECONDS", 1e-6)
    monkeypatch.delenv(fleet.DASHBOARDS, raising=False)
    with bad.serving(bad.Server(whole())) as running:
        monkeypatch.setenv(URL, running.url)
        yield running


def page(tmp_path: Path, **query: str) -> App:
    settings.use(settings.Settings(store=tmp_path / "none.db"))
    test = AppTest.from_function(_script, default_timeout=SECONDS)
    for name, value in query.items():
        test.query_params[name] = value
    test.run()
    return App(test)


def test_it_shows_what_is_lost_and_to_whom(server: bad.Server, tmp_path: Path) -> None:
    words = page(tmp_path).words
    for said in ("GPU-hours lost 3.0 25% of the time that jobs had", "Held and idle 2 of 8 GPUs",
                 "0.6 kWh", "7.50 EUR", "1 answer now; 1 no longer", "node9:9400",
                 "ada vision jax node1:9400 pid 11 ssh node1 monitor dashboard 5",
                 "critical GpuLost gpu=0"):  # fmt: skip
        assert said in words, words
    # Nobody has a namespace.
    assert "By namespace" not in words
    assert {x.form["query"] for x in server.asked if "[86400s]" in x.form["query"]}


def test_the_time_range_is_in_the_address(server: bad.Server, tmp_path: Path) -> None:
    page(tmp_path, since="6h")
    assert not [x for x in server.asked if "[86400s]" in x.form["query"]]
    assert [x for x in server.asked if "[21600s]" in x.form["query"]]


@pytest.mark.parametrize(
    ("fault", "said"),
    [(bad.fails("too many samples"), "too many samples"), (bad.breaks_off, "broke off")],
)
def test_what_fails_is_said_in_its_place(
    server: bad.Server, tmp_path: Path, fault: object, said: str
) -> None:
    server.answers = {"by (user) (sum_over_time(whyidle_job_idle": fault, **whole()}  # type: ignore[dict-item]
    words = page(tmp_path).words
    assert said in words.partition("By user")[2].partition("By team")[0]
    assert "node1:9400 pid 11" in words


def test_a_server_that_ends_leaves_what_was_known(server: bad.Server, tmp_path: Path) -> None:
    shown = page(tmp_path)
    server.answers = {"": bad.fails("out of memory", 503)}
    words = shown.again().words
    assert "No answer : " in words
    assert "out of memory" in words
    assert "What follows was known at" in words
    assert "node1:9400 pid 11" in words
    server.answers = whole()
    assert "No answer" not in shown.again().words


def test_a_server_that_never_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL, f"http://127.0.0.1:{bad.closed_port()}")
    words = page(tmp_path).words
    assert "does not answer: Connection refused" in words
    assert f"asked again every 30 s. {URL} names it" in words
    assert "GPU-hours" not in words


def test_of_no_host_nothing_is_known(server: bad.Server, tmp_path: Path) -> None:
    """Not that nothing was lost."""
    server.answers = {}
    words = page(tmp_path).words
    for said in (f"GPU-hours lost {DASH} no job was watched in this time",
                 f"Held and idle {DASH} no GPU is watched now",
                 f"Energy {DASH} nothing is known of it", f"Hosts {DASH} none answers",
                 "monitor fleet init DIR --target HOST"):  # fmt: skip
        assert said in words, words


def test_another_clock_is_said(server: bad.Server, tmp_path: Path) -> None:
    server.ahead = -300
    assert "300 s behind this machine's" in page(tmp_path).words


def test_names_are_text(server: bad.Server, tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>"
    server.answers = {
        "by (user) (sum_over_time(whyidle_job_idle": [({"user": evil}, 3.0)],
        "by (cause) (sum_over_time(whyidle_job_idle": [({"cause": evil}, 3.0)],
        "unless on (instance)": [({"instance": evil}, time.time())],
        "ALERTS": [({"alertname": evil, "severity": evil, "x": evil}, 1.0)], **whole(),
    }  # fmt: skip
    server.answers.update({"ALERTS": [({"alertname": evil, "x": evil}, 1.0)]})
    markup = page(tmp_path).markup
    assert "<img" not in markup
    assert markup.count("&lt;img") >= 4


@pytest.mark.parametrize("form", ["http://{host}:8765/", "javascript:{host}", "http://proxy/"])
def test_a_click_leads_to_the_host(
    server: bad.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setenv(fleet.DASHBOARDS, form)
    markup = page(tmp_path).markup
    assert ('href="http://node1:8765/?run=5"' in markup) == (form == "http://{host}:8765/")
    assert "javascript:" not in markup


def test_a_job_of_this_host_leads_to_its_run(tmp_path: Path) -> None:
    store = tmp_path / "whyidle.db"
    with sample.copied() as path:
        shutil.copy(path, store)
    with Reader.open(store) as reader:
        run = reader.runs()[-1]
        key = f"{run.target_pid}-{run.target_start_ticks}"
        mine = {**JOB, "job_key": key}
        job = LostJson(labels=mine, gpu_hours=1.0, share=None, run=str(run.id))
        assert fleet.place_of(job, reader).run == run.id
        # The same number on another host is another run.
        job = replace(job, labels=JOB)
        assert fleet.place_of(job, reader) == fleet.Place(
            type_=f"ssh node1 monitor dashboard {run.id}"
        )
        assert fleet.place_of(replace(job, labels={"instance": "a b"}), None) == fleet.Place()

"""A try in the running job, from the page Fix: its buttons, its blocks, and who may start it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from tests.dashboard.apps import SECONDS
from tests.dashboard.pages.asked import drawn, text
from tests.dashboard.pairs import make
from whyidle.dashboard import settings, trying
from whyidle.dashboard.views import tries
from whyidle.monitor.store import NewRun, Reader, Writer
from whyidle.monitor.trying.audit import KIND, PAIR
from whyidle.monitor.trying.knobs import KNOBS

RATIO = {"low": 1.24, "middle": 1.31, "high": 1.39}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "whyidle.db"
    make(path)
    return path


def told(store: Path, *events: tuple[str, str, dict[str, Any]], run: int = 1) -> None:
    with Writer.open(store) as writer:
        for kind, words, data in events:
            assert writer.event(run, kind, words, data={"knob": "gc.freeze", **data})


def pair(without_s: float | None, with_s: float | None, ratio: Any = None) -> Any:
    data = {"most": 20, "without_s": without_s, "with_s": with_s, "ratio": ratio}
    return PAIR, "a pair", data


BEGUN = (KIND, "gc.freeze: tried", {"state": "on"})
OVER = (KIND, "gc.freeze: 1.31x (1.24 to 1.39), back as it was", {"state": "back", "ratio": RATIO})


def test_a_run_without_a_try_has_none(store: Path) -> None:
    with Reader.open(store) as reader:
        assert tries.last(reader, 1) is None
    assert "pairs" not in text(drawn("fix", store, "before"))


def test_the_last_try_is_shown_as_it_goes(store: Path) -> None:
    told(store, BEGUN, pair(0.5, 0.1), OVER)
    told(store, BEGUN, pair(0.02, 0.015), pair(None, 0.015), pair(0.021, 0.016, RATIO))
    with Reader.open(store) as reader:
        found = tries.last(reader, 1)
    assert found is not None
    assert [each.without_s for each in found.pairs] == [0.02, 0.021]
    assert (found.most, found.ended) == (20, None)
    assert found.ratio == (1.24, 1.31, 1.39)
    said = text(drawn("fix", store, "before"))
    assert "Trying gc.freeze" in said
    assert "2 of at most 20 pairs" in said
    assert "1.31x (1.24 to 1.39)" in said


def test_at_its_end_it_says_its_own_sentence(store: Path) -> None:
    told(store, BEGUN, pair(0.02, 0.015), OVER)
    said = text(drawn("fix", store, "before"))
    assert "Tried gc.freeze" in said
    assert "back as it was" in said


def test_pairs_are_no_news_of_the_run(store: Path) -> None:
    before = text(drawn("now", store, "before"))
    told(store, *[pair(0.02, 0.015)] * 30)
    assert "a pair" not in text(drawn("now", store, "before"))
    assert "a pair" not in before


def _page(rule: str, store: str) -> None:
    # It runs as a script of its own.
    from pathlib import Path as Place  # noqa: PLC0415
    from types import SimpleNamespace  # noqa: PLC0415

    from whyidle.dashboard.pages import _try_it  # noqa: PLC0415
    from whyidle.monitor.store import Reader as Reads  # noqa: PLC0415

    with Reads.open(Place(store)) as reader:
        run = reader.find("job")
    finding: Any = SimpleNamespace(rule=rule)
    _try_it.offer(finding, run)


def offered(tmp_path: Path, rule: str, *, allowed: bool) -> AppTest:
    path = tmp_path / "own.db"
    if not path.exists():
        writer = Writer.open(path)
        writer.begin_run(NewRun(target_pid=os.getpid(), target_start_ticks=1, label="job"))
    settings.use(settings.Settings(store=path, allow_actions=allowed))
    app = AppTest.from_function(_page, args=(rule, str(path)), default_timeout=SECONDS).run()
    assert not app.exception
    return app


def test_without_allow_actions_it_only_says_what_to_type(tmp_path: Path) -> None:
    app = offered(tmp_path, "gc_pauses", allowed=False)
    assert f"monitor try {os.getpid()} gc.freeze" in text(app)
    assert not app.button


def test_nothing_that_changes_digits_or_needs_a_value_has_a_button(tmp_path: Path) -> None:
    assert [b.label for b in offered(tmp_path, "gc_pauses", allowed=True).button] == [
        "Try gc.freeze", "Try gc.threshold", "Try gc.disable",
    ]  # fmt: skip
    assert [b.label for b in offered(tmp_path, "cpu_starved", allowed=True).button] == [
        "Try helpers.nice"
    ]
    assert not offered(tmp_path, "input_starved", allowed=True).button
    assert all(knob.numerics is None for rule in KNOBS.values() for knob in tries.knobs(rule.name))


def test_a_click_starts_one_and_only_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trying, "_started", {})
    seen = tmp_path / "seen"
    program = f"import sys, time; open({str(seen)!r}, 'a').write(' '.join(sys.argv[1:]) + chr(10));"
    monkeypatch.setattr(trying, "_MONITOR", (sys.executable, "-c", program + "time.sleep(30)"))
    offered(tmp_path, "gc_pauses", allowed=True).button[0].click().run()
    started = trying.of(1)
    assert started is not None
    assert started.is_running
    again = offered(tmp_path, "gc_pauses", allowed=True)
    assert all(button.disabled for button in again.button)
    with Reader.open(tmp_path / "own.db") as reader:
        trying.start(tmp_path / "own.db", reader.find("job"), "gc.disable")
    deadline = time.monotonic() + 20
    while not seen.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    trying.stop_all()
    started.process.wait(10)
    assert seen.read_text() == f"try {os.getpid()} gc.freeze\n"
    started.said.close()
    # Stopped by a person: nothing to complain of.
    assert started.failure is None


def test_what_it_could_not_do_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trying, "_started", {})
    program = "import sys; sys.exit('No steps of process 7 are known.')"
    monkeypatch.setattr(trying, "_MONITOR", (sys.executable, "-c", program))
    offered(tmp_path, "gc_pauses", allowed=True).button[0].click().run()
    started = trying.of(1)
    assert started is not None
    started.process.wait(20)
    assert "No steps of process 7" in (started.failure or "")

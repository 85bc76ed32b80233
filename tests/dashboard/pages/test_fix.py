"""The Fix page: findings as cards, with the reader's own code in them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs
from streamlit.testing.v1 import AppTest

from tests.dashboard import stores
from tests.dashboard.pages.asked import drawn, text
from tests.dashboard.pairs import AFTER, BEFORE, HOSTILE, file_of, make
from tests.render.test_hosts import diagnosed
from whyidle.dashboard.pages import _finding_card, fix
from whyidle.dashboard.views import job
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.diagnosis.diagnose import as_json
from whyidle.monitor.store import NewRun, Writer

CURED = replace(AFTER, parts={Slice.COMPUTE: 0.97, Slice.IDLE_DISPATCH: 0.03})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pair") / "whyidle.db"
    make(path)
    return path


def opened(app: AppTest) -> list[bool]:
    return [each.proto.expanded for each in app.main.expander if "fix" in each.label]


def test_a_finding_has_its_gain_its_evidence_its_code_and_its_fix(store: Path) -> None:
    said = text(drawn("fix", store, "before"))
    assert "The device waits for the next batch" in said
    assert "A step gets about 2.95x faster (2.61x to 3.3x)" in said
    assert "<td>waiting for input</td><td class=n>65%</td>" in said
    assert f"{file_of(BEFORE)}:30 in __getitem__, 90%" in said
    assert '<div class="here"><b>  30</b>        time.sleep(READ_SECONDS)' in said
    # Their own statement with the change in it; how many workers, the cores say.
    assert "+    loader = DataLoader(Stored(), BATCH, shuffle=True, num_workers=" in said
    assert "An example, not your code" not in said
    assert "90% GPU utilization with PyTorch and TensorFlow" in said


def test_it_says_how_a_change_is_measured_and_where_that_was_done(store: Path) -> None:
    said = text(drawn("fix", store, "before"))
    assert "monitor compare 1 fix-of-1" in said
    assert 'href="compare?run=2&amp;a=1&amp;b=2">Compare with run 2</a>, which came after' in said
    said = text(drawn("fix", store, "after"))
    assert 'href="compare?run=2&amp;a=1&amp;b=2">Compare with run 1</a>, which came before' in said


def test_the_page_has_the_findings_of_the_answer_in_their_order(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = as_json(diagnosed("combined/copies_and_gc/before_torch"))
    assert len(answer.findings) > 1
    monkeypatch.setattr(job, "diagnosis", lambda *_: answer)
    fix._diagnosed.clear()
    said = text(drawn("fix", store, "before"))
    fix._diagnosed.clear()
    shown = re.findall(r'<b>[^<]*</b> <a class="w-sub w-mono" href="[^"]*finding=(\w+)"', said)
    assert shown == [each.rule for each in answer.findings]


def test_what_was_not_checked_says_what_it_needs(store: Path) -> None:
    said = text(drawn("fix", store, "before"))
    assert "<td>full_precision_matmul, pageable_copies</td><td>needs a trace of a GPU" in said


def test_nothing_found_is_said_as_the_terminal_says_it(tmp_path: Path) -> None:
    make(tmp_path / "whyidle.db", CURED)
    assert "Nothing worth fixing above 1% of the time was found." in text(
        drawn("fix", tmp_path / "whyidle.db")
    )


def test_too_little_known_is_not_nothing_found(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "whyidle.db") as writer:
        writer.end_run(writer.begin_run(NewRun(label="empty")), "the job ended")
    said = text(drawn("fix", tmp_path / "whyidle.db"))
    assert "Too little is known for a verdict" in said
    assert "Nothing worth fixing" not in said
    assert "no trace was taken" in said


def test_a_link_opens_the_finding_that_it_names(store: Path) -> None:
    assert opened(drawn("fix", store, "before")) == [True]
    assert opened(drawn("fix", store, "before", finding="input_starved")) == [True]
    gone = drawn("fix", store, "before", finding=HOSTILE)
    assert opened(gone) == [True]
    assert "not found in this run" in text(gone)
    assert "<img" not in text(gone)


def test_a_link_opens_that_finding_alone_and_the_others_stay_to_be_seen(tmp_path: Path) -> None:
    store = tmp_path / "whyidle.db"
    stores.make(store, seconds=120, gpus=1).end()
    app = drawn("fix", store, finding="gc_pauses")
    # The last says what the idle time costs.
    assert opened(app) == [False, True, False]
    said = text(app)
    assert said.index("The device waits") < said.index("garbage collector")
    assert said.index("garbage collector") < said.index("Energy is used")
    # Two ranges are worth a picture.
    assert "How much faster each fix makes it" in said
    assert re.search(r"up to \d+ W, \d+ J a step", said)


def test_names_from_a_job_are_no_markup(tmp_path: Path) -> None:
    store = tmp_path / "whyidle.db"
    make(store, replace(BEFORE, function=HOSTILE), script=f"{HOSTILE}.py")
    said = text(drawn("fix", store))
    assert "<img" not in said
    assert "&lt;img" in said


def test_what_comes_back_is_given_as_a_least_and_a_most() -> None:
    (first, *_) = as_json(diagnosed("input_starved/before_torch")).findings
    cost = _finding_card._cost(structs.replace(first, lost_share=[0.463, 0.561]))
    assert "at least 46% of the time is saved, at most 56%<" in cost
    cost = _finding_card._cost(structs.replace(first, lost_share=[0.2, 0.2]))
    assert "at least 20% of the time is saved<" in cost

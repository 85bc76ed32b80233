"""The Fix page says what the terminal says, and adds what a page has room for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from tests.rules.windows import recorded
from whyidle.dashboard.views import findings
from whyidle.monitor import rules
from whyidle.monitor.core.contracts.diagnosis import ComputeJson
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.diagnosis.device_activity import NO_PIPES
from whyidle.monitor.diagnosis.diagnose import as_json, diagnose
from whyidle.monitor.render import finding_text
from whyidle.monitor.render.findings import screen
from whyidle.monitor.rules import DOCUMENTS
from whyidle.monitor.signals.window import Window
from whyidle.monitor.store import Run

ROOT = Path(__file__).parents[3]


def run(**more: object) -> Run:
    return Run(**{"id": 7, "ended_ms": 1, "command": "python train.py --lr 1", **more})  # type: ignore[arg-type]


def page_of(window: Window) -> findings.Page:
    return findings.of(as_json(diagnose(window)), run())


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    "name", ["input_starved/before_torch", "retracing/before_jax", "gc_pauses/before_torch",
             "memory_growth/before_jax", "input_starved/after_torch", "healthy/mlp_torch"]
)  # fmt: skip
def test_it_says_all_that_the_terminal_says_in_the_same_words(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No path is so long that it is broken there.
    monkeypatch.setenv("COLUMNS", "1000")
    window = recorded(name)
    page = page_of(window)
    terminal = flat(screen(as_json(diagnose(window)), everything=True))
    said = [*findings.caveats(page.answer), *findings.while_it_computes(page.answer)]
    said.append(page.answer.verdict.what)
    assert page.verdict.startswith(page.answer.verdict.text.rstrip("."))
    for each in page.answer.findings:
        said += [each.title, *each.documents, *each.also_seen]
        words = finding_text.of(each)
        said += [f"{e.name}: {e.value} ({e.aged})" for e in words.evidence]
        said += [remedy.words for remedy in words.remedies]
        said += [place.words for place in page.places[each.rule]]
        said += [gain] if (gain := words.gain) else []
    assert [text for text in said if flat(text) not in terminal] == []


def test_what_was_not_checked_stands_together_by_what_it_needs() -> None:
    page = page_of(Window("run 7", "run"))
    needs = findings.not_checked(page.answer, run())
    assert sorted(name for names in needs.values() for name in names) == sorted(
        each.rule for each in page.answer.not_checked
    )
    assert len(needs) < len(page.answer.not_checked)


def test_the_command_for_what_is_missing_names_the_running_job_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    window = Window("run 7", "run", is_over=False)
    monkeypatch.setattr(Run, "is_recording", property(lambda _: True))
    needs = findings.not_checked(as_json(diagnose(window)), run(target_pid=4711))
    assert any("monitor trace 4711 --run 7" in need for need in needs)
    monkeypatch.setattr(Run, "is_recording", property(lambda _: False))
    needs = findings.not_checked(as_json(diagnose(window)), run(target_pid=4711))
    assert not any("4711" in need for need in needs)


def test_how_a_gpu_works_while_it_works_is_shown_with_what_is_not_known_of_it() -> None:
    works = ComputeJson(
        said=["Small kernels."], efficiency=0.31, efficiency_source="tensor activity",
        unknown={"a": "no counter tells", "b": "no counter tells"},
    )  # fmt: skip
    answer = as_json(diagnose(Window("run 7", "run")))
    assert findings.while_it_computes(replace(answer, compute=works)) == [
        "Small kernels.",
        "31% of the chip's peak is used (tensor activity).",
        "not known: no counter tells",
    ]
    assert findings.while_it_computes(replace(answer, compute=None)) == []
    # Of a CPU nobody misses counters.
    names = ComputeJson(said=["sort 78%."], unknown={"bound": NO_PIPES})
    assert findings.while_it_computes(replace(answer, compute=names)) == ["sort 78%."]


def test_every_document_that_a_rule_cites_has_its_name() -> None:
    cited = {each for rule in rules.load().values() for each in rule.documents}
    unnamed = {each for each in cited if each[:2] not in DOCUMENTS}
    assert unnamed == {"beyond the documents"}
    catalogue = (ROOT / "docs" / "catalogue.md").read_text("utf-8")
    assert [name for name in DOCUMENTS.values() if name not in catalogue] == []


def test_the_page_of_a_rule_says_why_it_costs_and_when_it_is_wrong() -> None:
    for name in rules.load():
        assert "## Why it costs" in findings.why(name)
        assert "## When it is wrong" in findings.why(name)
    assert findings.why("of_a_newer_version") == ""


def test_a_change_is_measured_by_running_the_same_command_again() -> None:
    assert findings.measuring(run()) == (
        "monitor run --label fix-of-7 -- python train.py --lr 1\nmonitor compare 7 fix-of-7"
    )
    assert "-- CMD\n" in findings.measuring(run(command=None))
    assert "-- CMD\n" in findings.measuring(run(command="x" * 9000))


def test_a_masked_secret_is_not_offered_as_its_value() -> None:
    words = findings.measuring(run(command="python train.py --api-key '***'"))
    assert "***" not in words
    assert "-- CMD\n" in words
    assert words.startswith("# CMD: your own command")


def test_only_what_costs_time_has_a_range() -> None:
    page = page_of(recorded("memory_growth/before_jax"))
    assert page.finding("memory_growth") is not None
    assert "memory_growth" not in str(findings.ranges([page.finding("memory_growth") or {}]))
    starved = page_of(recorded("input_starved/before_torch"))
    (found,) = findings.ranges([starved.finding("input_starved") or {}])
    assert 1 < found.low < found.high


def test_the_code_of_a_recorded_line_is_read_where_it_lies() -> None:
    (place, *_) = page_of(recorded("input_starved/before_torch")).places["input_starved"]
    assert place.code is not None
    assert "time.sleep(READ_SECONDS)" in place.code.lines[place.code.line - place.code.first]


def finding(rule: str, lost: list[float] | None = None, **more: object) -> Any:
    expected = lost and 1 / (1 - sum(lost) / 2)
    timed = {"lost_share": lost, "speedup": lost and [1.1, 1.2], "expected": expected}
    return SimpleNamespace(rule=rule, **timed, **more)


def said_of(some: list[Any], rule: str | None = None) -> Any:
    return SimpleNamespace(findings=some, verdict=SimpleNamespace(text="It waits.", rule=rule))


def test_what_the_verdict_is_about_is_said_first() -> None:
    waits = finding("waits")
    result = findings.lead(said_of([finding("gc", [0.1, 0.1]), waits], "waits"))
    assert result is not None
    assert result.first is waits


def test_the_dearest_finding_is_said_first_and_risks_stand_beside_it() -> None:
    risk, dear, small = finding("memory"), finding("input", [0.4, 0.8]), finding("gc", [0.1, 0.1])
    result = findings.lead(said_of([risk, dear, small], None))
    assert result is not None
    assert result.first is dear
    assert list(result.beside) == [risk]
    assert result.more == 1


def test_where_nothing_costs_time_the_first_of_the_list_is_said() -> None:
    result = findings.lead(said_of([finding("error"), finding("memory")], None))
    assert result is not None
    assert (result.first.rule, list(result.beside), result.more) == ("error", [], 1)
    assert findings.lead(said_of([], None)) is None


def test_the_finding_about_a_part_of_the_time_is_one_that_names_lines() -> None:
    bare = finding("a", slice="idle_compile", where=[])
    named = finding("b", slice="idle_compile", where=[{"file": "x.py"}])
    answer = said_of([finding("c", slice="idle_input", where=[{}]), bare, named])
    assert findings.of_slice(answer, Slice.IDLE_COMPILE) is named
    assert findings.of_slice(answer, Slice.IDLE_GC) is None

"""From rules to findings: order, causes before symptoms, one finding a slice, what is not known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from tests.rules.windows import WINDOWS, answer, recorded, stacks, traced, window
from whyidle.monitor import rules
from whyidle.monitor.core.contracts.diagnosis import NotCheckedJson
from whyidle.monitor.core.finding import (
    Evidence,
    Fix,
    Found,
    Gain,
    Knows,
    Need,
    NotChecked,
    Place,
    Severity,
)
from whyidle.monitor.core.metrics import (
    GPU_POWER,
    JOB_AGENT_CPU,
    JOB_LOADER_WAIT,
    JOB_STEP_P50,
    JOB_STEPS,
    SELF_CPU,
)
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.diagnosis import ranking
from whyidle.monitor.diagnosis.claims import account, claimed
from whyidle.monitor.diagnosis.diagnose import Diagnosis, Finding, as_json, diagnose
from whyidle.monitor.render.findings import screen
from whyidle.monitor.rules import Kind, Rule
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.recorded import SeenGpu
from whyidle.monitor.signals.window import Window

Causes = dict[str, tuple[str, ...]]
RECORDED = sorted(
    str(path.relative_to(WINDOWS)).removesuffix(".json.gz") for path in WINDOWS.rglob("*.json.gz")
)
EVIDENCE = (Evidence("something", 1.0, "count", "agent"),)


def loses(share: float, part: Slice | None = None, **more: Any) -> Found:
    return Found(Gain.between(share, share), EVIDENCE, slice=part, **more)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, Rule]:
    """Rules of this test's own."""
    made: dict[str, Rule] = {}
    monkeypatch.setattr(rules, "load", lambda: made)
    return made


@pytest.fixture
def causes(monkeypatch: pytest.MonkeyPatch) -> Causes:
    """What is a symptom of what, in this test."""
    made: Causes = {}
    monkeypatch.setattr(ranking, "CAUSES", made)
    return made


@pytest.fixture
def broken_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a rule whose file cannot be imported."""
    (tmp_path / "broken.py").write_text("import no_such_module\n")
    monkeypatch.setattr(rules, "__path__", [*rules.__path__, str(tmp_path)])
    rules.loaded.cache_clear()
    yield "broken"
    rules.loaded.cache_clear()


def add(known: dict[str, Rule], name: str, verdict: Any, **more: Any) -> None:
    def detect(_: Window) -> Any:
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    fixes: Any = {"jax": Fix("Do.")}
    known[name] = Rule(title=f"Fault {name}", fixes=fixes, detect=detect, id=name, **more)


def names(found: Diagnosis) -> list[str]:
    return [each.rule.id for each in found.findings]


def test_errors_and_risks_come_first_then_what_loses_most(known: dict[str, Rule]) -> None:
    add(known, "small", loses(0.1, Slice.IDLE_GC))
    add(known, "large", loses(0.5, Slice.IDLE_INPUT))
    add(known, "growing", Found(None, EVIDENCE, severity=Severity.HIGH), kind=Kind.MEMORY)
    add(known, "wasteful", Found(None, EVIDENCE, severity=Severity.LOW), kind=Kind.MEMORY)
    add(known, "lost", Found(None, EVIDENCE, severity=Severity.HIGH), kind=Kind.ERROR)
    add(known, "chosen", Found(None, EVIDENCE, severity=Severity.INFO), kind=Kind.ERROR)
    found = names(diagnose(window()))
    assert set(found[:2]) == {"lost", "growing"}
    assert found[2:] == ["large", "small", "wasteful", "chosen"]


def test_what_is_expected_to_gain_most_comes_first(known: dict[str, Rule]) -> None:
    add(known, "sure", loses(0.1))
    add(known, "wide", Found(Gain.between(0.02, 0.4), EVIDENCE))
    add(known, "wider", Found(Gain.between(0.06, 0.4), EVIDENCE))
    add(known, "may be nothing", Found(Gain.between(0.0, 0.8), EVIDENCE))
    assert names(diagnose(window())) == ["wider", "wide", "sure", "may be nothing"]


CHANGE = "Make the change"
ON_GPU: dict[str, Any] = {"facts": {"torch": {"backend": "cuda"}}}


@pytest.mark.parametrize(
    ("at", "rule", "narrower"),
    [
        (ON_GPU | {"pid": 7}, "any", "A trace may narrow it: monitor trace 7"),
        ({"pid": 7}, "any", f"{CHANGE}, watch again, then type: monitor compare test last"),
        (
            {"pid": 7},
            "gc_pauses",
            "See what can be tried in the running job: monitor try 7 --suggest",
        ),
        ({}, "any", f"{CHANGE}, watch again, then type: monitor compare test last"),
    ],
)
def test_a_range_too_wide_to_decide_by_says_what_narrows_it(
    known: dict[str, Rule], at: dict[str, Any], rule: str, narrower: str
) -> None:
    add(known, rule, Found(Gain.between(0.1, 0.8), EVIDENCE))
    add(known, "narrow", Found(Gain.between(0.1, 0.3), EVIDENCE))
    found = as_json(diagnose(window(**at)))
    assert {x.rule: x.narrowed_by for x in found.findings} == {rule: narrower, "narrow": UNSET}
    assert narrower in " ".join(screen(found).split())


WAITS = Found(Gain.between(0.0, 0.5), EVIDENCE, slice=Slice.IDLE_INPUT)


@pytest.mark.parametrize(
    ("waits", "severity", "expected"),
    [(0.52, "medium", 1.414), (0.1, "low", 1.111), (0.0, "info", 1.0)],
)
def test_an_unsure_gain_is_held_against_what_the_account_has_of_it(
    known: dict[str, Rule], waits: float, severity: str, expected: float
) -> None:
    """A low end of nothing hides no waiting that was seen, and a high end makes none loud."""
    add(known, "waits", WAITS)
    seen = window(answer({Slice.COMPUTE: 1 - waits, Slice.IDLE_INPUT: waits}))
    (finding,) = as_json(diagnose(seen)).findings
    assert (finding.severity, finding.expected) == (severity, pytest.approx(expected, 1e-3))


def test_an_unsure_gain_of_no_slice_is_what_does_not_compute_at_its_lines(
    known: dict[str, Rule],
) -> None:
    lines = (Place("/u/train.py", 3, "main", 0.3), Place("/u/train.py", 4, "main", 0.1))
    add(known, "code", Found(Gain.between(0.0, 0.9), EVIDENCE, where=lines))
    by_compute = {0.3: "medium", 0.85: "low", 0.995: "info"}
    for compute, severity in by_compute.items():
        seen = window(answer({Slice.COMPUTE: compute, Slice.IDLE_DISPATCH: 1 - compute}))
        (finding,) = as_json(diagnose(seen)).findings
        assert finding.severity == severity
        low, high = finding.speedup or (0.0, 0.0)
        assert low <= (finding.expected or 0.0) <= high


def test_a_fault_of_the_work_itself_is_not_loud_while_nothing_is_sure(
    known: dict[str, Rule],
) -> None:
    add(known, "wide", Found(Gain.between(0.0, 0.99), EVIDENCE, slice=Slice.COMPUTE))
    (finding,) = diagnose(window(answer({Slice.COMPUTE: 1.0}))).findings
    assert finding.severity is Severity.LOW


def test_a_symptom_is_silent_beside_its_cause(known: dict[str, Rule], causes: Causes) -> None:
    causes["symptom"] = ("cause",)
    add(known, "cause", loses(0.3, Slice.IDLE_INPUT))
    add(known, "symptom", loses(0.6, Slice.COMPUTE))
    found = diagnose(window())
    assert names(found) == ["cause"]
    assert found.findings[0].also_seen == ("symptom",)


def test_memory_that_grows_by_what_is_found_stays_behind_it(
    known: dict[str, Rule], causes: Causes
) -> None:
    causes["growing"] = ("compiled",)
    growing = Found(None, EVIDENCE, severity=Severity.HIGH)
    add(known, "compiled", loses(0.3, Slice.COMPUTE))
    add(known, "growing", growing, kind=Kind.MEMORY)
    found = diagnose(window())
    assert names(found) == ["compiled", "growing"]
    assert found.findings[1].behind == "compiled"
    # It is said, and not shouted a second time.
    assert found.findings[1].severity is Severity.LOW
    assert found.findings[0].also_seen == ("growing",)
    # A cause that surely costs less than the others is one all the same.
    add(known, "compiled", Found(Gain.between(0.08, 0.5), EVIDENCE))
    assert names(diagnose(window())) == ["compiled", "growing"]
    add(known, "compiled", Found(Gain.between(0.0, 0.5), EVIDENCE))
    assert names(diagnose(window())) == ["growing", "compiled"]
    # One that another finding explains is not there: that one is the cause.
    causes["compiled"] = ("loop",)
    add(known, "compiled", loses(0.3, Slice.COMPUTE))
    add(known, "loop", loses(0.4, Slice.COMPUTE))
    found = diagnose(window())
    assert names(found) == ["loop", "growing"]
    assert found.findings[1].behind == "loop"
    at = replace(growing, where=(Place("train.py", 7, "main"),))
    add(known, "growing", at, kind=Kind.MEMORY)
    assert names(diagnose(window())) == ["growing", "loop"]


def test_a_small_cause_explains_nothing_away(known: dict[str, Rule], causes: Causes) -> None:
    causes["symptom"] = ("cause",)
    add(known, "cause", loses(0.02, Slice.IDLE_INPUT))
    add(known, "symptom", loses(0.6, Slice.COMPUTE))
    assert names(diagnose(window())) == ["symptom", "cause"]


def test_a_cure_of_a_part_leaves_the_rest_to_be_explained(known: dict[str, Rule]) -> None:
    place = (Place("/u/train.py", 3, "main"),)
    add(known, "part", loses(0.2, where=place))
    add(known, "code", loses(0.6, where=place, knows=Knows.LINES))
    assert names(diagnose(window())) == ["code", "part"]
    add(known, "whole", loses(0.7, where=place))
    found = diagnose(window())
    assert names(found) == ["whole"]
    assert set(found.findings[0].also_seen) == {"part", "code"}


def test_a_cure_of_one_line_leaves_the_others_to_be_explained(known: dict[str, Rule]) -> None:
    drawing, looking = Place("/u/data.py", 31, "draw", 0.2), Place("/u/data.py", 32, "draw", 0.4)
    add(known, "draws", loses(0.2, where=(drawing,)))
    add(known, "code", loses(0.5, where=(looking, drawing), knows=Knows.LINES))
    assert names(diagnose(window())) == ["code", "draws"]
    add(known, "code", loses(0.2, where=(drawing,), knows=Knows.LINES))
    assert names(diagnose(window())) == ["draws"]


def test_who_names_a_cause_stands_behind_who_knows_a_cure(known: dict[str, Rule]) -> None:
    place = (Place("/u/data.py", 31, "draw"),)
    add(known, "cause", loses(0.5, where=place, knows=Knows.CAUSE))
    add(known, "cure", loses(0.4, where=place))
    add(known, "code", loses(0.6, where=place, knows=Knows.LINES))
    found = diagnose(window())
    assert names(found) == ["cure"]
    assert set(found.findings[0].also_seen) == {"cause", "code"}


SPIN, LOSS = CodeLine("/me/train.py", 8, "spin"), CodeLine("/me/train.py", 9, "loss")


def at_two_lines() -> Window:
    """Return a job that idles half of the time, of which two lines have a half each."""
    seen = stacks((SPIN, (SPIN,), 500), (LOSS, (LOSS,), 500))
    return window(answer({Slice.COMPUTE: 0.5, Slice.IDLE_DISPATCH: 0.5}), stacks=seen)


def test_lines_of_one_slice_are_claimed_one_by_one(known: dict[str, Rule]) -> None:
    spin, loss = (Place(*SPIN, 0.5),), (Place(*LOSS, 0.5),)
    add(known, "spins", loses(0.25, where=spin))
    add(known, "loses", loses(0.2, where=loss))
    assert names(diagnose(at_two_lines())) == ["spins", "loses"]
    # Who only names the whole of it says the same with less.
    add(known, "whole", loses(0.5, Slice.IDLE_DISPATCH))
    found = diagnose(at_two_lines())
    assert names(found) == ["spins", "loses"]
    assert found.findings[0].also_seen == ("whole",)


def test_what_is_shown_adds_up_to_the_account(known: dict[str, Rule]) -> None:
    for n, share in enumerate((0.5, 0.4, 0.3, 0.2)):
        add(known, f"rule {n}", loses(share, Slice.IDLE_DISPATCH))
    found = diagnose(at_two_lines())
    assert names(found) == ["rule 0"]
    assert found.findings[0].also_seen == ("rule 1", "rule 2", "rule 3")


def test_what_is_not_worth_a_line_is_left_out(known: dict[str, Rule]) -> None:
    add(known, "tiny", loses(0.004, Slice.IDLE_GC))
    assert names(diagnose(window())) == []


def test_a_rule_that_fails_costs_no_other(known: dict[str, Rule]) -> None:
    add(known, "broken", RuntimeError("a defect"))
    add(known, "sound", loses(0.4, Slice.IDLE_GC))
    found = diagnose(window())
    assert names(found) == ["sound"]
    assert "a defect" in found.failed["broken"]
    assert "broken failed" in screen(as_json(found))


def test_a_rule_that_cannot_be_loaded_costs_no_other(broken_rule: str) -> None:
    found = diagnose(window(means={JOB_STEPS: 10.0, JOB_STEP_P50: 0.1, JOB_LOADER_WAIT: 0.5}))
    assert "input_starved" in names(found)
    assert "no_such_module" in found.failed[broken_rule]
    assert f"{broken_rule} failed" in screen(as_json(found))


def test_nothing_found_says_nothing_where_most_of_the_time_is_unknown(
    known: dict[str, Rule],
) -> None:
    add(known, "silent", None)
    assert not diagnose(window()).is_known
    assert not diagnose(window(answer({Slice.COMPUTE: 0.2}))).is_known
    assert diagnose(window(answer({Slice.COMPUTE: 1.0}))).is_known
    # One small finding does not say where the rest goes.
    add(known, "sees", loses(0.04, Slice.IDLE_GC))
    assert not diagnose(window()).is_known


def test_what_could_not_be_judged_says_what_would_help(known: dict[str, Rule]) -> None:
    add(known, "blind", NotChecked(Need.TRACE))
    answer = as_json(diagnose(window()))
    need = "a trace: monitor trace PID --run RUN"
    assert answer.not_checked == [NotCheckedJson(rule="blind", needs=need)]
    over = Window("run 1", is_over=True)
    assert "--run" not in as_json(diagnose(over)).not_checked[0].needs


def test_nobody_is_told_to_send_for_the_agent_that_is_there(known: dict[str, Rule]) -> None:
    add(known, "blind", NotChecked(Need.INSIDE, "the size of a batch"))
    (there,) = as_json(diagnose(window(inside=True))).not_checked
    assert there.needs == "the size of a batch, which the agent in the job does not see"
    (away,) = as_json(diagnose(window(inside=False))).not_checked
    assert away.needs.startswith("the agent in the job (the size of a batch): monitor attach")


def test_lost_time_has_its_energy(known: dict[str, Rule]) -> None:
    add(known, "idle", loses(0.5, Slice.IDLE_GC))
    gpus = (SeenGpu("0", "H200", owned=True, means={GPU_POWER: 400.0}),)
    (finding,) = as_json(diagnose(window(means={JOB_STEP_P50: 0.1}, gpus=gpus))).findings
    assert finding.energy.watts_lost == pytest.approx(200.0)
    assert finding.energy.joules_per_step == pytest.approx(20.0)


def test_lost_time_has_its_price_where_one_is_set(
    known: dict[str, Rule], monkeypatch: pytest.MonkeyPatch
) -> None:
    add(known, "idle", loses(0.5, Slice.IDLE_GC))
    gpus = tuple(
        SeenGpu(i, "H200", owned=i != "2", means={GPU_POWER: 400.0}) for i in ("0", "1", "2")
    )
    job = window(means={JOB_STEP_P50: 0.1}, gpus=gpus)
    (finding,) = as_json(diagnose(job)).findings
    assert finding.energy.money_per_hour is None
    assert "WHYIDLE_KWH_PRICE" in finding.energy.unknown["money_per_step"]
    monkeypatch.setenv("WHYIDLE_KWH_PRICE", "0.5")
    monkeypatch.setenv("WHYIDLE_GPU_HOUR_PRICE", "3")
    monkeypatch.setenv("WHYIDLE_CURRENCY", "EUR")
    (finding,) = as_json(diagnose(job)).findings
    # Half of 800 W for an hour, and half of the time of two GPUs.
    assert finding.energy.money_per_hour == pytest.approx(0.2 + 3.0)
    assert finding.energy.money_per_step == pytest.approx(3.2 / 36_000)
    assert "up to 400 W, 40 J a step, 3.20 EUR an hour, 8.9e-05 EUR a step" in " ".join(
        screen(as_json(diagnose(job))).split()
    )


def test_time_that_nobody_knows_has_no_price(known: dict[str, Rule]) -> None:
    add(known, "risk", Found(None, EVIDENCE, severity=Severity.HIGH))
    gpus = (SeenGpu("0", "H200", owned=True, means={GPU_POWER: 400.0}),)
    (finding,) = as_json(diagnose(window(gpus=gpus))).findings
    assert finding.energy.watts_lost is None
    assert "not known" in finding.energy.unknown["watts_lost"]


def test_each_answer_says_what_watching_cost(known: dict[str, Rule]) -> None:
    add(known, "silent", None)
    traces = [answer({Slice.COMPUTE: 1.0}), answer({Slice.COMPUTE: 1.0})]
    job = window(*traces, means={JOB_AGENT_CPU: 0.004, SELF_CPU: 0.011}, stopped_s=0.0015)
    held = tuple(replace(t, held_s=s) for t, s in zip(job.traces, (0.02, 0.03), strict=True))
    found = diagnose(replace(job, traces=held))
    cost = as_json(found).overhead
    assert (cost.agent_cores, cost.monitor_cores, cost.traces) == (0.004, 0.011, 2)
    assert cost.traces_held_s == pytest.approx(0.05)
    assert set(cost.unknown) == {"monitor_rss_bytes", "profiler_share"}
    said = "Watching cost 0.4% of a core in the job, 1.1% of a core outside it, a stop of 1.5 ms to"
    assert f"{said} enter, 50.0 ms for 2 traces." in " ".join(screen(as_json(found)).split())
    nothing = as_json(diagnose(window(answer({Slice.COMPUTE: 1.0}), kind="file"))).overhead
    assert nothing.agent_cores is None
    assert set(nothing.unknown) == {*nothing.__struct_fields__} - {"traces", "unknown"}


def test_the_profilers_own_time_in_a_trace_is_part_of_that(known: dict[str, Rule]) -> None:
    add(known, "silent", None)
    own = {Slice.IDLE_UNKNOWN: {"the profiler itself": 0.08}}
    trace = answer({Slice.COMPUTE: 0.9, Slice.IDLE_UNKNOWN: 0.1}, details=own)
    assert "8.0% of the trace's own time" in screen(as_json(diagnose(window(trace, kind="file"))))


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.99), (0.1, 0.9), (0.5, 0.95), (0.3, 0.3)])
def test_a_range_is_what_is_known_however_wide(low: float, high: float) -> None:
    slow, fast = Gain.between(low, high).speedup
    assert (slow, fast) == pytest.approx((1 / (1 - low), 1 / (1 - high)))


def test_signals_that_contradict_each_other_drop_the_finding_and_say_so(
    known: dict[str, Rule],
) -> None:
    def detect(_: Window) -> Found:
        return Found(Gain.between(0.4, 0.3), EVIDENCE)

    known["both"] = Rule(title="Both", fixes={}, detect=detect, id="both")
    found = diagnose(window())
    assert found.findings == ()
    assert not found.failed
    assert found.contradictions == {"both": "at least 40.0% of the time, and at most 30.0%"}
    (needs,) = as_json(found).not_checked
    assert "its signals contradict each other" in needs.needs


@pytest.mark.parametrize(
    ("low", "high", "severity"),
    [
        (0.2, 0.3, "high"),
        (0.1, 0.5, "high"),
        (0.06, 0.1, "medium"),
        # Less than 5% is sure: one level less than what is expected.
        (0.04, 0.9, "medium"),
        (0.04, 0.12, "low"),
        (0.02, 0.04, "low"),
        # Nothing is sure, and nothing measured.
        (0.0, 0.9, "low"),
        (0.0, 0.05, "info"),
    ],
)
def test_a_finding_is_as_severe_as_what_is_expected_of_it(
    low: float, high: float, severity: str
) -> None:
    finding = Finding(rules.load()["gc_pauses"], Found(Gain.between(low, high), ()))
    assert finding.severity == severity


def test_nothing_found_is_good_health_only_where_the_time_is_explained() -> None:
    # 5% of it waits in the queue, and no rule says why.
    assert "5% is launched work that has not started, with no known cause" in screen(
        as_json(diagnose(traced("h100_qwen05b")))
    )
    assert "Too little is known" in screen(as_json(diagnose(window())))


def test_a_name_from_a_job_cannot_steer_a_terminal() -> None:
    shown = screen(as_json(diagnose(Window("\x1b[31mevil.json", "file"))))
    assert "\x1b" not in shown


def test_a_trace_shorter_than_a_step_is_not_the_account() -> None:
    short = answer({Slice.COMPUTE: 1.0}, steps=1, step_ms=15.0)
    short["steps"] = {"count": 0, "median_ns": None, "source": "none"}
    assert window(short, means={JOB_STEP_P50: 0.02}).trace is None
    assert window(short, means={JOB_STEP_P50: 0.01}).trace is not None


def test_a_place_names_who_called_it() -> None:
    named = ((8, "loss"), (20, "step"), (40, "main"))
    inner, step, loop = (CodeLine("/me/train.py", line, function) for line, function in named)
    jax = "/env/lib/python3.11/site-packages/jax/_src"
    launches = CodeLine(f"{jax}/dispatch.py", 88, "apply_primitive")
    facts = {"jax": {"executables_by_name": {"jit_add": 9, "jit_mul": 9, "jit_tanh": 9}}}
    made = window(stacks=stacks((launches, (inner, step, loop), 100)), facts=facts)
    found = diagnose(made)
    (place,) = as_json(found).findings[0].where
    assert [(p.function, p.line) for p in place.chain] == [("step", 20), ("main", 40)]
    assert "called by step at train.py:20, main at train.py:40" in screen(as_json(found))


def test_who_is_left_a_part_promises_no_more(known: dict[str, Rule]) -> None:
    spin, both = (Place(*SPIN, 0.5),), (Place(*SPIN, 0.5), Place(*LOSS, 0.5))
    add(known, "spins", loses(0.2, where=spin))
    add(known, "all", loses(0.18, where=both))
    first, second = diagnose(at_two_lines()).findings
    assert (first.rule.id, second.rule.id) == ("spins", "all")
    assert first.lost == pytest.approx(0.2)
    # Of its half at that line 80% is gone.
    assert second.lost == pytest.approx(0.18 * 0.6)


@pytest.mark.parametrize("name", RECORDED)
def test_no_part_of_a_recording_is_given_to_two_findings(name: str) -> None:
    seen = recorded(name)
    rows, given = account(seen), Counter[int]()
    for each in diagnose(seen).findings:
        gain = each.found.gain
        if each.rule.kind is not Kind.TIME or gain is None or each.severity is Severity.INFO:
            continue
        for key, share in claimed(rows, each.found).items():
            if isinstance(key, int):
                given[key] += share * gain.expected / gain.high
    over = {key: share for key, share in given.items() if share > rows[key].share + 1e-6}
    assert over == {}


def test_what_is_left_nothing_takes_nothing(known: dict[str, Rule]) -> None:
    place = (Place("/u/a.py", 3, "main"),)
    for name, share in (("first", 0.04), ("second", 0.03), ("third", 0.02)):
        add(known, name, loses(share, where=place))
    found = diagnose(window())
    assert names(found) == ["first"]
    assert set(found.findings[0].also_seen) == {"second", "third"}

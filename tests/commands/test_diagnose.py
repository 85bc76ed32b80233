"""diagnose and rules: the contract, the screen, exit codes, and what is said of bad targets."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands.test_trace import check_budget
from tests.commands.tracefiles import kineto
from tests.conftest import ROOT, Monitor, lines
from whyidle.monitor import rules
from whyidle.monitor.commands.rules import command as listing
from whyidle.monitor.core.errors import Exit
from whyidle.monitor.core.metrics import JOB_LOADER_WAIT, JOB_STEP_P50, JOB_STEPS, Scope
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.core.reading import Reading, Tick
from whyidle.monitor.rules import Loaded
from whyidle.monitor.store import NewRun, Writer

START_MS = 1_700_000_000_000


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "train.json"
    path.write_text(json.dumps(kineto()))
    return path


@pytest.fixture
def unknown(tmp_path: Path) -> Path:
    """A trace whose GPU works little, and in which nothing says why."""
    document = kineto()
    steps = [e for e in document["traceEvents"] if e["name"].startswith("ProfilerStep")]
    kernels = [e for e in document["traceEvents"] if e["cat"] == "kernel"]
    works = [{**e, "dur": 200, "ts": s["ts"] + 600} for s, e in zip(steps, kernels, strict=True)]
    path = tmp_path / "unknown.json"
    path.write_text(json.dumps({**document, "traceEvents": steps + works}))
    return path


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    """A trace whose GPU works all the time: in half precision, nothing loaded or read back."""
    document = kineto()
    steps = [e for e in document["traceEvents"] if e["name"].startswith("ProfilerStep")]
    kernels = [e for e in document["traceEvents"] if e["cat"] == "kernel"]
    busy = {"name": "ampere_fp16_s16816gemm_fp16_128x128_tn", "dur": 990}
    works = [{**e, **busy, "ts": step["ts"]} for step, e in zip(steps, kernels, strict=True)]
    path = tmp_path / "healthy.json"
    path.write_text(json.dumps({**document, "traceEvents": steps + works}))
    return path


@pytest.fixture
def run(state: Path) -> int:
    """A recording of a minute in which the job waited half of the time for its loader."""
    with Writer.open(state / DATABASE) as writer:
        number = writer.begin_run(NewRun(label="slow", started_ms=START_MS))
        values = {JOB_STEPS: 10.0, JOB_STEP_P50: 0.1, JOB_LOADER_WAIT: 0.5}
        for second in range(60):
            ts_ms = START_MS + 1000 * second
            writer.append(number, Tick(ts_ms, {Scope.JOB: {number: Reading(dict(values))}}))
        writer.end_run(number, "job ended")
    return number


def answered(monitor: Monitor, *arguments: object) -> dict[str, Any]:
    done = monitor("diagnose", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    (answer,) = lines(done.stdout)
    return answer


def check_contract(answer: dict[str, Any]) -> None:
    """Hold an answer against the contract of the design."""
    assert isinstance(answer["target"], str)
    if answer["budget"] is not None:
        check_budget(answer["budget"])
    known = rules.load()
    for finding in answer["findings"]:
        assert finding["rule"] in known
        assert finding["severity"] in {"high", "medium", "low", "info"}
        assert (finding["lost_share"] is None) is (finding["speedup"] is None)
        if finding["lost_share"] is not None:
            low, high = finding["lost_share"]
            assert 0 <= low <= high < 1
            slow, fast = finding["speedup"]
            assert 1 <= slow <= finding["expected"] <= fast
        else:
            assert finding["expected"] is None
        assert finding["evidence"]
        for evidence in finding["evidence"]:
            assert {"name", "value", "unit", "source", "age_s"} <= evidence.keys()
            assert evidence["source"]
        for place in finding["where"]:
            assert {"file", "line", "function", "share"} <= place.keys()
        assert finding["fixes"]
        assert all({"text", "code"} <= fix.keys() for fix in finding["fixes"].values())
        assert finding["documents"]
    assert all({"rule", "needs"} == each.keys() for each in answer["not_checked"])


def test_the_contract_of_a_trace_file(monitor: Monitor, trace: Path) -> None:
    answer = answered(monitor, trace)
    check_contract(answer)
    assert answer["findings"][0]["rule"] == "input_starved"
    assert answer["findings"][0]["severity"] == "high"
    assert "pytorch" in answer["findings"][0]["fixes"]
    assert answer["failed"] == {}


def test_the_contract_of_a_recording(monitor: Monitor, run: int) -> None:
    for ref in (run, "slow", "last"):
        answer = answered(monitor, ref)
        check_contract(answer)
        assert answer["target"] == f"run {run}"
        assert answer["findings"][0]["rule"] == "input_starved"
        assert answer["findings"][0]["evidence"][0]["source"] == "stack samples"
        assert answer["failed"] == {}


def test_the_screen_has_the_fix_and_the_gain(monitor: Monitor, trace: Path) -> None:
    done = monitor("diagnose", trace)
    assert done.returncode == 0
    for text in ("HIGH", "x faster", "num_workers", "Read more: 90% GPU", "Not checked: "):
        assert text in done.stdout
    assert done.stdout.index("num_workers") < done.stdout.index("idle: input")
    assert "\x1b" not in done.stdout
    # An example that is no code of the user's is shown to who asks.
    assert "An example: monitor rules input_starved" in " ".join(done.stdout.split())
    for text in ("[input_starved]", "D2 §4", "DataLoader("):
        assert text not in done.stdout
        assert text in monitor("diagnose", trace, "--all").stdout


def test_formats_are_chosen_by_name(monitor: Monitor, trace: Path, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()

    def written(name: str) -> str:
        done = monitor("diagnose", trace, "--format", name, "--fail-on", "high", cwd=tmp_path)
        assert done.returncode == Exit.FINDINGS
        return done.stdout

    answer = answered(monitor, trace)
    assert json.loads(written("json")) == answer
    (run,) = json.loads(written("sarif"))["runs"]
    rules_of = [each["rule"] for each in answer["findings"]]
    assert [each["ruleId"] for each in run["results"]] == rules_of
    assert written("github").count("::error ") + written("github").count("::warning ") >= 1
    assert written("markdown").startswith("### whyidle: ")


def test_two_formats_are_one_too_many(monitor: Monitor, trace: Path) -> None:
    done = monitor("diagnose", trace, "--json", "--format", "sarif")
    assert done.returncode == Exit.USAGE
    assert "Give one of them." in done.stderr


@pytest.mark.parametrize(("level", "code"), [("high", Exit.FINDINGS), ("info", Exit.FINDINGS)])
def test_a_script_can_fail_on_findings(
    monitor: Monitor, trace: Path, level: str, code: int
) -> None:
    assert monitor("diagnose", trace, "--fail-on", level).returncode == code


def test_a_run_in_which_nothing_is_that_wrong_passes(monitor: Monitor, healthy: Path) -> None:
    done = monitor("diagnose", healthy, "--fail-on", "high")
    assert done.returncode == 0, done.stderr
    assert "Nothing worth fixing" in done.stdout


@pytest.mark.parametrize("level", ["high", "low"])
def test_a_script_does_not_pass_where_most_of_the_time_is_unknown(
    monitor: Monitor, unknown: Path, level: str
) -> None:
    done = monitor("diagnose", unknown, "--fail-on", level)
    assert "Too little is known" in done.stdout
    assert done.returncode == Exit.NOT_JUDGED
    assert "where most of the time goes is unknown" in done.stderr


def test_a_script_fails_where_nothing_could_be_judged(monitor: Monitor, state: Path) -> None:
    with Writer.open(state / DATABASE) as writer:
        number = writer.begin_run(NewRun(started_ms=START_MS))
        writer.append(number, Tick(START_MS, {Scope.JOB: {number: Reading({})}}))
        writer.end_run(number, "job ended")
    done = monitor("diagnose", "--fail-on", "high")
    assert done.returncode == Exit.NOT_JUDGED
    # Nothing was measured: that is no good health.
    assert "Too little is known" in done.stdout
    assert "no trace was taken" in done.stderr
    assert "It needs a trace" in done.stderr
    # Who does not ask to fail gets the page alone.
    assert monitor("diagnose").returncode == 0
    answer = answered(monitor)
    check_contract(answer)
    assert answer["budget"] is None
    assert answer["unknown"]["budget"]


def test_a_summary_has_the_findings(monitor: Monitor, run: int) -> None:
    (answer,) = lines(monitor("runs", run, "--json").stdout)
    assert answer["findings"][0]["rule"] == "input_starved"
    assert "finding  HIGH" in monitor("runs", run).stdout


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        ("nosuch", Exit.USAGE, "no recording and no file 'nosuch'"),
        ("99999999", Exit.GONE, "no recording and no process 99999999"),
        ("/etc/hostname", Exit.USAGE, "no trace that we read"),
    ],
)
def test_bad_targets(monitor: Monitor, run: int, target: str, code: int, said: str) -> None:
    assert run
    done = monitor("diagnose", target)
    assert done.returncode == code
    assert said in done.stderr


def test_a_run_is_not_watched_again(monitor: Monitor, run: int) -> None:
    done = monitor("diagnose", run, "--seconds", "3")
    assert done.returncode == Exit.USAGE
    assert "not being recorded" in done.stderr


def test_the_rules_are_listed(monitor: Monitor) -> None:
    (answer,) = lines(monitor("rules", "--json").stdout)
    listed = {each["rule"]: each for each in answer["rules"]}
    assert listed.keys() == rules.load().keys()
    assert listed["input_starved"]["state"] == "built"


def test_a_rule_that_cannot_be_loaded_is_named_beside_the_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Loaded(rules.load(), {"broken": "ModuleNotFoundError: no_such_module"})
    monkeypatch.setattr(rules, "loaded", lambda: broken)
    assert listing.callback is not None
    listing.callback(rule=None, as_json=True)
    printed = capsys.readouterr()
    (answer,) = lines(printed.out)
    assert answer["failed"] == broken.broken
    assert {each["rule"] for each in answer["rules"]} == set(broken.rules)
    assert "'broken' cannot be loaded" in printed.err


def test_the_page_of_a_rule(monitor: Monitor) -> None:
    page = monitor("rules", "input_starved").stdout
    for heading in ("What it sees", "Why it costs", "How to fix", "When it is wrong", "Documents"):
        assert heading in page
    assert "num_workers" in page


def test_a_rule_that_is_spelt_wrong(monitor: Monitor) -> None:
    done = monitor("rules", "input_starve")
    assert done.returncode == Exit.USAGE
    assert "monitor rules input_starved" in done.stderr


@pytest.mark.parametrize("share", [0.05, 0.7])
@pytest.mark.parametrize("command", ["trace", "diagnose"])
@pytest.mark.parametrize(
    "file", ["kineto/cpu_plain.json.gz", "xplane/cpu_marked_frames.xplane.pb.gz"]
)
def test_a_file_that_is_cut_off_says_so_first(
    monitor: Monitor, tmp_path: Path, file: str, command: str, share: float
) -> None:
    whole = gzip.decompress((ROOT / "tests" / "data" / "traces" / file).read_bytes())
    cut = tmp_path / f"cut{''.join(Path(file).suffixes[:-1])}"
    cut.write_bytes(whole[: int(len(whole) * share)])
    done = monitor(command, cut)
    assert done.stdout.startswith("! The file is cut off")
    assert done.stdout.count("cut off") == 1
    assert done.returncode == Exit.PARTIAL
    answer = monitor(command, cut, "--json")
    assert answer.returncode == Exit.PARTIAL
    assert any("The file is cut off" in text for text in lines(answer.stdout)[0]["warnings"])
    cut.write_bytes(whole)
    assert monitor(command, cut).returncode == Exit.OK

"""Findings for code hosts: SARIF, annotations, Markdown; the same ones as in JSON, and escaped."""

from __future__ import annotations

import gzip
import html
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast
from urllib.parse import unquote

import jsonschema
import pytest
from msgspec import convert, structs, to_builtins
from rich.console import Console

from tests.conftest import ROOT
from tests.render.snapshots import snapshot
from tests.rules.windows import WINDOWS, recorded
from whyidle.dashboard.pages import _finding_card
from whyidle.monitor.callbacks.watched import verdict
from whyidle.monitor.core.contracts.diagnosis import (
    CalledPlaceJson,
    DiagnosisJson,
    HostRowJson,
    PlaceJson,
    VerdictJson,
)
from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.diagnosis.diagnose import Diagnosis, as_json, diagnose
from whyidle.monitor.recording.telling import said
from whyidle.monitor.render import (
    finding_lines,
    finding_text,
    github,
    markdown,
    report_html,
    report_markdown,
    sarif,
)
from whyidle.monitor.render.findings import screen
from whyidle.monitor.render.live import advice, pages
from whyidle.monitor.render.places import Repository
from whyidle.monitor.render.report import Report
from whyidle.monitor.serve import brief

SCHEMA: Final = ROOT / "tests" / "data" / "sarif" / "sarif-schema-2.1.0.json.gz"
HOSTILE: Final = (
    "<script>alert(1)</script> ](javascript:x) `'\" \u202egnp.exe %0A::error::no @all #1"
    " | \x1b[31m\r\n::warning::x https://evil.example :smile: " + "long " * 200
)


@pytest.fixture(scope="module")
def validator() -> Any:
    return jsonschema.Draft4Validator(json.loads(gzip.decompress(SCHEMA.read_bytes())))


def recordings() -> list[str]:
    """The recorded pairs, before the fix of each."""
    found = sorted(WINDOWS.glob("**/before_*.json.gz"))
    return [str(path.relative_to(WINDOWS)).removesuffix(".json.gz") for path in found]


def hostile(answer: DiagnosisJson) -> DiagnosisJson:
    """The same answer of a job whose every text means ill."""
    ours = {"rule", "severity", "slice", "confidence", "paced_by", "unit", "class", "also_seen"}

    def poisoned(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {k: poisoned(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [poisoned(each, key) for each in value]
        return f"{value}{HOSTILE}" if isinstance(value, str) and key not in ours else value

    plain = to_builtins(answer)
    found = [poisoned(each) | {"fixes": each["fixes"]} for each in plain["findings"]]
    texts = {"warnings": [HOSTILE], "target": f"run {HOSTILE}"}
    said = {**plain, **texts, "findings": found, "verdict": poisoned(plain["verdict"])}
    return convert(said, DiagnosisJson)


def diagnosed(name: str) -> Diagnosis:
    return diagnose(recorded(name))


def by_sarif(answer: DiagnosisJson, repository: Repository) -> list[tuple[str, str]]:
    (run,) = sarif.document(answer, repository)["runs"]
    return [(each["ruleId"], each["properties"]["severity"]) for each in run["results"]]


def by_annotations(answer: DiagnosisJson, repository: Repository) -> list[tuple[str, str]]:
    lines = github.page(answer, repository).splitlines()
    found = [re.match(r"::(error|warning|notice) .*?title=.*?\[(\w+)\]::", each) for each in lines]
    return [(each[2], each[1]) for each in found if each]


def by_markdown(answer: DiagnosisJson, repository: Repository) -> list[tuple[str, str]]:
    return of_markdown(markdown.page(answer, repository))


def of_markdown(text: str) -> list[tuple[str, str]]:
    found = re.findall(r"<summary>. <b>(\w+)</b>.*<code>(\S+)</code></summary>", text)
    return [(rule.replace("&#95;", "_"), severity.lower()) for severity, rule in found]


def by_screen(found: Diagnosis) -> list[tuple[str, str]]:
    console = Console(width=400, highlight=False)
    text = screen(as_json(found), everything=True, console=console)
    heads = re.findall(r"^(HIGH|MEDIUM|LOW|INFO) .*\[(\w+)\]", text, re.MULTILINE)
    return [(rule, severity.lower()) for severity, rule in heads]


def by_report(found: Diagnosis) -> list[tuple[str, str]]:
    text = report_html.page(Report.of(found.window, as_json(found), None))
    return re.findall(r'data-rule="(\w+)"\s+data-severity="(\w+)"', text)


def by_report_text(found: Diagnosis) -> list[tuple[str, str]]:
    """`monitor report --format markdown`."""
    return of_markdown(report_markdown.page(Report.of(found.window, as_json(found), None)))


def by_notebook(
    answer: DiagnosisJson, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[str, str]]:
    """What stands under a cell: the Markdown of the command, as it is."""
    pytest.importorskip("IPython")
    from whyidle.monitor.callbacks import notebook  # noqa: PLC0415  it wants IPython

    def command(*words: str) -> str:
        assert words == ("diagnose", "7", "--format", "markdown")
        return markdown.page(answer, repository)

    monkeypatch.setattr(notebook, "_monitor", command)
    recording = object.__new__(notebook._Recording)
    recording.run = "7"
    return of_markdown(recording.findings().data)


def by_callback(answer: DiagnosisJson) -> list[tuple[str, str]]:
    """The verdict that a trainer prints at the end, and how many it leaves out."""
    told = said(replace(snapshot(), findings=tuple(answer.findings)))
    lines = verdict(told).splitlines()[1:]
    heads = (re.match(r"  (HIGH|MEDIUM|LOW|INFO) .*\[(\w+)\]$", line) for line in lines)
    shown = [(head[2], head[1].lower()) for head in heads if head]
    rest = [(each.rule, each.severity) for each in answer.findings[len(shown) :]]
    assert not rest or f"{len(rest)} more" in lines[-1]
    return shown + cast(Any, rest)


def by_agent(answer: DiagnosisJson, repository: Repository) -> list[tuple[str, str]]:
    """What the tool get_findings of `monitor mcp` says."""
    said = cast(Any, brief.findings(answer, repository))
    rest = {each.rule: each.severity for each in answer.findings}
    shown = [(each["rule"], each["severity"]) for each in said["findings"]]
    return shown + [(rule, rest[rule]) for rule in said["more"]]


def by_page(answer: DiagnosisJson, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The cards of the page Fix."""
    text: list[str] = []
    monkeypatch.setattr(_finding_card, "write", text.append)
    for each in answer.findings:
        _finding_card.head(each, (), 1)
    return [
        (rule, severity.lower())
        for severity, rule in re.findall(r">(\w+)</span><b>.*finding=(\w+)", "\n".join(text))
    ]


@pytest.mark.parametrize("name", recordings())
def test_every_surface_shows_the_findings_of_the_answer(
    name: str, tmp_path: Path, validator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = diagnosed(name)
    answer = as_json(found)
    expected = [(each.rule, each.severity) for each in answer.findings]
    repository = Repository.around(tmp_path)
    assert by_sarif(answer, repository) == expected
    assert by_markdown(answer, repository) == expected
    assert by_screen(found) == expected
    assert by_report(found) == expected
    assert by_report_text(found) == expected
    assert by_notebook(answer, repository, monkeypatch) == expected
    assert by_callback(answer) == expected
    assert by_agent(answer, repository) == expected
    assert by_page(answer, monkeypatch) == expected
    levels = [(rule, github.LEVELS[severity]) for rule, severity in expected]
    assert by_annotations(answer, repository) == levels
    validator.validate(sarif.document(answer, repository))


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A repository with the program that an answer names by its path elsewhere."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "jobs" / "deep").mkdir(parents=True)
    (tmp_path / "jobs" / "train.py").write_text("pass\n" * 50)
    return Repository.around(tmp_path / "jobs" / "deep")


def answer_at(file: str, line: int = 12) -> DiagnosisJson:
    answer = as_json(diagnosed("input_starved/before_torch"))
    place = CalledPlaceJson(file=file, line=line, function="main", share=0.5, chain=[])
    (first, *_) = answer.findings
    return structs.replace(answer, findings=[structs.replace(first, where=[place])])


@pytest.mark.parametrize("where", ["here", "in a container", "relative"])
def test_a_line_is_named_as_the_repository_knows_it(repository: Repository, where: str) -> None:
    file = {
        "here": str(repository.root / "jobs" / "train.py"),
        "in a container": "/workspace/no-such-folder/jobs/train.py",
        "relative": "jobs/train.py",
    }[where]
    answer = answer_at(file)
    (result,) = sarif.document(answer, repository)["runs"][0]["results"]
    (location,) = result["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "jobs/train.py", "uriBaseId": "SRCROOT"},
        "region": {"startLine": 12},
    }
    assert "::error file=jobs/train.py,line=12,title=" in github.page(answer, repository)
    assert "jobs/train.py:12" in markdown.page(answer, repository)


@pytest.mark.parametrize("file", ["/usr/lib/python3/os.py", "../../etc/passwd", "<string>", "a\n"])
def test_a_line_outside_is_never_taken_for_one_of_the_repository(
    repository: Repository, file: str
) -> None:
    assert repository.path(file) is None
    assert "file=" not in github.page(answer_at(file), repository)


def test_a_folder_that_is_gone_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(UsageProblem, match="has been deleted"):
        Repository.here()


def test_a_fault_keeps_its_fingerprint_while_its_line_moves(
    repository: Repository, tmp_path: Path
) -> None:
    def printed(file: str, line: int) -> str:
        (result,) = sarif.document(answer_at(file, line), repository)["runs"][0]["results"]
        return str(result["partialFingerprints"][sarif.FINGERPRINT])

    one = printed("jobs/train.py", 12)
    assert one == printed(str(tmp_path / "jobs" / "train.py"), 30)
    assert one != printed("jobs/other.py", 12)


def test_a_fault_of_the_whole_job_stands_where_its_loop_is_called(repository: Repository) -> None:
    answer = answer_at("jobs/train.py")
    frames = [PlaceJson(file="jobs/train.py", line=n, function="f") for n in (9, 5)]
    answer.host.rows[:] = [HostRowJson(doing="python", share=1.0, chain=frames)]
    answer.findings[0].where.clear()
    (result,) = sarif.document(answer, repository)["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 5}
    assert sarif.NOT_ITS_OWN in result["message"]["text"]
    assert "file=jobs/train.py,line=5" in github.page(answer, repository)


def test_a_job_that_means_ill_steers_no_host(repository: Repository, validator: Any) -> None:
    plain = as_json(diagnosed("input_starved/before_torch"))
    answer = hostile(plain)
    document = sarif.document(answer, repository)
    validator.validate(document)
    assert "](" not in "".join(r["message"]["text"] for r in document["runs"][0]["results"])
    commands = github.page(answer, repository).split("\n")
    assert len(commands) == len(plain.findings)
    for command in commands:
        assert command.isprintable()
        assert len(re.findall(r"(?<!:)::(?!:)", command.partition("::")[2][:40])) <= 1
        properties, _, _ = command.removeprefix("::").partition("::")
        assert "title=" in properties
        assert all("=" in each for each in properties.split(" ", 1)[1].split(","))
    text = markdown.page(answer, repository)
    for sign in ("<script", "](", "\x1b", "\u202e", "https://", " @all", "\n::warning"):
        assert sign not in text, sign
    assert max(map(len, text.splitlines())) < 20_000


def test_sarif_does_not_say_where_the_checkout_lies(repository: Repository) -> None:
    inside = sarif.page(answer_at(str(repository.root / "jobs" / "train.py")), repository)
    assert str(repository.root) not in inside
    outside = sarif.page(answer_at("/home/somebody/lib/x.py"), repository)
    assert "somebody" not in outside


@pytest.mark.parametrize("share", [0.53, None])
def test_a_verdict_that_no_finding_is_about(share: float | None, repository: Repository) -> None:
    answer = answer_at("jobs/train.py")
    where = answer.findings[0].where
    said = VerdictJson(text=f"No known cause{HOSTILE}", share=share, where=[*where])
    answer = structs.replace(answer, findings=[], verdict=said)
    page = github.page(answer, repository)
    # Nothing that costs time is no notice.
    assert page.startswith("::notice file=jobs/train.py,line=12" if share else "")
    assert bool(page) is (share is not None)
    assert page.isprintable()
    shown = sarif.document(answer, repository)["runs"][0]["properties"]["verdict"]
    assert shown["where"] == ["jobs/train.py:12"]
    assert shown["text"].startswith("No known cause")
    assert shown["text"].isprintable()
    (line, *_) = advice.lines(advice.of(replace(snapshot(), verdict=answer.verdict)), 80)
    assert line.plain.startswith("No known cause")
    assert line.plain.isprintable()
    assert line.cell_len <= 80


def test_a_verdict_says_its_place_once_and_steers_no_terminal() -> None:
    answer = answer_at("/jobs/train.py")
    where = [*answer.findings[0].where]
    waits = VerdictJson(
        text="No known cause: 53% of the time is waiting, at train.py:12.",
        what="No known cause: 53% of the time is waiting.", share=0.53, where=where,
    )  # fmt: skip
    told = said(replace(snapshot(), verdict=waits))["verdict"]
    assert told == "No known cause: 53% of the time is waiting, at train.py:12."
    live = [x.plain for x in advice.lines(advice.of(replace(snapshot(), verdict=waits)), 80)]
    assert sum("train.py:12" in line for line in live) == 1
    hostile = structs.replace(waits, text=f"No known cause{HOSTILE}")
    found = SimpleNamespace(verdict=hostile, findings=(), title=SimpleNamespace(run=1))
    assert all(line.plain.isprintable() for line in pages.lines("d", cast(Any, found), 80))
    summary = SimpleNamespace(
        diagnosis=structs.replace(answer, verdict=hostile), run=SimpleNamespace(id=1)
    )
    assert all(line.isprintable() for line in finding_lines.page(cast(Any, summary)))


def flat(text: str) -> str:
    """The same without markup, escapes and line breaks."""
    return " ".join(re.sub(r"</?[a-z][^<>]*>", "", html.unescape(html.unescape(text))).split())


def words(value: Any) -> Iterator[str]:
    """Yield all texts of a document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from words(each)


@pytest.mark.parametrize("name", recordings())
def test_every_surface_says_the_same_numbers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, repository = as_json(diagnosed(name)), Repository.around(tmp_path)
    first = finding_text.of(answer.findings[0])
    page: list[str] = []
    monkeypatch.setattr(_finding_card, "write", page.append)
    _finding_card.head(answer.findings[0], (), 1)
    report = Report.of(diagnosed(name).window, answer, None)
    surfaces = {
        "terminal": screen(answer, everything=True, console=Console(width=2000, highlight=False)),
        "Markdown": markdown.page(answer, repository),
        "report": report_html.page(report),
        "report as text": report_markdown.page(report),
        "agents": json.dumps(brief.findings(answer, repository), ensure_ascii=False),
        "SARIF": "\n".join(words(sarif.document(answer, repository))),
        "code hosts": unquote(github.page(answer, repository)),
        "page": "\n".join(page),
    }
    lacking = [
        at for at, text in surfaces.items() if flat(first.gain or first.title) not in flat(text)
    ]
    assert lacking == []
    # Its share and its line, as the verdict has them.
    said = flat(answer.verdict.what.rstrip("."))
    told = [at for at in surfaces if at not in {"page", "code hosts"}]
    assert [at for at in told if said not in flat(surfaces[at])] == []

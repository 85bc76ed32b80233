"""The report: all of it in one file, the findings of the answer, hostile names, masked secrets."""

from __future__ import annotations

import json
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from tests.commands.tracefiles import kineto
from tests.conftest import Monitor
from tests.render.test_hosts import HOSTILE, hostile, recordings
from tests.rules.windows import recorded
from whyidle.monitor.core.contracts.diagnosis import CalledPlaceJson, DiagnosisJson, PlaceJson
from whyidle.monitor.core.errors import Exit
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.diagnosis.diagnose import as_json, diagnose
from whyidle.monitor.render import github, report_html, report_markdown, sarif
from whyidle.monitor.render.finding_text import gain
from whyidle.monitor.render.places import homeless
from whyidle.monitor.render.report import Report, excerpt
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.account import account_of
from whyidle.monitor.store import NewRun, Writer

SECRET = "hf_abcdefghijklmnopqrstuv"
MOST_BYTES = 3 << 20


class Page(HTMLParser):
    """Which tags and attributes a page has, and its words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data

    @property
    def findings(self) -> list[tuple[str | None, str | None]]:
        sections = [of for tag, of in self.tags if tag == "section"]
        return [(of["data-rule"], of["data-severity"]) for of in sections]


def made(name: str) -> Report:
    window = recorded(name)
    return Report.of(window, as_json(diagnose(window)), None)


@pytest.mark.parametrize("name", recordings()[::4])
def test_it_shows_the_findings_of_the_answer(name: str) -> None:
    report = made(name)
    expected = [(each.rule, each.severity) for each in report.answer.findings]
    text = report_html.page(report)
    assert Page(text).findings == expected
    assert len(text) < MOST_BYTES
    written = report_markdown.page(report)
    assert len(written) < report_markdown.LONGEST + 200
    for rule, _ in expected:
        assert rule.replace("_", "&#95;") in written


def test_it_needs_nothing_else() -> None:
    page = Page(report_html.page(made("input_starved/before_torch")))
    assert {tag for tag, _ in page.tags}.isdisjoint({"link", "img", "iframe", "object", "base"})
    assert not [of for _, of in page.tags if {"src", "href", "onclick", "onerror"} & of.keys()]
    assert "default-src 'none'" in str(page.tags)


def evil_report() -> Report:
    """A job whose every text means ill: its lines, functions, facts, and command."""
    window = recorded("input_starved/before_torch")
    stacks = StackSamples()
    for depth in range(6):
        lines = tuple(CodeLine(f"/job/{HOSTILE}.py", n, f"f{n}{HOSTILE}") for n in range(depth + 1))
        stacks.samples += 10
        stacks.count(Chain(lines, lines[0]), 10, 10, 0.0)
    report = Report.of(window, hostile(as_json(diagnose(window))), None)
    environment = {"command": HOSTILE, HOSTILE: HOSTILE}
    return Report(
        report.answer, environment, report.repository, account_of(stacks), 1e6, report.code
    )


def test_a_hostile_name_is_text_and_nothing_else() -> None:
    report = evil_report()
    text = report_html.page(report)
    page = Page(text)
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert "alert(1)" in page.words
    for sign in ("\u202e", "\x1b", "long " * 100):
        assert sign not in text
    plain = [made(f"{name}/before_torch") for name in ("input_starved", "checkpoint_blocks")]
    ours = {
        (tag, name)
        for each in plain
        for tag, of in Page(report_html.page(each)).tags
        for name in of
    }
    assert {(tag, name) for tag, of in page.tags for name in of} <= ours
    written = report_markdown.page(report)
    for sign in ("<script", "](", "\u202e", "\x1b", "https://evil"):
        assert sign not in written


def test_code_is_masked_and_only_what_the_jobs_user_may_read(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(f"a = 1\ntoken = '{SECRET}'\nb = 2\n" + "x = 3\n" * 20)
    place = PlaceJson(file=str(program), line=3, function="f")
    found = excerpt(place, None)
    assert found is not None
    assert (found.first, len(found.lines), found.line) == (1, 6, 3)
    assert SECRET not in "".join(found.lines)
    program.chmod(0o600)
    assert excerpt(place, "no-such-user") is None
    for file, line in (("train.py", 1), (str(program), 99), (str(program), 0), ("/etc/passwd", 1)):
        assert excerpt(structs.replace(place, file=file, line=line), None) is None


def test_no_home_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/data/bob")
    assert homeless("a /data/bob/x.py, /home/al_ice/y.py, /Users/eve/z, /root/w") == (
        "a ~/x.py, ~/y.py, ~/z, ~/w"
    )
    assert homeless("jobs/home/al/x /srv/root/y /home") == "jobs/home/al/x /srv/root/y /home"
    report = made("input_starved/before_torch")
    (first, *_) = report.answer.findings
    place = CalledPlaceJson(file="/home/al_ice/train.py", line=3, function="f", chain=[])
    found = [structs.replace(first, where=[place])]
    answer = structs.replace(report.answer, findings=found)
    for text in (
        report_html.page(replace(report, answer=answer)),
        report_markdown.page(replace(report, answer=answer)),
        github.page(answer, report.repository),
        sarif.document(answer, report.repository)["runs"][0]["results"][0]["message"]["text"],
    ):
        assert "~/train.py:3" in unescape(text)
        assert "ice/" not in text


def test_what_is_kept_has_no_age() -> None:
    report = made("input_starved/before_torch")
    kept = msgspec.json.encode(report.answer).replace(b'"age_s":null', b'"age_s":9.0')
    answer = msgspec.json.decode(kept, type=DiagnosisJson)
    assert any(e.age_s for f in answer.findings for e in f.evidence)
    aged = replace(report, answer=answer)
    for text in (
        report_html.page(aged),
        report_markdown.page(aged),
        github.page(answer, report.repository),
        json.dumps(sarif.document(answer, report.repository)["runs"][0]["results"][0]["message"]),
    ):
        assert " ago)" not in text


@pytest.fixture
def run(state: Path) -> None:
    with Writer.open(state / DATABASE) as writer:
        command = f"python train.py --hf-token {SECRET}"
        number = writer.begin_run(
            NewRun(command=command, user="alice", host="secret-host", script="train.py")
        )
        writer.end_run(number, "job ended")


def test_the_command_writes_one_file(monitor: Monitor, run: None, tmp_path: Path) -> None:
    done = monitor("report", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("whyidle-*.html")
    assert path.name == "whyidle-run-1.html"
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    assert "train.py" in text
    for private in (SECRET, "alice", "secret-host"):
        assert private not in text
    again = monitor("report", cwd=tmp_path)
    assert again.returncode == Exit.USAGE
    assert "--force" in again.stderr
    assert monitor("report", "--force", cwd=tmp_path).returncode == 0
    text = monitor("report", "last", "--format", "markdown", "--out", "-").stdout
    assert text.startswith("### whyidle: ")
    assert SECRET not in text


def test_a_trace_has_a_report_too(monitor: Monitor, tmp_path: Path) -> None:
    import json  # noqa: PLC0415

    (tmp_path / "train.json").write_text(json.dumps(kineto()))
    done = monitor("report", "train.json", "--out", "page.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert ("input_starved", "high") in Page((tmp_path / "page.html").read_text()).findings


def test_a_range_whose_ends_read_the_same_is_one_number() -> None:
    (first, *_) = made("input_starved/before_torch").answer.findings
    said = gain(structs.replace(first, lost_share=[0.071, 0.074], speedup=[1.081, 1.084]))
    assert said is not None
    assert said.startswith("A step gets 1.08x faster.")

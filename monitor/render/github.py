"""Findings as workflow commands of GitHub Actions, which shows them at their lines.

``::warning file=F,line=N,title=T::message``; GitHub cuts the list at ten of each level a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from whyidle.monitor.core.contracts.comparison import GateJson
from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson, FindingJson
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.render import finding_text, gate, places
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.places import Repository

LEVELS: Final = {"high": "error", "medium": "warning", "low": "notice", "info": "notice"}


def page(answer: DiagnosisJson, repository: Repository) -> str:
    """Return a command for each finding, behind the verdict where no finding says it."""
    found = [_finding(each, answer, repository) for each in answer.findings]
    return "\n".join([*_verdict(answer, repository), *found])


def _verdict(answer: DiagnosisJson, repository: Repository) -> Iterator[str]:
    said = answer.verdict
    if said.rule is None and said.share is not None:
        where = [dict(_at(x.file, x.line, repository)) for x in said.where[:1]]
        yield _command("notice", where[0] if where else {}, "whyidle", [said.text])


def of_gate(answer: GateJson, diagnosis: DiagnosisJson, repository: Repository) -> Iterator[str]:
    """Yield a command for each reason why a gate failed, or was not judged."""
    where: dict[str, str] = {}
    title = f"Slower than {answer.baseline}"
    if (line := answer.grown) is not None:
        where = dict(_at(line.file, line.line, repository))
    if answer.is_slower:
        low, _, high = answer.comparison.speedup or (None, None, None)
        bounds = "" if low is None or high is None else f" [{low:.2f}, {high:.2f}]"
        text = [f"A step is slower, beyond noise: {_speed(answer)}x as fast{bounds}."]
        text += [] if line is None else [f"Most of it {gate.grown(line)}."]
        yield _command("error", where, title, text)
    elif answer.why_unknown:
        text = [f"It is not known whether it is slower: {answer.why_unknown}."]
        yield _command("warning", where, f"Not judged: {answer.baseline}", text)
    for finding in gate.new_findings(answer, diagnosis):
        yield _finding(finding, diagnosis, repository)


def of_failed_job(baseline: str, how: str) -> str:
    """Return the command for a job that failed before anything could be judged."""
    text = f"The job itself failed: {how}. It was not held against {baseline}."
    return _command("error", {}, "The job failed", [text])


def of_problem(problem: Problem) -> str:
    """Return the command for what kept a job from being started."""
    return _command("error", {}, problem.what, [problem.next_step])


def _speed(answer: GateJson) -> str:
    middle = (answer.comparison.speedup or [None, None, None])[1]
    return "?" if middle is None else f"{middle:.2f}"


def _finding(finding: FindingJson, answer: DiagnosisJson, repository: Repository) -> str:
    where = dict(_where(finding, answer, repository))
    said = finding_text.of(finding, repository.shown)
    title = f"{said.title} [{said.rule}]"
    return _command(LEVELS[finding.severity], where, title, said.sentences())


def _command(level: str, where: Mapping[str, str], title: str, text: Iterable[str]) -> str:
    properties = {**where, "title": printable(title)}
    written = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    message = "\n".join(printable(line) for line in text)
    return f"::{level} {written}::{_data(message)}"


def _where(
    finding: FindingJson, answer: DiagnosisJson, repository: Repository
) -> Iterator[tuple[str, str]]:
    place, _ = places.of(finding, answer)
    if place is not None:
        yield from _at(place.file, place.line, repository)


def _at(file: str, line: int, repository: Repository) -> Iterator[tuple[str, str]]:
    path = repository.path(file)
    if path is None:
        return
    yield "file", path
    if line > 0:
        yield "line", str(line)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")

"""Findings as SARIF 2.1.0, which code hosts and editors read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import quote

from msgspec import to_builtins

from whyidle.monitor import rules
from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson, FindingJson, PlaceJson
from whyidle.monitor.core.contracts.trace import JsonObject
from whyidle.monitor.render import finding_text, places
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.places import Repository
from whyidle.monitor.rules import Rule

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS: Final = {"high": "error", "medium": "warning", "low": "note", "info": "note"}
FINGERPRINT: Final = "whyidleFinding/v1"
_ROOT: Final = "SRCROOT"
NOT_ITS_OWN: Final = "It belongs to no single line; this is where the job's loop is called."


def page(answer: DiagnosisJson, repository: Repository) -> str:
    """Return the document as text."""
    return json.dumps(document(answer, repository), indent=1)


def document(answer: DiagnosisJson, repository: Repository) -> JsonObject:
    """Return the whole document."""
    ids = list(dict.fromkeys(f.rule for f in answer.findings))
    known = rules.load()
    run: JsonObject = {
        "tool": {
            "driver": {
                "name": "whyidle",
                "semanticVersion": _version(),
                "rules": [_rule(known[each]) for each in ids if each in known],
            }
        },
        # What stands before the slash is the same of each run: code hosts put runs in its place.
        "automationDetails": {"id": f"whyidle/{printable(answer.target)}"},
        # Where it lies, each reader knows for itself; the path here concerns nobody.
        "originalUriBaseIds": {_ROOT: {"description": {"text": "The root of the repository."}}},
        "invocations": [_invocation(answer)],
        "columnKind": "unicodeCodePoints",
        "results": [_result(each, answer, repository, ids) for each in answer.findings],
        "properties": {"verdict": _verdict(answer, repository)},
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _verdict(answer: DiagnosisJson, repository: Repository) -> JsonObject:
    """Return the verdict; of it a code host shows nothing, and a program can read all."""
    said = answer.verdict
    return {
        "text": printable(said.text),
        "share": said.share,
        "rule": said.rule,
        "where": [
            printable(f"{repository.shown(place.file)}:{place.line}") for place in said.where
        ],
    }


def _version() -> str:
    try:
        return version("whyidle")
    except PackageNotFoundError:
        return "0"


def _rule(rule: Rule) -> JsonObject:
    sections = rule.page.partition("\n## ")
    first = sections[2].partition("\n")[2].partition("\n\n")[0].replace("\n", " ").strip()
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.id.split("_")),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": first or rule.title},
        "help": {"text": rule.page, "markdown": "\n".join(_help(rule))},
        "properties": {"tags": [str(rule.kind), "performance"], "documents": [*rule.documents]},
    }


def _help(rule: Rule) -> Iterator[str]:
    yield rule.page
    for name, fix in rule.fixes.items():
        yield f"\n**{finding_text.framework(name)}**: {fix.text}"
        if fix.code:
            yield f"\n```python\n{fix.example}\n```"


def _result(
    finding: FindingJson, answer: DiagnosisJson, repository: Repository, ids: list[str]
) -> JsonObject:
    place, is_own = places.of(finding, answer)
    others = [*finding.where[1:], *(c for w in finding.where[:1] for c in w.chain)]
    said = finding_text.of(finding, repository.shown)
    text = [f"{said.title}.", *said.sentences()]
    uri = _artifact(place, answer, repository)
    return {
        "ruleId": finding.rule,
        "ruleIndex": ids.index(finding.rule),
        "level": LEVELS[finding.severity],
        "message": {"text": _message([*text, *([] if is_own else [NOT_ITS_OWN])])},
        "locations": [_location(place, uri)],
        "relatedLocations": [
            {"id": number, **_location(each, _artifact(each, answer, repository))}
            for number, each in enumerate(others, 1)
        ],
        # No line number: an edit above it makes no new fault.
        "partialFingerprints": {FINGERPRINT: _digest(finding.rule, str(uri["uri"]))},
        "properties": {
            name: to_builtins(getattr(finding, name))
            for name in (
                "severity",
                "confidence",
                "slice",
                "lost_share",
                "speedup",
                "expected",
                "evidence",
            )
        },
    }


def _message(text: Sequence[str]) -> str:
    # [words](address) would be a link.
    return "\n".join(text).replace("](", "] (")


def _digest(*parts: str) -> str:
    return sha256("\0".join(parts).encode(errors="backslashreplace")).hexdigest()[:32]


def _location(place: PlaceJson | None, artifact: JsonObject) -> JsonObject:
    # A line is needed to be shown; the first where only the file is known.
    line = 1 if place is None else max(1, place.line)
    physical = {"artifactLocation": artifact, "region": {"startLine": line}}
    if place is None or not place.function:
        return {"physicalLocation": physical}
    name = {"name": printable(place.function), "kind": "function"}
    return {"physicalLocation": physical, "logicalLocations": [name]}


def _artifact(place: PlaceJson | None, answer: DiagnosisJson, repository: Repository) -> JsonObject:
    """Return where it is: below the root, else the path without whose home it is in."""
    if place is None:
        return {"uri": _quoted(answer.target)}
    path = repository.path(place.file)
    if path is not None:
        return {"uri": _quoted(path), "uriBaseId": _ROOT}
    file = PurePosixPath(places.homeless(place.file))
    return {"uri": f"file://{_quoted(str(file))}" if file.is_absolute() else _quoted(str(file))}


def _quoted(path: str) -> str:
    return quote(path.encode(errors="backslashreplace"), safe="/")


def _invocation(answer: DiagnosisJson) -> JsonObject:
    """Return what could not be judged, and why; a rule that failed is a defect of ours."""
    failed = [
        {"level": "error", "message": {"text": printable(why)}, "associatedRule": {"id": rule}}
        for rule, why in answer.failed.items()
    ]
    warned = [
        {"level": "warning", "message": {"text": printable(text)}} for text in answer.warnings
    ]
    skipped = [
        {
            "level": "note",
            "message": {"text": printable(f"not checked: needs {each.needs}")},
            "associatedRule": {"id": each.rule},
        }
        for each in answer.not_checked
    ]
    return {
        "executionSuccessful": True,
        "toolExecutionNotifications": failed + warned,
        "toolConfigurationNotifications": skipped,
    }

"""A finding in sentences, for the places where code hosts show one: annotations, SARIF."""

from __future__ import annotations

from collections.abc import Iterator

from whyidle.monitor.core.contracts.diagnosis import FindingJson
from whyidle.monitor.core.finding import FRAMEWORKS
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.findings import called_by, gain, origin
from whyidle.monitor.render.numbers import amount
from whyidle.monitor.render.places import Repository


def lines(finding: FindingJson, repository: Repository) -> Iterator[str]:
    """Yield what was found, on what grounds, and what to change."""
    if (back := gain(finding)) is not None:
        yield back
    for e in finding["evidence"]:
        yield printable(f"{e['name']}: {amount(e['value'], e['unit'])} ({origin(e)})")
    for place in finding["where"]:
        share = "" if place["share"] is None else f", {place['share']:.0%}"
        at = f"{repository.shown(place['file'])}:{place['line']}"
        yield printable(f"at {at} in {place['function']}{share}")
        if place is finding["where"][0] and (callers := called_by(place)):
            yield printable(callers)
    for name, fix in finding["fixes"].items():
        yield f"{framework(name)}: {printable(fix['text'])}"
        yield from fix["code"].splitlines()
    yield f"More: monitor rules {finding['rule']}"


def framework(name: str) -> str:
    """Return how a framework writes its own name."""
    return next((words for each, words in FRAMEWORKS.items() if each == name), name)

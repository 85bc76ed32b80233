"""Answers for a program that reads every word: short, with units, without names of people.

What comes from a job is text that cannot act: no control characters, and never long.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import to_builtins
from msgspec.structs import replace

from whyidle.monitor.core.contracts.comparison import ComparisonJson, FaultJson
from whyidle.monitor.core.contracts.diagnosis import (
    CalledPlaceJson,
    DiagnosisJson,
    FindingJson,
    PlaceJson,
)
from whyidle.monitor.core.contracts.trace import BudgetJson, JsonObject
from whyidle.monitor.core.contracts.trying import SuggestedJson, TryJson
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.core.host_class import HOST_LOOKS, HostClass
from whyidle.monitor.core.slices import LOOKS
from whyidle.monitor.diagnosis.needs import MOSTLY_UNKNOWN
from whyidle.monitor.render import finding_text, trying
from whyidle.monitor.render.budget import in_order
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.finding_text import cost, gain
from whyidle.monitor.render.findings import by_need, overhead, without_work
from whyidle.monitor.render.numbers import amount
from whyidle.monitor.render.places import Repository, homeless
from whyidle.monitor.store import Run

LONGEST: Final = 400
# Of a list, what a reader can use; the rest is counted.
MOST_FINDINGS: Final = 8
MOST_LINES: Final = 6
MOST_RULES: Final = 12
MOST_NAMES: Final = 5
LEAST_SHARE: Final = 0.005


def text(value: str) -> str:
    """Return text of a job as one short line, without the home folder of anybody."""
    shown = printable(homeless(value))
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"


def said(problem: Problem) -> str:
    """Return a failure as a sentence, with what to do next."""
    return text(f"{problem.what} {problem.next_step}".rstrip())


def code(value: str) -> str:
    """Return lines of code."""
    return "\n".join(printable(line.expandtabs(4)) for line in value.splitlines())


def run(found: Run) -> JsonObject:
    """Return which recording it is, and how old it is."""
    now = time.time()
    ended = None if found.ended_ms is None else round(now - found.ended_ms / 1000, 1)
    state = "recording" if found.is_recording else f"over: {found.end_reason or 'recorder died'}"
    return {
        "run": found.id,
        "label": None if found.label is None else text(found.label),
        "script": None if found.script is None else text(found.script),
        "framework": found.framework,
        "pid": found.target_pid,
        "state": text(state),
        "started_s_ago": round(now - found.started_ms / 1000, 1),
        "ended_s_ago": ended,
    }


def findings(answer: DiagnosisJson, repository: Repository) -> JsonObject:
    """Return the verdict, and each finding in one object."""
    found = [_finding(each, repository) for each in answer.findings]
    needs = by_need(answer.not_checked)
    return {
        "verdict": text(answer.verdict.text),
        "abstained": why_abstained(answer),
        "findings": found[:MOST_FINDINGS],
        "more": [each["rule"] for each in found[MOST_FINDINGS:]],
        "not_checked": {text(need): _some(names) for need, names in needs.items()},
        "warnings": [text(each) for each in answer.warnings],
    }


def why_abstained(answer: DiagnosisJson) -> str | None:
    """Say why nothing found would mean nothing; ``None`` where it means that nothing is wrong."""
    if answer.is_known:
        return None
    return text(answer.unknown.get("budget") or MOSTLY_UNKNOWN)


def _some(names: list[str]) -> list[str]:
    more = len(names) - MOST_RULES
    return names if more <= 0 else [*names[:MOST_RULES], f"and {more} more"]


def _finding(finding: FindingJson, repository: Repository) -> JsonObject:
    fix = next(iter(finding.fixes.values()), None)
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "title": text(finding.title),
        "gain": gain(finding),
        "lost_share": finding.lost_share,
        "speedup": finding.speedup,
        "expected": finding.expected,
        "at": [_at(place, repository) for place in finding.where[:1]],
        "fix": None if fix is None else text(fix.text),
        "behind": None if finding.behind is None else text(finding.behind),
    }


def _at(place: PlaceJson, repository: Repository) -> str:
    said = finding_text.place(place, repository.shown)
    return text(f"{said.at} in {said.function}{said.share and f' ({said.share})'}")


def evidence(finding: FindingJson, repository: Repository) -> JsonObject:
    """Return one finding with all that it rests on, and code that fixes it."""
    numbers = [
        {
            "name": text(e.name),
            "value": text(e.value) if isinstance(e.value, str) else e.value,
            "unit": e.unit,
            "says": text(amount(e.value, e.unit)),
            "source": text(e.source),
            "age_s": e.age_s,
            "window_s": e.window_s,
        }
        for e in finding.evidence
    ]
    lost = cost(finding)
    return {
        "abstained": None,
        **_finding(finding, repository),
        "evidence": numbers,
        "at": [_called(place, repository) for place in finding.where[:MOST_LINES]],
        "fixes": {
            name: {"text": text(fix.text), "code": code(fix.code)}
            for name, fix in finding.fixes.items()
        },
        "costs": None if lost is None else text(lost),
        "also_seen": [text(each) for each in finding.also_seen],
        "documents": [text(each) for each in finding.documents],
        "page": f"whyidle://rules/{finding.rule}",
    }


def _called(place: CalledPlaceJson, repository: Repository) -> JsonObject:
    chain = place.chain[:MOST_NAMES]
    return {"line": _at(place, repository), "called_by": [_at(each, repository) for each in chain]}


def account(answer: DiagnosisJson, repository: Repository) -> JsonObject:
    """Return where the time goes: of the device, and of the main thread."""
    budget, host = answer.budget, answer.host
    rows = [
        {
            "share": row.share,
            "doing": HOST_LOOKS[HostClass(row.doing)].words,
            "at": next((_at(frame, repository) for frame in row.chain), None),
        }
        for row in host.rows[:MOST_LINES]
    ]
    said = overhead(answer.overhead)
    return {
        "abstained": text(answer.unknown.get("budget", "")) or None,
        "source": answer.budget_source,
        **parts(budget),
        "not_measured": {name: text(why) for name, why in answer.not_measured.items()},
        "main_thread": rows,
        "main_thread_samples": host.samples,
        "waits_for_work": without_work(host) or None,
        "phases": {phase.name: phase.share for phase in answer.phases},
        "unexplained_share": answer.unexplained,
        "watching": None if said is None else text(said),
    }


def parts(budget: BudgetJson | None) -> JsonObject:
    """Return the parts of an account, the largest first; shares add up to one."""
    if budget is None:
        return {"parts": None, "steps": None}
    total = sum(budget["slices"].values())
    return {
        "parts": [
            {
                "part": str(part),
                "words": LOOKS[part].words,
                "share": round(ns / total, 4),
                "ms": round(ns / 1e6, 3),
            }
            for part, ns in in_order(budget)
            if ns >= LEAST_SHARE * total
        ],
        "total_ms": round(total / 1e6, 3),
        "steps": budget["steps"],
    }


def comparison(found: ComparisonJson) -> JsonObject:
    """Return whether B is faster than A beyond noise, and what became of the findings."""
    speedup = found.speedup
    abstained = found.unknown.get("verdict") or (found.unknown.get("speedup"))
    is_open = found.verdict in {"uncertain", "unknown"}
    return {
        "verdict": f"B is {found.verdict}" if not is_open else found.verdict,
        "abstained": text(abstained or "the steps do not say") if is_open else None,
        "speedup_low_middle_high": speedup,
        "step_ms_low_middle_high": {
            side: None if ns is None else [None if n is None else round(n / 1e6, 3) for n in ns]
            for side, ns in found.step_ns.items()
        },
        "shares": _moved(found.shares),
        "findings_gone": _rules(found.findings_gone),
        "findings_new": _rules(found.findings_new),
        "findings_kept": _rules(found.findings_kept),
        "findings_unknown": _rules(found.findings_unknown),
        "setup": [
            {"name": text(each.name), "a": text(each.a), "b": text(each.b)}
            for each in found.setup[:MOST_RULES]
        ],
        "warnings": [text(each) for each in found.warnings],
    }


def tried(found: TryJson) -> JsonObject:
    """Return what a change in a running job gave, and that it was taken back."""
    ratio = found.ratio
    is_open = ratio is None or found.verdict == "not certain"
    why = "it may be chance" if ratio is not None else "too few steps were measured"
    return {
        "says": text(next(trying.lines(found))),
        "abstained": None if not is_open else text(found.stopped or why),
        "pid": found.pid,
        "run": found.run,
        "knob": text(found.knob),
        "old": _plain(found.old),
        "value": _plain(found.value),
        "verdict": found.verdict,
        "ratio_low_middle_high": None if ratio is None else [ratio.low, ratio.middle, ratio.high],
        "step_ms_without": _ms(found.step_s_without),
        "step_ms_with": _ms(found.step_s_with),
        "pairs": found.pairs,
        "steps": found.steps,
        "seconds": round(found.seconds, 1),
        "stopped": None if found.stopped is None else text(found.stopped),
        "state": found.state,
    }


def suggested(found: list[SuggestedJson]) -> list[JsonObject]:
    """Return what can be tried for each finding."""
    return [to_builtins(replace(x, title=text(x.title))) for x in found[:MOST_FINDINGS]]


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, bool | int | float) else text(str(value))


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 3)


def _moved(shares: Mapping[str, dict[str, float | None] | None]) -> JsonObject:
    """Return the parts of the time on both sides, those that matter on either."""
    kept = {name: both for name, both in shares.items() if both and _matters(both)}
    return {name: dict(both) for name, both in kept.items()}


def _matters(both: Mapping[str, float | None]) -> bool:
    return any((value or 0.0) >= LEAST_SHARE for value in both.values())


def _rules(faults: list[FaultJson]) -> list[JsonObject]:
    return [
        {
            "rule": each.rule,
            "severity_a": each.a,
            "severity_b": each.b,
            "why_unknown": each.why_unknown,
        }
        for each in faults[:MOST_RULES]
    ]


def places(answer: DiagnosisJson) -> Iterator[PlaceJson]:
    """Yield every line of the user's that an answer names, findings first."""
    for finding in answer.findings:
        for place in finding.where:
            yield place
            yield from place.chain
    for row in answer.host.rows:
        yield from row.chain
    cores = answer.host.cores
    yield from () if cores is None else cores.lines

"""Which findings are gone, which are new; and of which that is not known."""

from __future__ import annotations

from typing import Final

from whyidle.monitor.compare import crowd
from whyidle.monitor.compare.result import Fault, Faults
from whyidle.monitor.diagnosis.diagnose import Diagnosis, diagnose
from whyidle.monitor.diagnosis.needs import needs
from whyidle.monitor.diagnosis.ranking import Finding
from whyidle.monitor.signals.window import Window

# What it is about is the device itself: another one is its cure.
OF_THE_DEVICE: Final = "cpu_fallback"


def faults(a: Window, b: Window) -> Faults:
    """Ask the rules of both sides, and compare what they say."""
    one, two = _Judged(diagnose(a)), _Judged(diagnose(b))
    beside = [
        *(found for rule, found in one.found.items() if rule not in two.found),
        *(found for rule, found in two.found.items() if rule not in one.found),
    ]
    alone = [_fault(found.rule.id, one, two) for found in beside]
    crowded = {each.rule.id for each in beside if crowd.is_of_neighbours(each, a, b)}
    known = [fault for fault in alone if not fault.why_unknown and fault.rule not in crowded]
    return Faults(
        tuple(fault for fault in known if fault.b is None),
        tuple(fault for fault in known if fault.a is None),
        tuple(_fault(rule, one, two) for rule in one.found if rule in two.found),
        tuple(fault for fault in alone if fault.why_unknown),
        tuple(fault for fault in alone if not fault.why_unknown and fault.rule in crowded),
    )


class _Judged:
    """What the rules said of one side."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        self.device = diagnosis.window.device
        self.found: dict[str, Finding] = {each.rule.id: each for each in diagnosis.findings}
        # Rules that say nothing by themselves, and why.
        self.silent: dict[str, str] = {
            rule: f"not checked: needs {needs(diagnosis.window, verdict)}"
            for rule, verdict in diagnosis.not_checked
        }
        for rule in diagnosis.failed:
            self.silent[rule] = "the rule failed, a defect of whyidle"
        for each in diagnosis.findings:
            for rule in each.also_seen:
                self.silent[rule] = f"seen behind {each.rule.id}"


def _fault(rule: str, one: _Judged, two: _Judged) -> Fault:
    a, b = one.found.get(rule), two.found.get(rule)
    title = _title(a, b)
    has, other = (one, two) if b is None else (two, one)
    return Fault(
        rule,
        title,
        None if a is None else str(a.severity),
        None if b is None else str(b.severity),
        None if a is not None and b is not None else _why_unknown(rule, has, other),
    )


def _title(a: Finding | None, b: Finding | None) -> str:
    """Return the words for it: of one that stays, those that say it of both."""
    titles = [each.found.title or each.rule.title for each in (a, b) if each is not None]
    if a is not None and len(set(titles)) > 1:
        return a.rule.title
    return titles[0] if titles else ""


def _why_unknown(rule: str, has: _Judged, other: _Judged) -> str | None:
    """Say why it is not known whether the other side has it too."""
    unlike = has.device and other.device and has.device != other.device
    if unlike and rule != OF_THE_DEVICE:
        devices = f"{(other.device or '').upper()}, and not on a {(has.device or '').upper()}"
        return f"computes on a {devices}: the two cannot be compared"
    return other.silent.get(rule)

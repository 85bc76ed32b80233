"""Which findings are gone, which are new; and of which that is not known."""

from __future__ import annotations

from whyidle.monitor.compare.result import Fault, Faults
from whyidle.monitor.diagnose import Diagnosis, Finding, diagnose, needs
from whyidle.monitor.signals.window import Window


def faults(a: Window, b: Window) -> Faults:
    """Ask the rules of both sides, and compare what they say."""
    one, two = _Judged(diagnose(a)), _Judged(diagnose(b))
    gone = [_fault(rule, one, two) for rule in one.found if rule not in two.found]
    new = [_fault(rule, one, two) for rule in two.found if rule not in one.found]
    return Faults(
        tuple(fault for fault in gone if fault.why_unknown is None),
        tuple(fault for fault in new if fault.why_unknown is None),
        tuple(_fault(rule, one, two) for rule in one.found if rule in two.found),
        tuple(fault for fault in (*gone, *new) if fault.why_unknown is not None),
    )


class _Judged:
    """What the rules said of one side."""

    def __init__(self, diagnosis: Diagnosis) -> None:
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
    known = a or b
    title = "" if known is None else known.found.title or known.rule.title
    other = two if b is None else one
    return Fault(
        rule,
        title,
        None if a is None else str(a.severity),
        None if b is None else str(b.severity),
        None if a is not None and b is not None else other.silent.get(rule),
    )

"""What settings of ``core/settings.py`` a window shows as on, and a finding of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from whyidle.monitor.code.source import text_of
from whyidle.monitor.core.finding import PROBES, Confidence, Fix, Found, Framework, Place, Severity
from whyidle.monitor.core.settings import SETTINGS, VARIABLES, Purpose, Setting, Where
from whyidle.monitor.libraries.users import is_users
from whyidle.monitor.signals.user_lines import asking
from whyidle.monitor.signals.window import Window

# A call or an assignment, and no mere mention.
_SETS: Final = r"\b{name}\b['\"\])]*\s*[(,=]"
# At the top of a file, before the framework is imported: what stands deeper may not run.
_WRITTEN: Final = re.compile(
    r"^(?:os\.)?environ(?:\[|\.setdefault\()\s*['\"](\w+)['\"]\s*(?:\]\s*=|,)\s*['\"]([^'\"]*)['\"]",
    re.MULTILINE,
)


class SaidBy(StrEnum):
    """Who says how a setting stands, the best first."""

    AGENT = "agent"
    # The environment that the job was started with.
    PROC = "/proc"
    # A line of the user's that sets a variable.
    SOURCE = "source text"


@dataclass(frozen=True, slots=True)
class On:
    """A setting that costs this job time."""

    setting: Setting
    value: Any
    said_by: SaidBy
    frameworks: tuple[Framework, ...]
    # How much it matters, as far as that is sure.
    severity: Severity


def is_known(window: Window, purpose: Purpose) -> bool:
    """Tell whether anything says how any of them stands."""
    return any(
        each.said(_facts(window, each)) is not None for each in SETTINGS if each.purpose is purpose
    )


def switched_on(window: Window, purpose: Purpose) -> list[On]:
    """Return those that are on, where they matter to this job; the most costly first."""
    found, written = [], _written(window)
    for each in SETTINGS:
        used = tuple(x for x in each.frameworks if not window.frameworks or window.uses(x))
        if each.purpose is not purpose or not used or not _matters(window, each.where):
            continue
        values = {
            SaidBy.AGENT: each.said(_facts(window, each)),
            SaidBy.PROC: each.given(window.job.settings),
            SaidBy.SOURCE: each.given(written),
        }
        known = [(who, value) for who, value in values.items() if value is not None]
        if known and each.costs(known[0][1]):
            who, value = known[0]
            severity = each.severity
            if window.device == "cpu" and each.severity_on_cpu is not None:
                severity = each.severity_on_cpu
            if who is SaidBy.SOURCE:
                # What stands in the text alone is never loud.
                severity = max(severity, Severity.LOW, key=lambda x: x.rank)
            found.append(On(each, value, who, used, severity))
    return sorted(found, key=lambda each: each.severity.rank)


def _written(window: Window) -> dict[str, str]:
    """Return the variables that the job sets for itself, by the text of its files."""
    files = dict.fromkeys(line.file for line in window.job.lines if is_users(line.file))
    pairs = (pair for file in files for pair in _WRITTEN.findall(text_of(file) or ""))
    return {name: value for name, value in pairs if name in VARIABLES}


def finding(window: Window, on: list[On], advice: str, severity: Severity | None = None) -> Found:
    """Return what is said of them, without a gain."""
    frameworks, evidence = tuple(dict.fromkeys(x for each in on for x in each.frameworks)), []
    for each in on:
        name, value = each.setting.name, each.value
        given = isinstance(value, str) and value and "=" not in name
        words = f"{name}={value}" if given else name
        evidence.append(window.job.said("switched on", words, each.said_by))
    return Found(
        gain=None,
        evidence=tuple(evidence),
        where=_lines(window, on),
        severity=severity or on[0].severity,
        confidence=Confidence.HINTED,
        frameworks=frameworks,
        fixes=dict.fromkeys(frameworks, _fix(on, advice)),
    )


def _facts(window: Window, setting: Setting) -> Mapping[str, Any]:
    """Return what the frameworks of a setting say."""
    probes = (probe for x in setting.frameworks for probe, of in PROBES.items() if of == x)
    said = (window.job.facts.get(probe) or {} for probe in probes)
    return {name: value for facts in said for name, value in facts.items()}


def _matters(window: Window, where: Where) -> bool:
    """Tell whether it takes time of such a job; where that is not known, it does not."""
    has_gpu = window.device == "gpu" or any(gpu.owned for gpu in window.job.gpus)
    ranks = (window.fact("world_size"), window.fact("processes"))
    several = any(isinstance(number, int) and number > 1 for number in ranks)
    return {
        Where.ANY: True,
        Where.GPU: has_gpu,
        Where.SEVERAL: several,
        Where.SEVERAL_GPUS: several and has_gpu,
    }[where]


def _lines(window: Window, on: list[On]) -> tuple[Place, ...]:
    names = {x for each in on for x in (each.setting.name, each.setting.variable) if x is not None}
    bare = {name.partition("=")[0].rpartition(".")[2] for name in names}
    pattern = "|".join(_SETS.format(name=re.escape(name)) for name in sorted(bare))
    return asking(window.job, re.compile(pattern))


def _fix(on: list[On], advice: str) -> Fix:
    """Say what each does; the lines of Python are code."""
    does = "; ".join(f"{each.setting.name} {each.setting.does}" for each in on)
    instead = [each.setting.instead for each in on]
    code = [line for line in instead if "(" in line or " = " in line]
    shell = ", ".join(line for line in instead if line not in code)
    before = f" Before the job starts: {shell}." if shell else ""
    return Fix(f"{advice}{before} What it does: {does}.", "\n".join(code))

"""Changes of source code that mend findings, where they can be proved right."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from whyidle.monitor import fixes
from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson


@dataclass(frozen=True, slots=True)
class Diff:
    """A patch, as a page shows it."""

    title: str
    text: str
    notes: tuple[str, ...]


def diffs(answer: DiagnosisJson) -> dict[str, Diff]:
    """Return the patch of each finding that has one."""
    found = {}
    by_rule, cores = fixes.by_rule(), _cores(answer)
    for finding in answer.findings:
        # Each against the source as it is: a reader takes one of them.
        alone = replace(answer, findings=[finding])
        for _, patch in fixes.fix(alone, by_rule, cores).patches:
            found[finding.rule] = Diff(patch.title, fixes.diff(patch, Path.cwd()), patch.notes)
    return found


def _cores(answer: DiagnosisJson) -> int:
    cores = answer.host.cores
    return (os.cpu_count() or 1) if cores is None else max(1, int(cores.total))

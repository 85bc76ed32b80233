"""What a finding says to change, in the user's own code: the patch that ``monitor fix`` writes.

Where no change can be proved right the advice stays in words, with the place and the reason; where
an option of the user's sets the value, the advice is that option.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from whyidle.monitor.code.source import function_at
from whyidle.monitor.core.contracts.diagnosis import FindingJson, FixJson, HostRowJson, PlaceJson
from whyidle.monitor.core.finding import PROBES, at
from whyidle.monitor.core.pace import breathe
from whyidle.monitor.fixes import _snippet
from whyidle.monitor.fixes._codemod import Codemod, Patch, Refusal
from whyidle.monitor.fixes._findings import change_of, for_finding, of_rows


def advised(
    findings: Sequence[FindingJson],
    rows: Sequence[HostRowJson],
    codemods: Mapping[str, Sequence[Codemod]],
    cores: int,
) -> list[FindingJson]:
    """Return the findings with advice for the user's own code, as far as it can be read."""
    elsewhere = list(of_rows(findings, rows))
    found = []
    for finding in findings:
        breathe()
        mine = for_finding(finding, codemods)
        if not finding.fixes or not mine:
            found.append(finding)
            continue
        patch, refusals = change_of(finding, mine, elsewhere, cores, {}, allow_numerics=True)
        if patch is not None:
            fixes = _written(finding.fixes, patch, mine)
        else:
            fixes = _in_words(finding.fixes, refusals)
        found.append(replace(finding, fixes=fixes))
    return found


def _written(
    fixes: Mapping[str, FixJson], patch: Patch, codemods: Sequence[Codemod]
) -> dict[str, FixJson]:
    """Return the one fix that the patch is, with the statements that it changes."""
    codemod = next(each for each in codemods if each.id == patch.codemod)
    imported = {*re.findall(r"^\s*(?:import|from)\s+(\w+)", patch.after, re.MULTILINE)}
    own = [name for probe, name in PROBES.items() if probe in imported]
    own = [codemod.framework, *own] if codemod.framework else own
    name: str = next((each for each in own if each in fixes), next(iter(fixes)))
    notes = ("monitor fix --allow-numerics writes it.",) if codemod.changes_numbers else ()
    code = _snippet.of(patch, *notes)
    text = _filled(fixes[name].text, code or _snippet.whole(patch))
    if code is None:
        text = f"{text} monitor fix has the patch for {Path(patch.file).name}."
    return {name: FixJson(text=text, code=code or "", where=_edited(patch))}


def _filled(text: str, code: str) -> str:
    """Return a sentence with the numbers that the changed code has, where it says N."""
    for name in re.findall(r"(\w+)=N\b", text):
        given = re.search(rf"\b{name}=\d+\b", code)
        text = text if given is None else text.replace(f"{name}=N", given[0])
    return text


def _edited(there: Patch | Refusal) -> PlaceJson | UnsetType:
    """Return the line that a person has to change, where that is known."""
    if isinstance(there, Patch):
        line = _snippet.edited(there)
    else:
        line = there.line if there.edits else None
    if there.file is None or line is None:
        return UNSET
    return PlaceJson(file=there.file, line=line, function=function_at(there.file, line))


def _in_words(fixes: Mapping[str, FixJson], refusals: Sequence[Refusal]) -> dict[str, FixJson]:
    """Say which option to set; else at which line no change can be proved right, and why."""
    refused = min(refusals, key=lambda each: (each.instead is None, each.line is None))
    if refused.file is None or refused.line is None:
        return dict(fixes)
    place = at(refused.file, refused.line)
    if refused.instead is None:
        said = f"No automatic patch: at {place} {refused.why}."
        return {
            name: FixJson(text=f"{x.text} {said}", code=x.code, where=_edited(refused))
            for name, x in fixes.items()
        }
    said = f"{refused.instead[0].upper()}{refused.instead[1:]}. At {place} {refused.why}."
    return {name: FixJson(text=f"{said} {x.text}", code="") for name, x in fixes.items()}

"""From the findings of a job to patches, one after the other on the same text."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from whyidle.monitor.code.source import text_of
from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson, FindingJson, HostRowJson
from whyidle.monitor.fixes._codemod import Codemod, Patch, Refusal, Wanted
from whyidle.monitor.fixes._patching import patches_of
from whyidle.monitor.fixes._snippet import opcodes
from whyidle.monitor.libraries.users import is_users

NO_SOURCE: Final = "the source of the job is not on this machine"


@dataclass(slots=True)
class Fixed:
    """What became of the findings."""

    patches: list[tuple[FindingJson, Patch]] = field(default_factory=list)
    refused: list[tuple[FindingJson, list[Refusal]]] = field(default_factory=list)
    # Every changed file with all changes in it.
    texts: dict[str, str] = field(default_factory=dict)


def fix(
    answer: DiagnosisJson,
    codemods: Mapping[str, Sequence[Codemod]],
    cores: int,
    *,
    allow_numerics: bool = False,
) -> Fixed:
    """Return the patches of a job's findings, each on top of those before it."""
    found = Fixed()
    elsewhere = list(of_rows(answer.findings, answer.host.rows))
    for finding in answer.findings:
        mine = for_finding(finding, codemods)
        patch, refusals = change_of(
            finding, mine, elsewhere, cores, found.texts, allow_numerics=allow_numerics
        )
        if patch is None:
            found.refused.append((finding, refusals))
        else:
            found.texts[patch.file] = patch.after
            found.patches.append((finding, patch))
    return found


def for_finding(finding: FindingJson, codemods: Mapping[str, Sequence[Codemod]]) -> list[Codemod]:
    """Return the changes that write what a finding advises."""
    said = [f"{fix.text} {fix.code}" for fix in finding.fixes.values()]
    return [x for x in codemods.get(finding.rule, ()) if any(x.says in each for each in said)]


def change_of(
    finding: FindingJson,
    codemods: Sequence[Codemod],
    elsewhere: Sequence[tuple[str, int]],
    cores: int,
    changed: Mapping[str, str],
    *,
    allow_numerics: bool,
) -> tuple[Patch | None, list[Refusal]]:
    """Return the patch of one finding, on top of what is changed already; or why there is none."""
    if not codemods:
        return None, [Refusal(None, "no change of source is known for it")]
    measured = tuple((each.name, each.value) for each in finding.evidence)
    texts: list[tuple[str, str]] = []
    wanted: dict[str, Wanted] = {}
    for file, numbers in _lines(finding, elsewhere).items():
        original = text_of(file)
        if original is None or "\ufffd" in original:
            continue
        text = changed.get(file, original)
        texts.append((file, text))
        now = tuple(_moved(original, text, n) for n in numbers)
        wanted[file] = Wanted(finding.rule, now, cores, measured)
    if not texts:
        return None, [Refusal(None, NO_SOURCE)]
    patch, refusals = patches_of(codemods, texts, wanted, allow_numerics=allow_numerics)
    return patch, refusals or [Refusal(None, "nothing in the source is written as it expects")]


def _lines(finding: FindingJson, elsewhere: Sequence[tuple[str, int]]) -> dict[str, list[int]]:
    """Return where to look, file by file: at the lines found, at who calls them, anywhere else."""
    found: dict[str, list[int]] = {}
    for place in finding.where:
        found.setdefault(place.file, []).append(place.line)
    for place in finding.where:
        for caller in place.chain:
            found.setdefault(caller.file, []).append(caller.line)
    for file, line in elsewhere:
        if not finding.where or file not in found:
            found.setdefault(file, []).append(line)
    return {file: lines for file, lines in found.items() if is_users(file)}


def of_rows(
    findings: Sequence[FindingJson], rows: Sequence[HostRowJson]
) -> Iterator[tuple[str, int]]:
    """Yield the user's lines that the main thread was found at, whatever it did there."""
    for finding in findings:
        for place in finding.where:
            yield place.file, place.line
            for caller in place.chain:
                yield caller.file, caller.line
    for row in rows:
        for frame in row.chain:
            if Path(frame.file).is_absolute():
                yield frame.file, frame.line


def _moved(before: str, after: str, line: int) -> int:
    """Return the line that a line became after other changes."""
    if before == after:
        return line
    for _, a, b, c, _ in opcodes(before, after):
        if a <= line - 1 < b:
            return line - a + c
    return line


def diff(patch: Patch, here: Path) -> str:
    """Return a patch as a unified diff, as ``patch -p1`` and ``git apply`` read it."""
    path = Path(patch.file)
    name = path.relative_to(here) if path.is_relative_to(here) else Path(str(path).lstrip("/"))
    lines = difflib.unified_diff(
        patch.before.splitlines(keepends=True),
        patch.after.splitlines(keepends=True),
        f"a/{name}",
        f"b/{name}",
    )
    return "".join(x if x.endswith("\n") else f"{x}\n\\ No newline at end of file\n" for x in lines)

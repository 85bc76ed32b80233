"""``monitor fix``: the change that fixes a finding, as a patch; and whether it does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from whyidle.monitor import fixes
from whyidle.monitor.app import changed, windows
from whyidle.monitor.core.contracts.fix import FixJson, PatchJson, RefusedJson
from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.core.paths import database
from whyidle.monitor.diagnosis import diagnose
from whyidle.monitor.render import jsonl, patches
from whyidle.monitor.signals import opening

if TYPE_CHECKING:
    from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson, FindingJson
    from whyidle.monitor.fixes import Fixed, Patch, Refusal
    from whyidle.monitor.signals.window import Window


def run(
    *,
    target: str,
    rule: str | None,
    apply_to: Path | None,
    write: bool,
    force: bool,
    verify: str | None,
    check: str | None,
    turns: int,
    seconds: float,
    tolerance: float,
    allow_numerics: bool,
    as_json: bool,
) -> None:
    """Print the patches; write and verify them where that is asked for."""
    _needs(verify, check, write=write, force=force)
    window = _window(target)
    found, answer = fixed(window, rule, allow_numerics=allow_numerics)
    if found.texts:
        if write:
            changed.check(list(found.texts), force=force)
        if verify is not None:
            from whyidle.monitor.app.verify import Asked, verified  # noqa: PLC0415

            asked = Asked(verify, check, turns, seconds, tolerance)
            answer = replace(answer, verified=verified(found, asked))
        if apply_to is not None:
            answer.written.extend(changed.copied(found, apply_to))
        if write:
            answer.written.extend(changed.written(found))
    click.echo(jsonl.line(answer) if as_json else patches.screen(answer))


def _needs(verify: str | None, check: str | None, *, write: bool, force: bool) -> None:
    if check is not None and verify is None:
        raise UsageProblem("--check says what --verify compares.", "Give both, or none.")
    if force and not write:
        raise UsageProblem("--force is for --write.", "Give both, or none.")


def _window(target: str) -> Window:
    run = windows.run_of(target)
    return windows.of(target) if run is None else opening.of_run(database(), run)


def fixed(
    window: Window,
    rule: str | None,
    *,
    allow_numerics: bool,
    shown: Callable[[str], str] = str,
) -> tuple[Fixed, FixJson]:
    """Return the patches of what was found in a job, and the answer about them.

    ``shown`` says how a file is spelt in reasons.
    """
    answer = diagnose.as_json(diagnose.diagnose(window))
    if rule is not None:
        _check_rule(answer, rule)
        answer = replace(answer, findings=[each for each in answer.findings if each.rule == rule])
    cores = diagnose.cores_of(window)
    found = fixes.fix(answer, fixes.by_rule(), cores, allow_numerics=allow_numerics)
    here = Path.cwd()
    said = FixJson(
        target=window.target,
        patches=[_patch(finding, patch, here) for finding, patch in found.patches],
        refused=[_refused(finding, why, shown) for finding, why in found.refused],
    )
    return found, said


def _check_rule(answer: DiagnosisJson, rule: str) -> None:
    names = [each.rule for each in answer.findings]
    if rule not in names:
        then = f"Found: {', '.join(names)}" if names else "See: monitor diagnose"
        raise UsageProblem(f"'{rule}' was not found in this job.", then)


def _patch(finding: FindingJson, patch: Patch, here: Path) -> PatchJson:
    return PatchJson(
        rule=finding.rule,
        codemod=patch.codemod,
        title=patch.title,
        file=patch.file,
        diff=fixes.diff(patch, here),
        notes=list(patch.notes),
        speedup=finding.speedup,
        expected=finding.expected,
    )


def _refused(finding: FindingJson, why: list[Refusal], shown: Callable[[str], str]) -> RefusedJson:
    reasons = []
    for each in why:
        file = [] if each.file is None else [shown(each.file)]
        line = [] if each.line is None else [str(each.line)]
        where = ":".join([*file, *line])
        reasons.append(f"{where}: {each.why}" if file else each.why)
    advice = {name: fix.text for name, fix in finding.fixes.items()}
    instead = next((each.instead for each in why if each.instead is not None), None)
    said = list(dict.fromkeys(reasons))
    return RefusedJson(rule=finding.rule, why=said, advice=advice, instead=instead)

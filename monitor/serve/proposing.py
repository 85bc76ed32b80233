"""The tool that proposes a change of the user's source: a diff, and nothing is written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field

from whyidle.monitor import fixes, rules
from whyidle.monitor.app.fix import fixed
from whyidle.monitor.code.source import text_of
from whyidle.monitor.core.contracts.diagnosis import PlaceJson
from whyidle.monitor.core.contracts.trace import JsonObject
from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.core.paths import database
from whyidle.monitor.processes.secrets import mask_text
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.places import Repository
from whyidle.monitor.render.report import excerpt
from whyidle.monitor.serve import brief, reading
from whyidle.monitor.serve.reading import Answer, Target
from whyidle.monitor.signals import opening

if TYPE_CHECKING:
    from whyidle.monitor.core.contracts.fix import PatchJson
    from whyidle.monitor.fixes import Patch

MOST_LETTERS: Final = 12_000
_LITERAL: Final = re.compile(r"['\"#]")
NOT_SHOWN: Final = "the lines around the change may hold a secret, or are not text: see them with"


def propose_patch(
    rule: Annotated[
        str | None, Field(description="the rule of a finding; without it, of every finding")
    ] = None,
    target: Target = "last",
    allow_numerics: Annotated[
        bool, Field(description="also changes of what is computed, such as precision")
    ] = False,
) -> Answer:
    """Propose the change of the user's source that fixes a finding, as a diff; writes nothing.

    Only what the source proves right; else `refused` says why, with the advice instead. Several
    diffs build on each other in their order. Try them on a copy: `git apply` in `folder`, run it
    for as long, attach to it, and `compare_runs`.
    """
    if rule is not None and rule not in rules.load():
        raise UsageProblem(
            f"There is no rule '{brief.text(rule)}'.", "They are in whyidle://rules."
        )
    run = reading.meant(target)
    # A server lives for days, and the user goes on writing.
    text_of.cache_clear()
    window = opening.of_run(database(), str(run.id))
    repository, left = Repository.here(), MOST_LETTERS
    found, answer = fixed(window, rule, allow_numerics=allow_numerics, shown=repository.shown)
    patches: list[JsonObject] = []
    more: list[str] = []
    refused = [
        {
            "rule": each.rule,
            "why": [brief.text(why) for why in each.why],
            "advice": {name: brief.text(text) for name, text in each.advice.items()},
            "instead": None if each.instead is None else brief.text(each.instead),
        }
        for each in answer.refused
    ]
    for (_, patch), said in zip(found.patches, answer.patches, strict=True):
        diff = _diff(patch, run.user, repository)
        if diff is None:
            why = f"{NOT_SHOWN} `monitor fix {run.id} {said.rule}`"
            refused.append({"rule": said.rule, "why": [why], "advice": {}, "instead": None})
            # Those after it may build on it.
            more += [each.rule for each in answer.patches[len(patches) + 1 :]]
            break
        left -= len(diff)
        if left < 0:
            more += [each.rule for each in answer.patches[len(patches) :]]
            break
        patches.append(_patch(said, diff, repository))
    nothing = None if patches or refused else "nothing was found that is worth a change"
    return {
        **brief.run(run),
        "abstained": nothing,
        "patches": patches,
        "more": more,
        "refused": refused,
    }


def _patch(said: PatchJson, diff: str, repository: Repository) -> JsonObject:
    return {
        "rule": said.rule,
        "title": brief.text(said.title),
        "file": brief.text(repository.shown(said.file)),
        "folder": brief.text(f"{_folder(said.file, repository)}/"),
        "diff": diff,
        "notes": [brief.text(note) for note in said.notes],
        "speedup": said.speedup,
    }


def _folder(file: str, repository: Repository) -> Path:
    """Return the folder that a diff's paths are relative to."""
    return Path(file).parent if repository.path(file) is None else repository.root


def _diff(patch: Patch, user: str | None, repository: Repository) -> str | None:
    """Return a diff that applies as it is; ``None`` where it could not be shown so."""
    start = PlaceJson(file=patch.file, line=1, function="")
    if excerpt(start, user, 0) is None:
        return None
    diff = fixes.diff(patch, _folder(patch.file, repository))
    lines = diff.replace("\t", " ").splitlines()
    return diff if all(printable(x) == x and not _has_secret(x) for x in lines) else None


def _has_secret(line: str) -> bool:
    """Tell whether a line may hold one: as text, for `token = tokens[0]` is none."""
    return _LITERAL.search(line) is not None and mask_text(line) != line


# In the order in which an agent uses them.
TOOLS: Final = (*reading.TOOLS[:-1], propose_patch, *reading.TOOLS[-1:])

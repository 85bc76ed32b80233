"""The screen of ``monitor fix``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from whyidle.monitor.core.contracts.fix import FixJson, PatchJson, RefusedJson, VerifiedJson
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.finding_text import factor

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def screen(answer: FixJson) -> str:
    """Return all of it."""
    lines: list[str] = []
    for patch in answer.patches:
        lines += [*_patch(patch), ""]
    for refused in answer.refused:
        lines += [*_refused(refused), ""]
    if not answer.patches and not answer.refused:
        lines += ["Nothing was found that is worth fixing: monitor diagnose shows why.", ""]
    if answer.verified is not None:
        lines += [*_verified(answer.verified), ""]
    lines += [f"Wrote {printable(path)}" for path in answer.written]
    return "\n".join(lines).rstrip("\n")


def _patch(patch: PatchJson) -> Iterator[str]:
    gain = factor(patch.speedup, patch.expected)
    back = f", {gain} predicted" if gain else ""
    yield click.style(f"{patch.rule}: {patch.title}{back}", bold=True)
    for note in patch.notes:
        yield f"  {printable(note)}"
    for line in patch.diff.splitlines():
        colour = _COLOURS.get(line[:1])
        is_name = line.startswith(("---", "+++"))
        yield printable(line) if colour is None or is_name else click.style(printable(line), colour)


def _refused(refused: RefusedJson) -> Iterator[str]:
    said = printable(refused.instead or "no patch")
    yield click.style(f"{refused.rule}: {said}", bold=True)
    for why in refused.why:
        yield f"  {printable(why)}"
    for framework, text in refused.advice.items():
        yield f"  {framework}: {printable(text)}"
    yield f"  More: monitor rules {refused.rule}"


def _verified(found: VerifiedJson) -> Iterator[str]:
    low, middle, high = found.measured
    yield click.style(f"In {found.turns} turns of each:", bold=True)
    if found.predicted is not None:
        yield f"  predicted  {found.predicted[0]:.2f}x to {found.predicted[1]:.2f}x"
    if middle is None or low is None or high is None:
        yield "  measured   not known"
    else:
        was, now = found.step_ms
        took = f": {was:.3g} -> {now:.3g} ms a step" if was and now else ""
        yield f"  measured   {middle:.2f}x [{low:.2f}, {high:.2f}], {found.verdict}{took}"
    difference = found.largest_difference
    words = {"equal": "equal", "different": "DIFFERENT", "unknown": "not compared"}
    much = ""
    if difference is not None:
        much = f": {found.compared} numbers, at most {difference:.1e} apart"
        much += f" ({found.tolerance:g} allowed)"
    yield f"  results    {words[found.results]}{much}"
    for why in found.why:
        yield f"  {printable(why)}"

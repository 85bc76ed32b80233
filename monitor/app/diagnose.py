"""``monitor diagnose``: what is wrong in a recording, a trace file, or a running job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import click

from whyidle.monitor.app import debug_servers, windows
from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson
from whyidle.monitor.core.contracts.trace import cut_off
from whyidle.monitor.core.errors import Exit, UsageProblem
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.diagnosis import diagnose
from whyidle.monitor.diagnosis.needs import not_judged
from whyidle.monitor.render import github, markdown, sarif
from whyidle.monitor.render.findings import screen
from whyidle.monitor.render.jsonl import line
from whyidle.monitor.render.places import Repository


def run(
    *,
    target: str,
    fail_on: str | None,
    seconds: float | None,
    written: str | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Print the findings; end as --fail-on asks for."""
    if as_json and written not in {None, "json"}:
        raise UsageProblem("--json is one format, and --format names another.", "Give one of them.")
    found = diagnose.diagnose(windows.of(target, seconds))
    answer = diagnose.as_json(found)
    if written is None and not as_json:
        click.echo(screen(answer, everything=everything), color=True)
    elif text := _written(answer, written or "json"):
        click.echo(text)
    if any(each.rule.id == "job_stands_still" for each in found.findings):
        debug_servers.offer(found.window)
    if fail_on and found.worst and found.worst.rank <= Severity(fail_on).rank:
        raise SystemExit(Exit.FINDINGS)
    if cut_off(answer.warnings):
        raise SystemExit(Exit.PARTIAL)
    if fail_on and not found.is_known:
        raise not_judged(found.window)


def _written(answer: DiagnosisJson, form: str) -> str:
    return line(answer) if form == "json" else _WRITERS[form](answer, Repository.here())


_WRITERS: Final[dict[str, Callable[[DiagnosisJson, Repository], str]]] = {
    "sarif": sarif.page,
    "github": github.page,
    "markdown": markdown.page,
}

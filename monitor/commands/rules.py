"""``monitor rules``: every fault that is known, and the page of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from whyidle.monitor.commands import _options as options
from whyidle.monitor.commands._output import say
from whyidle.monitor.core.errors import UsageProblem

if TYPE_CHECKING:
    from whyidle.monitor.rules import Rule


@click.command()
@click.argument("rule", metavar="[ID]", required=False)
@options.as_json
def command(*, rule: str | None, as_json: bool) -> None:
    """List the faults that are looked for, or show the page of one.

    A page tells what the rule sees, why it costs, how to fix it, and when the rule is wrong.
    """
    from whyidle.monitor import rules
    from whyidle.monitor.render import jsonl, page

    known, broken = rules.loaded()
    for name, why in broken.items():
        say(f"The rule '{name}' cannot be loaded, a defect of whyidle: {why}.")
    if rule is not None and rule not in known:
        import difflib

        near = difflib.get_close_matches(rule, known, 1)
        then = f"Did you mean: monitor rules {near[0]}" if near else "List them: monitor rules"
        raise UsageProblem(f"There is no rule '{rule}'.", then)
    wanted = list(known.values()) if rule is None else [known[rule]]
    if as_json:
        told = [_told(each) for each in wanted]
        click.echo(jsonl.line({"rules": told, "failed": dict(broken)}))
    elif rule is None:
        click.echo(page.listing(wanted))
    else:
        click.echo(page.page(wanted[0]))


def _told(rule: Rule) -> dict[str, Any]:
    return {
        "rule": rule.id,
        "state": "planned" if rule.is_planned else "built",
        "kind": str(rule.kind),
        "title": rule.title,
        "documents": list(rule.documents),
        "fixes": {name: {"text": f.text, "code": f.code} for name, f in rule.fixes.items()},
        "page": rule.page or None,
    }

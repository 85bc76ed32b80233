"""``monitor rules``: every fault that is known, and the page of one."""

from __future__ import annotations

import difflib

import click

from whyidle.monitor import rules
from whyidle.monitor.core.contracts.trace import JsonObject
from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.render import jsonl, rule_page
from whyidle.monitor.render.console import say
from whyidle.monitor.rules import Rule


def run(*, rule: str | None, as_json: bool) -> None:
    """List the rules, or show the page of one."""
    known, broken = rules.loaded()
    for name, why in broken.items():
        say(f"The rule '{name}' cannot be loaded, a defect of whyidle: {why}.")
    if rule is not None and rule not in known:
        near = difflib.get_close_matches(rule, known, 1)
        then = f"Did you mean: monitor rules {near[0]}" if near else "List them: monitor rules"
        raise UsageProblem(f"There is no rule '{rule}'.", then)
    wanted = list(known.values()) if rule is None else [known[rule]]
    if as_json:
        rows = [_as_json(each) for each in wanted]
        click.echo(jsonl.line({"rules": rows, "failed": dict(broken)}))
    elif rule is None:
        click.echo(rule_page.listing(wanted))
    else:
        click.echo(rule_page.page(wanted[0]))


def _as_json(rule: Rule) -> JsonObject:
    return {
        "rule": rule.id,
        "state": "built",
        "kind": str(rule.kind),
        "title": rule.title,
        "documents": list(rule.documents),
        "fixes": {name: {"text": f.text, "code": f.code} for name, f in rule.fixes.items()},
        "page": rule.page or None,
    }

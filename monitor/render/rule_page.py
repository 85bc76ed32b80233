"""The list of rules, and the page of one rule."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence

from whyidle.monitor.core.finding import FRAMEWORKS
from whyidle.monitor.render.tables import table
from whyidle.monitor.rules import Rule


def listing(rules: Sequence[Rule]) -> str:
    """Return one line per rule."""
    names = max(len(rule.id) for rule in rules)
    room = max(20, shutil.get_terminal_size((100, 24)).columns - names - len("information") - 4)
    rows = [
        (
            rule.id,
            str(rule.kind),
            textwrap.shorten(rule.title, room, placeholder=" ..."),
        )
        for rule in rules
    ]
    then = "Read one: monitor rules ID"
    return f"{table(('rule', 'about', 'fault'), rows)}\n\n{then}"


def page(rule: Rule) -> str:
    """Return everything about a rule."""
    return "\n".join(_page(rule))


def _page(rule: Rule) -> Iterator[str]:
    yield f"{rule.id}: {rule.title}"
    yield ""
    # The first line of the page is the title in other words.
    yield from rule.page.splitlines()
    for framework, fix in rule.fixes.items():
        yield ""
        yield f"{FRAMEWORKS[framework]}: {fix.text}"
        if fix.code:
            yield ""
            yield from (f"    {line}" for line in fix.example.splitlines())

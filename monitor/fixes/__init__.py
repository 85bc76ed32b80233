"""Changes of the user's source, found by name: one file, one change. Nothing is registered."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace
from functools import cache

from whyidle.monitor.fixes._advice import advised
from whyidle.monitor.fixes._change import NotHere, Refused
from whyidle.monitor.fixes._codemod import Codemod, Patch, Refusal, Wanted
from whyidle.monitor.fixes._findings import Fixed, diff, fix
from whyidle.monitor.fixes._mirror import copy, moved, root_of
from whyidle.monitor.fixes._patching import patched, patches_of

__all__ = [
    "Codemod",
    "Fixed",
    "NotHere",
    "Patch",
    "Refusal",
    "Refused",
    "Wanted",
    "advised",
    "by_rule",
    "copy",
    "diff",
    "fix",
    "for_rule",
    "load",
    "moved",
    "patched",
    "patches_of",
    "root_of",
]


@cache
def load() -> dict[str, Codemod]:
    """Return every codemod by its id, in their order."""
    names = sorted(x.name for x in pkgutil.iter_modules(__path__) if not x.name.startswith("_"))
    found: dict[str, Codemod] = {}
    for name in names:
        module = importlib.import_module(f"{__name__}.{name}")
        codemod: Codemod = module.codemod
        found[name] = replace(codemod, id=name, change=module.change)
    return found


def for_rule(rule: str) -> list[Codemod]:
    """Return the codemods that mend what a rule finds."""
    return [each for each in load().values() if rule in each.rules]


def by_rule() -> dict[str, list[Codemod]]:
    """Return the codemods of every rule that has one."""
    return {rule: for_rule(rule) for each in load().values() for rule in each.rules}

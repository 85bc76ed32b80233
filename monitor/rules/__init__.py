"""The rules, found by name: one file, one fault. Nothing is registered anywhere."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace
from functools import cache

from whyidle.monitor.rule import Rule
from whyidle.monitor.rules._planned import PLANNED


@cache
def load() -> dict[str, Rule]:
    """Return every rule by its id, in their order; those that are planned come last."""
    names = sorted(
        found.name for found in pkgutil.iter_modules(__path__) if not found.name.startswith("_")
    )
    built = {name: _rule(name) for name in names}
    planned = {name: replace(rule, id=name) for name, rule in PLANNED.items() if name not in built}
    return built | dict(sorted(planned.items()))


def _rule(name: str) -> Rule:
    module = importlib.import_module(f"{__name__}.{name}")
    rule: Rule = module.rule
    return replace(rule, id=name, page=(module.__doc__ or "").strip())

"""The rules, found by name: one file, one fault. Nothing is registered anywhere."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from whyidle.monitor.core.finding import Fix, Framework, Need, Severity, Verdict
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.rules._rule import DOCUMENTS, Kind, Rule, both
from whyidle.monitor.signals.window import Window

__all__ = ["DOCUMENTS", "Loaded", "load", "loaded"]
# And the words that nearly every rule speaks in: one line imports them.
__all__ += ["Fix", "Framework", "Kind", "Need", "Rule", "Severity", "Slice", "Verdict", "Window"]
__all__ += ["both"]


class Loaded(NamedTuple):
    """The rules that there are, and why others cannot be loaded."""

    rules: dict[str, Rule]
    broken: Mapping[str, str]


def load() -> dict[str, Rule]:
    """Return every rule by its id, in their order."""
    return loaded().rules


@cache
def loaded() -> Loaded:
    """Load every rule: a defect of ours in the file of one costs that rule alone."""
    names = sorted(
        found.name for found in pkgutil.iter_modules(__path__) if not found.name.startswith("_")
    )
    built: dict[str, Rule] = {}
    broken: dict[str, str] = {}
    for name in names:
        try:
            built[name] = _rule(name)
        except Exception as error:  # noqa: BLE001  the other rules can still judge
            broken[name] = f"{type(error).__name__}: {error}"
    return Loaded(built, broken)


def _rule(name: str) -> Rule:
    module = importlib.import_module(f"{__name__}.{name}")
    rule: Rule = module.rule
    page = (module.__doc__ or "").strip()
    return replace(rule, id=name, detect=module.detect, page=page)

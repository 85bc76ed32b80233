"""Code to paste is Python as it comes out of a terminal of 80 columns, and the user's own."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import textwrap
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Final

import pytest
from rich.console import Console

from tests.rules.test_screens import BUILT, BY_HAND
from tests.rules.windows import pairs, recorded
from whyidle.monitor import rules, signals
from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson
from whyidle.monitor.core.finding import EXAMPLE, Fix
from whyidle.monitor.diagnosis.diagnose import as_json, diagnose
from whyidle.monitor.fixes._snippet import WIDTH
from whyidle.monitor.render.findings import screen
from whyidle.monitor.rules import Rule
from whyidle.monitor.signals.loading_kinds import LoadLook
from whyidle.monitor.signals.window import Window

# Code is further to the right than any text.
CODE: Final = " " * 6
# What a user may not have, or not want: it is no part of an example.
CHOSEN: Final = re.compile(r"\b(AdamW?|SGD)\(|shuffle=|batch_size=(64|batch_size)|lr=\d")


def windows() -> Iterator[tuple[str, Window]]:
    for name in BUILT:
        if name in BY_HAND:
            yield name, BY_HAND[name]()
        for framework in pairs(name):
            yield f"{name}/{framework}", recorded(f"{name}/before_{framework}")


def answers() -> Iterator[tuple[str, DiagnosisJson]]:
    yield from ((name, as_json(diagnose(window))) for name, window in windows())


def pasted(text: str) -> list[str]:
    """Return the pieces of code on a screen, as someone copies them."""
    found: list[list[str]] = []
    was_code = False
    for row in text.splitlines():
        is_code = row.startswith(CODE) and (was_code or row[len(CODE)] == "#")
        if is_code and not was_code:
            found.append([])
        if is_code or (was_code and not row.strip()):
            found[-1].append(row)
        else:
            was_code = False
        was_code = was_code or is_code
    return [textwrap.dedent("\n".join(rows)) for rows in found]


def test_what_is_pasted_from_80_columns_is_what_was_meant() -> None:
    seen = 0
    for name, answer in answers():
        text = screen(
            answer, everything=True, console=Console(width=80, highlight=False, color_system=None)
        )
        # What is the same for several frameworks is shown once.
        codes = [
            fix
            for each in answer.findings
            for fix in {(fix.text, fix.code): (of, fix) for of, fix in each.fixes.items()}.values()
            if fix[1].code
        ]
        shown = pasted(text)
        assert len(shown) == len(codes), name
        for (framework, fix), piece in zip(codes, shown, strict=True):
            assert max(map(len, fix.code.splitlines())) <= WIDTH
            assert piece.strip() == fix.code.strip(), name
            if " python " in piece:
                subprocess.run(["bash", "-n"], input=piece, text=True, check=True)
            elif framework != "flux":
                ast.parse(piece)
            seen += 1
    assert seen > 80


def test_examples_are_called_so_and_choose_nothing_for_the_user() -> None:
    for name, answer in answers():
        for finding in answer.findings:
            for fix in finding.fixes.values():
                is_example = fix.code.startswith(EXAMPLE)
                # What is no example names a place.
                assert not fix.code or is_example or fix.code.startswith("# before_"), name
                assert not is_example or not chosen(fix.code), fix.code


def chosen(code: str) -> list[str]:
    rows = (row for row in code.splitlines() if not row.strip().startswith("#"))
    return [row for row in rows if CHOSEN.search(row)]


def fixes_in(value: object) -> Iterator[Fix]:
    match value:
        case Fix():
            yield value
        case Rule() | LoadLook():
            kept = value.fixes if isinstance(value, Rule) else value.fixes()
            yield from kept.values()
        case Mapping():
            for each in value.values():
                yield from fixes_in(each)
        case _:
            pass


def modules(package: ModuleType) -> Iterator[ModuleType]:
    for each in pkgutil.iter_modules(package.__path__):
        yield importlib.import_module(f"{package.__name__}.{each.name}")


@pytest.mark.parametrize("package", [rules, signals])
def test_every_example_is_narrow_and_chooses_nothing(package: ModuleType) -> None:
    for module in modules(package):
        for value in vars(module).values():
            for fix in fixes_in(value):
                assert not chosen(fix.code), (module.__name__, fix.code)
                assert max(map(len, fix.example.splitlines()), default=0) <= WIDTH, fix.code

"""What ``make test-long`` is for: the tests of long.toml, and random examples by the hundred."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

LIST: Final = Path(__file__).with_name("long.toml")
LEVEL: Final = int(os.environ.get("WHYIDLE_LONG") or 0)
# `make test-long`; and by hand, with WHYIDLE_LONG=2, stress that takes hours.
LONG: Final = LEVEL >= 1
STRESS: Final = LEVEL >= 2
# `make test` tries a tenth of the random examples.
FEWER: Final = 10
Test = Callable[..., Any]
# A case for each Python of the machine: that of the oldest that the agent runs on stays.
OF_A_PYTHON: Final = re.compile(r"\[(.*[-/])?(2\.7|3\.(?!9\.)\d+)\.\d+\b")


def many(number: int) -> int:
    """Return how often to do something that more often makes surer."""
    return number if LONG else max(1, number // FEWER)


def examples(number: int, *, unchecked: Iterable[HealthCheck] = ()) -> Callable[[Test], Test]:
    """Try so many random examples in the long run, and fewer in the short one."""

    def decorate(test: Test) -> Test:
        chosen = settings(
            max_examples=max(10, many(number)),
            deadline=None,
            suppress_health_check=list(unchecked),
        )
        return pytest.mark.many(chosen(test))  # type: ignore[no-any-return]

    return decorate


def mark(items: Iterable[pytest.Item]) -> None:
    """Mark the tests that the list leaves to the long run."""
    listed = _listed()
    for item in items:
        file, _, name = item.nodeid.removeprefix("tests/").partition("::")
        stays = _stays(listed.get(file, {}), name)
        if OF_A_PYTHON.search(name) or (stays and not _names(name) & {*stays}):
            item.add_marker(pytest.mark.long)


def mistakes(items: Iterable[pytest.Item]) -> list[str]:
    """Return what the list says of tests that there are not, or that do not stay.

    A machine that lacks something has fewer tests: only CI asks. Of a part of the suite this says
    nothing.
    """
    long, short, files = set[str](), set[str](), set[str]()
    for item in items:
        file, _, name = item.nodeid.removeprefix("tests/").partition("::")
        files.add(file)
        of_item = {f"{file}::{each}" for each in _names(name)}
        (long if item.get_closest_marker("long") else short).update(of_item)
    listed = _listed()
    gone = [file for file in listed if not (LIST.parent / file).exists()]
    if gone or not listed.keys() <= files:
        return [f"{file}: there is no such file" for file in gone]
    wrong = []
    for file, tests in listed.items():
        for name in tests:
            if f"{file}::{name}" not in long:
                wrong.append(f"{file}: nothing of {name} is left out")
            wrong += [
                f"{file}: {name} is stood for by {stays}, which does not stay"
                for stays in _stays(tests, name)
                if (stays if ".py::" in stays else f"{file}::{stays}") not in short
            ]
    return wrong


def _names(name: str) -> set[str]:
    """Return what a case of a test may be called in the list."""
    return {name, name.partition("[")[0], "*"}


def _listed() -> dict[str, dict[str, str | list[str]]]:
    return tomllib.loads(LIST.read_text())


def _stays(tests: dict[str, str | list[str]], name: str) -> list[str]:
    found = next((tests[n] for n in (name, name.partition("[")[0], "*") if n in tests), [])
    return [found] if isinstance(found, str) else found

"""Causes that people named in public threads: the rule of each, and a test that imitates it."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.rules.windows import ROOT
from whyidle.monitor import rules

THREADS: list[dict[str, Any]] = tomllib.loads(
    (ROOT / "benchmarks/threads.toml").read_text(encoding="utf-8")
)["thread"]
KNOWN = [thread for thread in THREADS if "rule" in thread]


def _tests(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("thread", KNOWN, ids=[thread["name"] for thread in KNOWN])
def test_the_rule_and_the_test_of_a_thread_are_there(thread: dict[str, Any]) -> None:
    file, _, name = thread["test"].partition("::")
    assert name in _tests(ROOT / file)
    if not thread["rule"].startswith("("):
        rule = rules.load()[thread["rule"]]
        assert rule.id in (ROOT / file).name

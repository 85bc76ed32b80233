"""SECURITY.md names tests: each is there, so that a claim does not outlive what holds it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+|\*)`")


def test_every_claim_is_held_by_a_test_that_is_there() -> None:
    named = NAMED.findall((ROOT / "SECURITY.md").read_text("utf-8"))
    assert len(named) > 10
    for file, name in named:
        text = (ROOT / file).read_text("utf-8")
        assert name == "*" or re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), name

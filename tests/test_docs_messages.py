"""docs/troubleshooting.md quotes messages as the program prints them, and misses no exit code."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from whyidle.monitor.core.errors import Exit

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
# In a quoted message this stands for what differs from time to time.
ANYTHING = "…"


@cache
def _strings() -> str:
    """Return every string in the code, one a line; what an f-string fills in is ``ANYTHING``."""
    files = [
        path for room in ("monitor", "dashboard", "agents") for path in (ROOT / room).rglob("*.py")
    ]
    found = []
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                found.append("".join(_part(value) for value in node.values))
    return "\n".join(text.replace("\n", " ") for text in found)


def _part(value: ast.expr) -> str:
    return str(value.value) if isinstance(value, ast.Constant) else ANYTHING


def _quoted() -> list[str]:
    """Return the messages in the first column of the tables; a sentence ends with a full stop."""
    cells = re.findall(r"^\| (`.*?) \| ", PAGE, re.MULTILINE) + re.findall(
        r"^\| \d+ \| (`.*?) \| ", PAGE, re.MULTILINE
    )
    return [message for cell in cells for message in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize("message", _quoted())
def test_a_quoted_message_is_in_the_code(message: str) -> None:
    pieces = [re.escape(piece) for piece in message.split(ANYTHING)]
    assert re.search(".*".join(pieces), _strings()), f"no such message: {message}"


def test_many_messages_are_quoted() -> None:
    assert len(_quoted()) > 40


def test_every_exit_code_has_its_part() -> None:
    headings = " ".join(re.findall(r"^## Exit (.*)$", PAGE, re.MULTILINE))
    documented = {int(code) for code in re.findall(r"\d+", headings)}
    assert documented == set(Exit) - {Exit.OK}

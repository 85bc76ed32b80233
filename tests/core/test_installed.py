"""What to type for an extra, by where whyidle came from."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from whyidle.monitor.core import installed

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
URL = "https://example.org/whyidle.git"


@pytest.mark.parametrize(
    ("noted", "typed"),
    [
        (None, "pip install 'whyidle[mcp]'"),
        ("no JSON", "pip install 'whyidle[mcp]'"),
        ({"url": "file:///src/why", "dir_info": {}}, "pip install '/src/why[mcp]'"),
        (
            {"url": "file:///my%20src", "dir_info": {"editable": True}},
            "pip install -e '/my src[mcp]'",
        ),
        (
            {"url": URL, "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}},
            f"pip install 'whyidle[mcp] @ git+{URL}@c0ffee'",
        ),
        (
            {"url": "file:///w/whyidle-1-py3-none-any.whl", "archive_info": {}},
            "pip install 'whyidle[mcp] @ file:///w/whyidle-1-py3-none-any.whl'",
        ),
    ],
)
def test_an_extra_comes_from_where_the_rest_came(
    noted: object, typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = noted if noted is None or isinstance(noted, str) else json.dumps(noted)
    found = SimpleNamespace(read_text=lambda _: text)
    monkeypatch.setattr(installed.metadata, "distribution", lambda _: found)
    assert installed.to_install("mcp") == typed


def test_no_message_and_no_page_says_it_another_way() -> None:
    # An index does not have it yet: pages install from the checkout, as the README begins.
    pages = [*ROOT.glob("README*.md"), *(ROOT / "docs").glob("*.md")]
    said = [(p.name, x) for p in pages for x in re.findall(r"pip install[^`\n]*", p.read_text())]
    ours = {line for name, line in said if "whyidle[" in line}
    assert not ours
    named = {x for _, line in said for x in re.findall(r'"\.\[([a-z,]+)\]"', line)}
    assert "dashboard" in named
    assert {extra for each in named for extra in each.split(",")} <= set(EXTRAS)
    written = [*(ROOT / "monitor").rglob("*.py"), *(ROOT / "dashboard").rglob("*.py")]
    assert not [path for path in written if "install 'whyidle[" in path.read_text()]
    assert not [path for path in written if 'install "whyidle[' in path.read_text()]

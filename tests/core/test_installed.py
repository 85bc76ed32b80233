"""What to type for an extra, by where whyidle came from."""

from __future__ import annotations

import json
import re
import shlex
import sys
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
    monkeypatch.setattr(Path, "exists", lambda _: True)
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


def test_without_pip_the_tool_that_has_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda _: None)
    assert installed.to_install("mcp").startswith(
        f"uv pip install --python {shlex.quote(sys.executable)} "
    )


def test_a_folder_in_which_it_was_only_built_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = json.dumps({"url": "file:///gone/work", "dir_info": {}})
    found = SimpleNamespace(read_text=lambda _: noted)
    monkeypatch.setattr(installed.metadata, "distribution", lambda _: found)
    assert installed.to_install("mcp") == "pip install 'whyidle[mcp]'"

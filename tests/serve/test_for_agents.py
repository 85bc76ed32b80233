"""What coding agents are given: a skill whose lines can be typed, and a server that starts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

from mcp import Client, StdioServerParameters

from tests.conftest import ROOT
from tests.serve.test_mcp import ACTIONS, READING, ran

FOLDER = ROOT / "integrations" / "agents"
SKILL = (FOLDER / "SKILL.md").read_text()


def test_the_skill_has_a_name_and_says_when_to_use_it() -> None:
    _, head, _ = SKILL.split("---\n", 2)
    said = dict(line.split(": ", 1) for line in head.splitlines())
    assert said["name"] == "whyidle"
    assert "Use it when" in said["description"]
    assert len(said["description"]) < 1024


def test_each_command_of_the_skill_has_its_options() -> None:
    typed = re.findall(r"`monitor ([a-z]+)([^`]*)`", SKILL)
    assert {name for name, _ in typed} >= {"ps", "doctor", "attach", "diagnose", "fix", "compare"}
    for name, rest in typed:
        done = subprocess.run(
            [sys.executable, "-m", "whyidle.monitor", name, "--help"],
            text=True, capture_output=True, check=True,
        )  # fmt: skip
        for option in re.findall(r"(?<=\s)--?[a-z][a-z-]*", rest):
            assert re.search(rf"(^|\s){option}\b", done.stdout), (name, option)


def test_the_skill_names_every_tool() -> None:
    named = set(re.findall(r"`([a-z]+_[a-z_]+|query|attach)`", SKILL))
    assert named >= READING | ACTIONS


def test_a_client_starts_the_server_that_is_described(tmp_path: Any) -> None:
    (package,) = json.loads((FOLDER / "server.json").read_text())["packages"]
    assert package["identifier"] == "whyidle"
    words = [each["value"] for each in package["packageArguments"]]

    async def listed() -> set[str]:
        started = StdioServerParameters(
            command=sys.executable,
            args=["-m", "whyidle.monitor", *words],
            env={"WHYIDLE_STATE_DIR": str(tmp_path)},
        )
        async with Client(started) as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    assert ran(listed()) == READING

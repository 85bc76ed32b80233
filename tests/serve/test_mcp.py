"""The server as clients meet it: the SDK's own, over stdio, over HTTP, and in one process."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.commands.test_try import TORCH, settings
from tests.conftest import ROOT, command, start_job
from tests.dashboard.pairs import make
from whyidle.monitor.core.errors import StorageProblem
from whyidle.monitor.core.installed import to_install
from whyidle.monitor.serve import http, server

SNAPSHOT = ROOT / "tests" / "data" / "mcp" / "tools.json"
READING = {
    "list_jobs",
    "get_findings",
    "get_account",
    "get_evidence",
    "get_source",
    "compare_runs",
    "propose_patch",
    "query",
}
ACTIONS = {"attach", "trace_now", "try_knob"}
T = TypeVar("T")
Use = Callable[[Client], Coroutine[Any, Any, Any]]


@pytest.fixture
def store(state: Path) -> Path:
    state.mkdir()
    make(state / "whyidle.db")
    return state


def ran(what: Coroutine[Any, Any, T]) -> T:
    """Run it in a thread of its own: where a browser was driven, ours has a loop already."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, what).result()


def inside(use: Use, *, allow_actions: bool = False) -> Any:
    async def go() -> Any:
        async with Client(server.build(allow_actions=allow_actions)) as client:
            return await use(client)

    return ran(go())


async def answer(client: Client, tool: str, **arguments: object) -> dict[str, Any]:
    found = await client.call_tool(tool, arguments)
    assert not found.is_error, found.content
    (content,) = found.content
    assert content.type == "text"
    said = json.loads(content.text)
    assert said == found.structured_content
    return dict(said)


async def whole_round(client: Client) -> None:
    """Ask each thing once that a client can ask for."""
    tools = {tool.name for tool in (await client.list_tools()).tools}
    assert tools == READING
    assert "data, never" in (client.instructions or "")
    jobs = await answer(client, "list_jobs")
    assert [each["label"] for each in jobs["recordings"]] == ["after", "before"]
    found = await answer(client, "get_findings", target="before")
    assert found["findings"][0]["rule"] == "input_starved"
    rows = await answer(client, "query", sql="SELECT label FROM runs ORDER BY run")
    assert rows["rows"] == [["before"], ["after"]]
    page = await client.read_resource("whyidle://rules/input_starved")
    assert "input_starved" in page.contents[0].model_dump()["text"]
    diagnosis = await client.read_resource("whyidle://runs/before")
    assert "### whyidle:" in diagnosis.contents[0].model_dump()["text"]
    prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
    assert prompts == {"why_is_it_slow", "verify_fix"}
    told = await client.get_prompt("verify_fix", {"before": "before", "after": "after"})
    assert "compare_runs` before and after" in told.messages[0].model_dump_json()


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("runs/99", "There is no recording '99'. See list_jobs"),
        ("rules/nonsense", "There is no rule 'nonsense'."),
    ],
)
def test_a_page_that_is_not_there_is_a_sentence_for_the_client_and_no_traceback(
    store: Path, caplog: pytest.LogCaptureFixture, where: str, said: str
) -> None:
    async def use(client: Client) -> None:
        with pytest.raises(MCPError, match=said):
            await client.read_resource(f"whyidle://{where}")

    inside(use)
    assert "Traceback" not in caplog.text


def test_everything_over_stdio(store: Path) -> None:
    line = command("mcp")
    started = StdioServerParameters(
        command=line[0], args=line[1:], env={"WHYIDLE_STATE_DIR": str(store)}
    )

    async def go() -> None:
        async with Client(started) as client:
            await whole_round(client)

    ran(go())


@pytest.fixture
def served(store: Path) -> Iterator[tuple[str, str]]:
    """A server on HTTP: its address and its token."""
    with subprocess.Popen(
        command("mcp", "--http", 0), stderr=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        assert process.stderr is not None
        said = process.stderr.readline() + process.stderr.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/mcp", said)
        assert address, said
        yield address[0], (store / http.FILE).read_text().strip()
        process.send_signal(signal.SIGINT)
        assert process.wait(15) in {0, 130}


def test_everything_over_http_with_the_token_and_nothing_without(served: tuple[str, str]) -> None:
    address, token = served

    async def go(headers: dict[str, str]) -> None:
        async with (
            httpx2.AsyncClient(headers=headers, timeout=20) as web,
            Client(streamable_http_client(address, http_client=web)) as client,
        ):
            await whole_round(client)

    ran(go({"Authorization": f"Bearer {token}"}))
    for headers in (
        {},
        {"Authorization": "Bearer"},
        {"Authorization": f"Bearer {token[:-1]}x"},
        {"Authorization": f"Basic {token}"},
    ):
        refused = httpx2.post(address, headers=headers, json={})
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    mine = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    elsewhere = httpx2.post(address, headers={**mine, "Host": "evil.example"}, json={})
    assert elsewhere.status_code == 421
    page = httpx2.post(address, headers={**mine, "Origin": "http://evil.example"}, json={})
    assert page.status_code == 403


def test_the_token_is_the_users_alone(state: Path) -> None:
    made, path = http.token()
    assert path.stat().st_mode & 0o777 == 0o600
    assert http.token() == (made, path)
    path.chmod(0o644)
    with pytest.raises(StorageProblem, match="only you can read"):
        http.token()
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(StorageProblem):
        http.token()


def test_tools_that_touch_a_job_are_there_only_where_allowed() -> None:
    async def names(client: Client) -> set[str]:
        return {tool.name for tool in (await client.list_tools()).tools}

    assert inside(names) == READING
    assert inside(names, allow_actions=True) == READING | ACTIONS

    async def call(client: Client) -> Any:
        return await client.call_tool("attach", {"process": "1"})

    assert inside(call).is_error


def test_the_schemas_of_the_tools_are_those_that_clients_know() -> None:
    """WHYIDLE_UPDATE=1 writes them anew."""

    async def listed(client: Client) -> list[dict[str, Any]]:
        tools = (await client.list_tools()).tools
        return [tool.model_dump(mode="json", exclude_none=True) for tool in tools]

    found = inside(listed, allow_actions=True)
    text = json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if os.environ.get("WHYIDLE_UPDATE"):
        SNAPSHOT.parent.mkdir(exist_ok=True)
        SNAPSHOT.write_text(text)
    assert text == SNAPSHOT.read_text()
    for tool in found:
        described = tool["input_schema"].get("properties", {}).values()
        assert all("description" in each for each in described), tool["name"]


def test_a_refusal_is_a_sentence_that_says_what_to_do(store: Path) -> None:
    async def ask(client: Client) -> list[Any]:
        return [
            await client.call_tool("get_findings", {"target": "nobody"}),
            await client.call_tool("query", {"sql": "DROP TABLE run"}),
            await client.call_tool("get_source", {"file": "train.py", "line": 0}),
            await client.call_tool("nothing", {}),
        ]

    refused = inside(ask)
    assert all(each.is_error for each in refused)
    texts = [each.content[0].text for each in refused]
    assert "See list_jobs" in texts[0]
    assert "Ask one SELECT" in texts[1]
    assert not any("Traceback" in text for text in texts)


def test_without_the_sdk_it_says_what_to_install(tmp_path: Path) -> None:
    source = (
        "import sys\nsys.modules['mcp'] = None\n"
        "from whyidle.monitor import cli\nsys.argv = ['monitor', 'mcp']\ncli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert to_install("mcp") in done.stderr
    assert done.stdout == ""


@pytest.mark.ptrace
def test_a_knob_is_tried_in_a_job_and_taken_back(state: Path) -> None:
    pytest.importorskip("torch")
    with start_job(TORCH) as job:
        try:
            before = settings(job)

            async def ask(client: Client) -> Any:
                found = await answer(
                    client, "try_knob", process=str(job.pid), knob="gc.freeze", seconds=60
                )
                numerics = {"process": str(job.pid), "knob": "torch.threads=2"}
                return found, await client.call_tool("try_knob", numerics)

            found, refused = inside(ask, allow_actions=True)
            assert settings(job) == before
        finally:
            job.kill()
    assert (found["verdict"], found["state"], found["abstained"]) == ("faster", "back", None)
    low, middle, high = found["ratio_low_middle_high"]
    assert 1.2 < low <= middle <= high
    assert found["step_ms_without"] > found["step_ms_with"]
    assert refused.is_error
    assert "may change results" in refused.content[0].text


def test_in_a_terminal_it_says_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server, "build", lambda **_: SimpleNamespace(run=lambda _: None))
    server.run(http_port=None, allow_actions=False)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    server.run(http_port=None, allow_actions=False)
    assert "This is a server for coding agents" in capsys.readouterr().err

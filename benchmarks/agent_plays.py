"""An agent at work, without a model: finds the fault of a demo, applies its fix, measures the gain.

It sees what any client of `monitor mcp` sees, and decides by the answers alone. The
fix is what `propose_patch` answers, applied to a copy; where there is none, the demo's mended side.

    .venv/bin/python benchmarks/agent_plays.py [FAULT] [--seconds 40]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from whyidle.monitor.demo.pairs import SIDES, named

ROOT = Path(__file__).parent.parent
# A recording looks for findings after 12 s, and twice more in the next 10.
PATIENCE_S = 60.0


@contextmanager
def job(script: Path, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    """A demo's job, as its author starts it."""
    line = [sys.executable, str(script), "--seconds", str(seconds)]
    with subprocess.Popen(line, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


class Agent:
    """What a model would do with the tools, in the order of the prompt `why_is_it_slow`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def ask(self, tool: str, **arguments: object) -> dict[str, Any]:
        """Call a tool, and show it."""
        began = time.monotonic()
        found = await self._client.call_tool(tool, arguments)
        (content,) = found.content
        text = str(getattr(content, "text", ""))
        took = time.monotonic() - began
        print(f"  {tool}({', '.join(f'{k}={v!r}' for k, v in arguments.items())})")
        print(f"    {len(text):,} bytes in {took:.1f} s: {text[:160]}")
        if found.is_error:
            raise SystemExit(text)
        return dict(json.loads(text))

    async def watch(self, script: str, label: str, seconds: float) -> int:
        """Find a job by the list, attach to it, and wait until the recording has ended."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            jobs = (await self.ask("list_jobs"))["jobs"]
            mine = [each["pid"] for each in jobs if script in each["script"]]
            if mine:
                break
            await asyncio.sleep(1)
        else:
            raise SystemExit(f"{script} is not among the jobs")
        run = await self.ask("attach", process=str(mine[0]), seconds=seconds, label=label)
        await asyncio.sleep(seconds + 1)
        while (await self.ask("get_findings", target=label))["state"] == "recording":
            await asyncio.sleep(1)
        return int(run["run"])


def patched(patches: list[dict[str, Any]], copy: Path) -> Path | None:
    """Apply the diffs to a copy of the code that they are about, and return the program there."""
    for each in patches:
        folder = Path(each["file"]).parent
        if not (copy / folder).exists():
            shutil.copytree(ROOT / folder, copy / folder)
        subprocess.run(["git", "apply", "-"], cwd=copy, input=each["diff"], text=True, check=True)
    return copy / patches[0]["file"] if patches else None


async def play(fault: str, seconds: float, state: Path) -> dict[str, Any]:
    """Play it all; returns what came of it."""
    before, after = map(named(fault, "torch").script, SIDES)
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "whyidle.monitor", "mcp", "--allow-actions"],
        env={"WHYIDLE_STATE_DIR": str(state), "PATH": os.environ["PATH"]},
        cwd=ROOT,
    )
    async with Client(server) as client:
        agent = Agent(client)
        print("\nfind out why it is slow")
        with job(before, seconds + 60):
            await agent.watch(before.name, "before", seconds)
        found = await agent.ask("get_findings", target="before")
        first = found["findings"][0]
        evidence = await agent.ask("get_evidence", rule=first["rule"], target="before")
        file, _, line = first["at"][0].partition(" ")[0].rpartition(":")
        source = await agent.ask("get_source", file=file, line=int(line), target="before")
        proposed = await agent.ask("propose_patch", rule=first["rule"], target="before")
        print("\napply the fix, and verify it")
        mended = patched(proposed["patches"], state / "copy") or after
        with job(mended, seconds + 60):
            await agent.watch(mended.name, "after", seconds)
        compared = await agent.ask("compare_runs", before="before", after="after")
    return {
        "rule": first["rule"],
        "predicted": first["speedup"],
        "line": next(t for t in source["code"].splitlines() if t.split()[0] == line).strip(),
        "evidence": len(evidence["evidence"]),
        "fixes": sorted(evidence["fixes"]),
        "patched": [each["title"] for each in proposed["patches"]],
        "verdict": compared["verdict"],
        "measured": compared["speedup_low_middle_high"],
        "gone": [each["rule"] for each in compared["findings_gone"]],
        "left": {each["rule"]: each["severity_b"] for each in compared["findings_kept"]},
    }


def main() -> None:
    """Play, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fault", nargs="?", default="input_starved")
    parser.add_argument("--seconds", type=float, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as state:
        came = asyncio.run(play(options.fault, options.seconds, Path(state)))
    print(f"\n{json.dumps(came, indent=1)}")


if __name__ == "__main__":
    main()

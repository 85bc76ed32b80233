"""`monitor attach` to any process of an engine: its worker is judged, whoever was named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests import toy_engine
from tests.conftest import Monitor, lines
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.processes.roles import Role, role_of, title_of
from whyidle.monitor.processes.tree import descendants

SECONDS = 14
FS = ProcFs()


@contextmanager
def engine(*options: object) -> Iterator[dict[Role, int]]:
    """Start the toy; yield its parts once all have their titles, and their framework at hand."""
    command = [sys.executable, toy_engine.__file__, "--seconds", "600", *map(str, options)]
    with subprocess.Popen(command, cwd=Path(toy_engine.__file__).parent.parent) as front:
        parts: dict[Role, int] = {}
        try:
            until = time.monotonic() + 60
            while not {Role.ENGINE, Role.WORKER} <= parts.keys() and time.monotonic() < until:
                time.sleep(0.2)
                below = [stat.pid for stat in descendants(FS.stats().values(), {front.pid})]
                roles = {pid: role_of(title_of(FS.arguments(pid) or [])) for pid in below}
                parts = {role: pid for pid, role in roles.items() if role is not None}
            yield {Role.FRONT: front.pid, **parts}
        finally:
            for pid in (*parts.values(), front.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def attached(monitor: Monitor, pid: int) -> dict[str, Any]:
    done = monitor("attach", pid, "--for", SECONDS, "--json", "--no-trace")
    assert done.returncode == 0, done.stderr
    return lines(done.stdout)[-1]


def diagnosed(monitor: Monitor, run: int) -> dict[str, Any]:
    (answer,) = lines(monitor("diagnose", run, "--json").stdout)
    return answer


def test_whichever_process_is_named_its_worker_is_judged(monitor: Monitor) -> None:
    with engine("--python", 12) as parts:
        said = {role: attached(monitor, pid) for role, pid in parts.items()}
    for summary in said.values():
        assert summary["pid"] == parts[Role.FRONT]
        assert summary["verdict"]["process"] == {
            "pid": parts[Role.WORKER], "title": "VLLM::Worker", "role": "worker",
        }  # fmt: skip
        assert summary["verdict"]["where"][0]["function"] == "penalise"
        roles = {agent["pid"]: agent.get("role") for agent in summary["agents"]}
        assert roles[parts[Role.ENGINE]] == "engine"
        assert roles[parts[Role.WORKER]] == "worker"


def test_a_busy_worker_has_nothing_loud(monitor: Monitor) -> None:
    with engine() as parts:
        found = attached(monitor, parts[Role.FRONT])["findings"]
    loud = {x["rule"] for x in found if x["severity"] in {"high", "medium"}}
    # Where something else has the cores, that is true.
    assert loud <= {"cpu_starved"}


def test_a_worker_that_is_asked_for_too_little_waits_and_does_not_compute(monitor: Monitor) -> None:
    with engine("--rest", 1500) as parts:
        run = attached(monitor, parts[Role.FRONT])["run"]
    rows = diagnosed(monitor, run)["host"]["rows"]
    # It rests for more than half of its time; on a crowded machine its work takes longer.
    assert sum(row["share"] for row in rows if row["class"] == HostClass.PEER_WAIT) > 0.25

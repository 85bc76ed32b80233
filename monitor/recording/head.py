"""The head of a recording: who the job is, which GPUs are its own, how each process is watched."""

from __future__ import annotations

from typing import Any

from whyidle.monitor.attach.answers import OUTSIDE, Refusal
from whyidle.monitor.processes.process import Identity, ProcessKey
from whyidle.monitor.recording.ownership import Owned
from whyidle.monitor.recording.snapshot import Member
from whyidle.monitor.store import Writer

# Of a job that starts its workers anew again and again the first ones stand for all.
MOST_ENTRIES = 64


class Head:
    """Writes to the run's row what has changed, and nothing twice."""

    def __init__(self, writer: Writer, run: int) -> None:
        self._writer = writer
        self._run = run
        self._info: dict[str, Any] = {}
        self._entries: dict[ProcessKey, dict[str, Any]] = {}

    def name(self, identity: Identity | None) -> None:
        """Keep what a person calls the job."""
        if identity is None:
            return
        self._writer.describe_run(
            self._run,
            command=identity.command,
            script=identity.script,
            framework=identity.framework,
            python=identity.python,
            user=identity.user,
            container=identity.container,
        )

    def gpus(self, problem: str | None, owned: Owned | None = None) -> None:
        """Keep which GPUs are the job's, for those who read it afterwards."""
        info: dict[str, Any] = {"gpu_problem": problem}
        if owned is not None:
            info |= {"gpus": sorted(owned.indices), "gpus_how": owned.how}
        self._keep(info)

    def members(self, members: tuple[Member, ...], not_entered: Refusal | None = None) -> None:
        """Keep how each process is watched; of one that the agent has left, how it was."""
        for member in members:
            before = self._entries.get(member.key)
            if not member.settled:
                continue
            if member.method is None or (member.method == OUTSIDE and before and before["inside"]):
                continue
            if before is not None or len(self._entries) < MOST_ENTRIES:
                self._entries[member.key] = _entry(member)
        info: dict[str, Any] = {"not_entered": _told(not_entered)}
        if self._entries:
            info["processes"] = list(self._entries.values())
        self._keep(info)

    def _keep(self, info: dict[str, Any]) -> None:
        if all(name in self._info and self._info[name] == value for name, value in info.items()):
            return
        self._info |= info
        self._writer.describe_run(self._run, info=self._info)


def _told(refusal: Refusal | None) -> dict[str, str] | None:
    if refusal is None:
        return None
    return {"what": refusal.what, "next_step": refusal.next_step}


def _entry(member: Member) -> dict[str, Any]:
    refusal = member.refusal
    return {
        "pid": member.key.pid,
        "start_ticks": member.key.start_ticks,
        "rank": member.rank,
        "method": member.method,
        "inside": member.method != OUTSIDE,
        "stops_ms": [round(ms, 3) for ms in member.stops_ms],
        "refused": refusal.what if refusal else None,
        "next_step": (refusal.next_step or None) if refusal else None,
    }

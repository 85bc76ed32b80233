"""The head of a recording: who the job is, which GPUs are its own, how each process is watched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from whyidle.monitor.attach.answers import OUTSIDE, Refusal
from whyidle.monitor.core.contracts.trace import JsonObject
from whyidle.monitor.processes.process import Identity, ProcessKey
from whyidle.monitor.recording.snapshot import Member
from whyidle.monitor.sources.ownership import Owned
from whyidle.monitor.store import Writer

# Of a job that starts its workers anew again and again the first ones stand for all.
MOST_ENTRIES = 64
# What is counted is kept so often, and at the end.
COUNT_SECONDS = 10.0
# Words of one fact.
MOST_WORDS = 8
# Of what the frameworks say of themselves: what a person wants at the top of a page.
HEADLINES = (
    "version", "backend", "devices", "devices_used", "model", "parameters", "parameter_bytes",
    "batch_size", "parallel", "world_size", "autocast",
)  # fmt: skip


class RunMetadata:
    """Writes to the run's row what has changed, and nothing twice."""

    def __init__(self, writer: Writer, run: int) -> None:
        self._writer = writer
        self._run = run
        self._info: JsonObject = {}
        self._entries: dict[ProcessKey, JsonObject] = {}
        self._counted_at = self._defects_at = float("-inf")

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
        info: JsonObject = {"gpu_problem": problem}
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
                self._entries[member.key] = _entry(member, before)
        info: JsonObject = {"not_entered": _refusal(not_entered)}
        if self._entries:
            info["processes"] = list(self._entries.values())
        self._keep(info)

    def counted(
        self, now: float, counted: Callable[[], Mapping[ProcessKey, Mapping[str, Any]]]
    ) -> None:
        """Keep what each process has done so far, when that is due."""
        if now - self._counted_at < COUNT_SECONDS:
            return
        self._counted_at = now
        for key, sums in counted().items():
            if key in self._entries:
                # Not changed in place: what is kept is compared with what it was.
                self._entries[key] = {**self._entries[key], "counted": dict(sums)}
        if self._entries:
            self._keep({"processes": list(self._entries.values())})

    def defects(self, now: float, counts: Mapping[str, int]) -> None:
        """Keep how often something of ours failed, and where: at once at first, then when due."""
        if counts and now - self._defects_at >= COUNT_SECONDS:
            self._defects_at = now
            self._keep({"defects": dict(counts)})

    def _keep(self, info: JsonObject) -> None:
        if all(name in self._info and self._info[name] == value for name, value in info.items()):
            return
        self._info |= info
        self._writer.describe_run(self._run, info=self._info)


def _refusal(refusal: Refusal | None) -> dict[str, str] | None:
    if refusal is None:
        return None
    return {"what": refusal.what, "next_step": refusal.next_step}


def _entry(member: Member, before: Mapping[str, Any] | None) -> JsonObject:
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
        "frameworks": _headlines(member) or (before or {}).get("frameworks", {}),
        "counted": (before or {}).get("counted"),
        "settings": None if member.settings is None else dict(member.settings),
        "role": member.role,
        "title": member.title,
    }


def _headlines(member: Member) -> dict[str, JsonObject]:
    """Return the short facts of each framework."""
    return {
        probe: {name: facts[name] for name in HEADLINES if _is_short(facts.get(name))}
        for probe, facts in member.framework.items()
    }


def _is_short(fact: object) -> bool:
    if isinstance(fact, list):
        return 0 < len(fact) <= MOST_WORDS and all(isinstance(word, str) for word in fact)
    return isinstance(fact, str | int | float)

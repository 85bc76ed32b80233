"""A day of a fleet that never was: what its exporters and rules would have stored.

Each host has one job on all of its GPUs. What a counter grew by is known beforehand, so that what
a server says of it can be checked: of ``n`` GPUs, host ``i`` loses ``lost(i)`` of its time, four
fifths of it for its input. The rest of the series is what the page asks for beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from whyidle.monitor.core.slices import Slice
from whyidle.monitor.export import families as f
from whyidle.monitor.export import lost_time

SCRAPE: Final = 15
RULE: Final = 30
CAUSES: Final = tuple(part.removeprefix("idle_") for part in Slice if part.idle)
USERS, TEAMS = 40, 8
WATTS: Final = 200.0
PRICE: Final = 2.5
MODEL: Final = "NVIDIA H100 80GB HBM3"


@dataclass(frozen=True)
class Stored:
    """One series, with a value at each step up to the end."""

    name: str
    labels: dict[str, str]
    start: int
    step: int
    values: list[float]

    def openmetrics(self) -> Iterator[str]:
        pairs = ",".join(f'{k}="{v}"' for k, v in self.labels.items() if v)
        for i, value in enumerate(self.values):
            yield f"{self.name}{{{pairs}}} {value:.10g} {self.start + i * self.step}\n"

    def victoria(self) -> str:
        times = [1000 * (self.start + i * self.step) for i in range(len(self.values))]
        metric = {"__name__": self.name, **{k: v for k, v in self.labels.items() if v}}
        return json.dumps({"metric": metric, "values": self.values, "timestamps": times}) + "\n"


@dataclass(frozen=True)
class Fleet:
    hosts: int
    gpus: int
    end: int
    seconds: int = 86_400
    # How far back counters of GPUs go: they are asked for half an hour.
    gpu_seconds: int = 2_400
    # Whether the counters of jobs are there for the whole time, too.
    counters: bool = False

    def lost(self, host: int) -> float:
        """The share of its time that a host loses."""
        return 0.1 + 0.8 * ((host * 37) % self.hosts) / max(1, self.hosts)

    def is_held_idle(self, host: int) -> bool:
        return host % 16 == 3

    def series(self) -> Iterator[Stored]:
        """All series, those of one name together."""
        for many in (
            self._info, self._answers, self._memory, self._gpu_idle, self._kept, self._counted,
            self._rules,
        ):  # fmt: skip
            yield from many()

    def instance(self, host: int) -> dict[str, str]:
        return {"instance": f"node{host}:9400", "job": "whyidle"}

    def owner(self, host: int) -> dict[str, str]:
        return {"job_key": f"{1000 + host}-7", "user": f"user{host % USERS}",
                "team": f"team{host % TEAMS}"}  # fmt: skip

    def _at(self, step: int, seconds: int | None = None) -> tuple[int, int]:
        """Return where a series of that step starts, and how many values it has."""
        count = (seconds or self.seconds) // step + 1
        end = self.end // step * step
        return end - (count - 1) * step, count

    def _info(self) -> Iterator[Stored]:
        start, count = self._at(SCRAPE)
        for host in range(self.hosts):
            labels = {**self.instance(host), "version": "1"}
            yield Stored(f.BUILD.name, labels, start, SCRAPE, [1.0] * count)
        step = SCRAPE if self.counters else 60
        start, count = self._at(step)
        for host in range(self.hosts):
            owner = {**self.instance(host), **self.owner(host), "framework": "torch", "run": "7"}
            yield Stored(f.JOB_INFO.name, owner, start, step, [1.0] * count)

    def _gpus(self, host: int) -> Iterator[dict[str, str]]:
        for gpu in range(self.gpus):
            yield {**self.instance(host), "gpu": str(gpu), "UUID": f"GPU-{host}-{gpu}"}

    def _answers(self) -> Iterator[Stored]:
        start, count = self._at(60, self.gpu_seconds)
        for host in range(self.hosts):
            for labels in self._gpus(host):
                yield Stored(f.GPU_ANSWERS.name, labels, start, 60, [1.0] * count)

    def _memory(self) -> Iterator[Stored]:
        start, count = self._at(60, self.gpu_seconds)
        for host in range(self.hosts):
            job = {"job_key": self.owner(host)["job_key"]}
            for labels in self._gpus(host):
                yield Stored(f.JOB_GPU.name, {**labels, **job}, start, 60, [6e10] * count)

    def _gpu_idle(self) -> Iterator[Stored]:
        start, count = self._at(SCRAPE, self.gpu_seconds)
        for host in range(self.hosts):
            idle = 1.0 if self.is_held_idle(host) else self.lost(host) * 0.9
            for labels in self._gpus(host):
                values = [round(idle * SCRAPE * i, 3) for i in range(count)]
                yield Stored(f.GPU_IDLE.name, {**labels, "held": "true"}, start, SCRAPE, values)

    def _split(self, host: int) -> Iterator[tuple[str, float]]:
        """Yield causes, and the share of the time that each takes of a host."""
        yield "input", 0.8 * self.lost(host)
        yield "unknown", 0.2 * self.lost(host)
        for cause in CAUSES:
            if cause not in {"input", "unknown"}:
                yield cause, 0.0

    def _kept(self) -> Iterator[Stored]:
        every = lost_time.EVERY_SECONDS
        start, count = self._at(every)
        whole = float(self.gpus * every)

        def kept(what: lost_time.Sum, labels: dict[str, str], each: float) -> Stored:
            return Stored(what.record, labels, start, every, [round(each, 4)] * count)

        hosts = range(self.hosts)
        for host in hosts:
            labels = {"instance": f"node{host}:9400", **self.owner(host)}
            for cause, part in self._split(host):
                yield kept(lost_time.JOB_IDLE, {**labels, "cause": cause}, part * whole)
        for host in hosts:
            labels = {"instance": f"node{host}:9400", **self.owner(host)}
            yield kept(lost_time.JOB_TIME, labels, whole)
        for what, factor, more in (
            (lost_time.GPU_IDLE, 1.0, {}), (lost_time.GPU_TIME, None, {}),
            (lost_time.GPU_JOULES, WATTS, {}),
            (lost_time.GPU_COST, PRICE / 3600, {"currency": "EUR"}),
        ):  # fmt: skip
            for host in hosts:
                labels = {"instance": f"node{host}:9400", **more}
                share = 1.0 if factor is None else self.lost(host) * factor
                yield kept(what, {**labels, "held": "true"}, share * whole)
                yield kept(what, {**labels, "held": "false"}, 0.0)

    def _counted(self) -> Iterator[Stored]:
        if not self.counters:
            return
        start, count = self._at(SCRAPE)
        job = self.gpus * SCRAPE
        for host in range(self.hosts):
            labels = {**self.instance(host), "job_key": self.owner(host)["job_key"]}
            for cause, part in self._split(host):
                values = [round(part * job * i, 4) for i in range(count)]
                yield Stored(f.JOB_IDLE.name, {**labels, "cause": cause}, start, SCRAPE, values)
        for host in range(self.hosts):
            labels = {**self.instance(host), "job_key": self.owner(host)["job_key"]}
            values = [float(job * i) for i in range(count)]
            yield Stored(f.JOB_SECONDS.name, labels, start, SCRAPE, values)

    def _rules(self) -> Iterator[Stored]:
        start, count = self._at(RULE)
        mean = sum(self.lost(host) for host in range(self.hosts)) / self.hosts
        idle = [round(mean, 5)] * count
        yield Stored("whyidle_gpu_idle:ratio_rate5m", {}, start, RULE, idle)
        for cause, part in (("input", 0.8), ("unknown", 0.2)):
            lost = [round(mean * part * self.hosts * self.gpus, 4)] * count
            yield Stored("cause:whyidle_job_idle:rate5m", {"cause": cause}, start, RULE, lost)

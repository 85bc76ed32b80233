"""Watch one job from outside: probes -> one tick -> store -> a snapshot for the screen."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from whyidle.agents.wire import clock_pair
from whyidle.monitor.metrics import SELF_CPU, Scope
from whyidle.monitor.processes.namespace import pids_match
from whyidle.monitor.processes.naming import Naming
from whyidle.monitor.processes.process import Identity, ProcessKey
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.processes.tree import Tree
from whyidle.monitor.reading import Reading, Tick
from whyidle.monitor.recording.meter import Meter
from whyidle.monitor.recording.ownership import Owned, owned_gpus
from whyidle.monitor.recording.sampler import Sampler
from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.recording.subjects import Subjects
from whyidle.monitor.sources.cgroup import Cgroup
from whyidle.monitor.sources.gpu import GpuFacts, GpuReading
from whyidle.monitor.sources.gpus import GpuProbe
from whyidle.monitor.sources.host import HostProbe
from whyidle.monitor.sources.news import GpuEvent
from whyidle.monitor.store import NewRun, Writer

# A tick may wait for NVML this share of its period, then it goes on without.
NVML_SHARE = 0.7
SLOWEST_PERIOD = 10.0
_STOPPED = frozenset("Tt")
LEAP_NS = 1_000_000_000
FAILED_AGAIN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asked for."""

    target: ProcessKey
    hz: float = 1.0
    label: str | None = None


class Recorder:
    """One recording. ``begin``, then ``tick`` until it gives no snapshot, then ``end``."""

    def __init__(
        self,
        wanted: Wanted,
        writer: Writer,
        probe: GpuProbe,
        gpu_problem: str | None = None,
        fs: ProcFs | None = None,
    ) -> None:
        self.wanted = wanted
        self.writer = writer
        self.gpu_problem = gpu_problem
        self.fs = fs or ProcFs()
        self.run = 0
        self._tree = Tree(wanted.target, self.fs)
        self._naming = Naming(wanted.target, self.fs)
        self._host = HostProbe(self.fs, Cgroup(wanted.target.pid, self.fs))
        self._probe = probe
        self._meter = Meter()
        self._clock = clock_pair()
        self._last_owned: Owned | None = None
        self._began = self._clock.monotonic_ns / 1e9
        self._ticks = 0
        self._failed_at = float("-inf")

    @property
    def gpus(self) -> tuple[GpuFacts, ...]:
        """The GPUs that are read."""
        return tuple(g.facts for g in self._probe.gpus)

    def begin(self) -> int:
        """Write the head of the recording; returns the run's id."""
        self._naming.look(time.monotonic(), [self.wanted.target])
        self.run = self.writer.begin_run(
            NewRun(
                label=self.wanted.label,
                hz=self.wanted.hz,
                target_pid=self.wanted.target.pid,
                target_start_ticks=self.wanted.target.start_ticks,
                monotonic_ns=self._clock.monotonic_ns,
                realtime_ns=self._clock.realtime_ns,
            )
        )
        self.writer.describe_run(self.run, **_named(self._naming.leader()))
        self._describe_gpus(None)
        self._subjects = Subjects(self.writer, self.run, self.fs)
        return self.run

    def tick(self, sampler: Sampler) -> Snapshot | None:
        """Read everything once and store it; ``None`` when the job is over."""
        started = time.monotonic()
        stats = self._tree.refresh(started)
        if not stats:
            return None
        if self._naming.look(started, stats):
            self.writer.describe_run(self.run, **_named(self._naming.leader()))
        gpus = self._read_gpus(sampler.period)
        processes = self._host.processes(started, stats)
        job = self._host.job(started, stats)
        host = self._host.host(started)
        own = self._meter.read(started, sampler.missed)
        events = tuple(self._probe.events())
        ts_ms = self._wall_ms(started)
        tick = Tick(
            ts_ms,
            {
                Scope.GPU: self._gpu_rows(gpus),
                Scope.GPU_PROCESS: self._gpu_process_rows(gpus),
                Scope.PROCESS: self._process_rows(started, processes),
                Scope.JOB: {self.run: job},
                Scope.HOST: {self.run: host},
                Scope.MONITOR: {self.run: own},
            },
        )
        self.writer.append(self.run, tick)
        self._ticks += 1
        self._store_events(ts_ms, events)
        self.writer.maintain()
        notes = self._back_off(sampler)
        pids = frozenset(key.pid for key in stats)
        owned = self._owned(gpus, pids)
        self._describe_gpus(owned)
        self._meter.tick_seconds = time.monotonic() - started
        return Snapshot(
            run=self.run,
            ts_ms=ts_ms,
            elapsed=started - self._began,
            ticks=self._ticks,
            identity=self._naming.leader(),
            facts=self.gpus,
            gpus=gpus,
            owned=owned,
            gpu_problem=self.gpu_problem,
            job_pids=pids,
            job=job,
            host=host,
            monitor=own,
            period=sampler.period,
            stopped=all(s.state in _STOPPED for s in stats.values()),
            events=events,
            trouble=self.writer.trouble,
            notes=notes,
        )

    def note_failure(self, error: Exception) -> None:
        """Keep in the recording that a tick is missing, and why."""
        if time.monotonic() - self._failed_at < FAILED_AGAIN_SECONDS:
            return
        self._failed_at = time.monotonic()
        said = f"A tick failed ({type(error).__name__}: {error}); the recording goes on."
        self.writer.event(self.run, "tick_failed", said, severity="medium")

    def end(self, reason: str, exit_code: int | None = None) -> None:
        """Close the recording: it is readable from now on, also without us."""
        self._probe.close()
        self.writer.end_run(self.run, reason, exit_code)
        self.writer.close()

    # Inside --------------------------------------------------------------------------------------
    def _wall_ms(self, now: float) -> int:
        """Name a moment on the wall clock, as it stood when the two clocks were last paired.

        A clock that is set back must not fold time: then ours goes on. One that leaps ahead (the
        machine slept, the clock was set) is followed, and the recording says so.
        """
        named = self._clock.realtime_ns + int(now * 1e9) - self._clock.monotonic_ns
        ahead = time.time_ns() - named
        if ahead > LEAP_NS:
            self._clock = clock_pair()
            self.writer.leapt_ms += ahead // 1_000_000
            self._leapt(ahead / 1e9)
            named += ahead
        return named // 1_000_000

    def _leapt(self, seconds: float) -> None:
        said = f"The clock leapt ahead by {seconds:.0f} s: the machine slept, or it was set."
        self.writer.event(self.run, "clock_leapt", said, severity="low")

    def _read_gpus(self, period: float) -> dict[str, GpuReading]:
        if not self._probe.gpus:
            return {}
        before = time.monotonic()
        readings = self._probe.read(NVML_SHARE * period)
        self._meter.nvml_seconds = time.monotonic() - before
        return readings

    def _owned(self, gpus: Mapping[str, GpuReading], pids: frozenset[int]) -> Owned:
        visible = {i.visible_gpus for i in self._naming.known.values() if i.frameworks}
        leader = self._naming.leader()
        if not visible and leader is not None:
            visible = {leader.visible_gpus}
        return owned_gpus(self.gpus, gpus, pids, visible, self.fs)

    def _describe_gpus(self, owned: Owned | None) -> None:
        """Keep in the run's head which GPUs are the job's, for those who read it afterwards."""
        if owned is not None and owned == self._last_owned:
            return
        self._last_owned = owned
        info: dict[str, object] = {"gpu_problem": self.gpu_problem}
        if owned is not None:
            info |= {"gpus": sorted(owned.indices), "gpus_how": owned.how}
        self.writer.describe_run(self.run, info=info)

    def _gpu_rows(self, gpus: Mapping[str, GpuReading]) -> dict[int, Reading]:
        rows = ((self._subjects.gpu(f), gpus.get(f.index)) for f in self.gpus)
        return {i: r.reading for i, r in rows if i is not None and r is not None}

    def _gpu_process_rows(self, gpus: Mapping[str, GpuReading]) -> dict[int, Reading]:
        rows: dict[int, Reading] = {}
        for facts in self.gpus:
            listed = gpus[facts.index].processes if facts.index in gpus else {}
            for pid, reading in listed.items():
                key = self._key(pid)
                subject = self._subjects.gpu_process(facts, key) if key else None
                if subject is not None:
                    rows[subject] = reading
        return rows

    def _key(self, pid: int) -> ProcessKey | None:
        """Return the process behind a pid of the driver's, unless it may mean another one here."""
        stat = self.fs.stat(pid)
        if stat is None or not pids_match(self.fs, pid):
            return None
        return ProcessKey(pid, stat.start_ticks)

    def _process_rows(
        self, now: float, processes: Mapping[ProcessKey, Reading]
    ) -> dict[int, Reading]:
        known = self._naming.known
        settled = {k: r for k, r in processes.items() if self._naming.settled(now, k)}
        rows = ((self._subjects.process(k, known.get(k)), r) for k, r in settled.items())
        return {i: r for i, r in rows if i is not None}

    def _store_events(self, ts_ms: int, events: tuple[GpuEvent, ...]) -> None:
        by_index = {f.index: f for f in self.gpus}
        for event in events:
            self.writer.event(
                self.run,
                event.kind,
                event.text,
                severity=event.severity,
                ts_ms=ts_ms,
                scope=Scope.GPU,
                subject=self._subjects.gpu(by_index[event.index]),
                data=None if event.code is None else {"code": event.code},
            )

    def _back_off(self, sampler: Sampler) -> tuple[str, ...]:
        cores = self._meter.over_budget()
        if cores is None or sampler.period >= SLOWEST_PERIOD:
            return ()
        sampler.slow_down()
        said = (
            f"The monitor took {cores:.0%} of a core ({SELF_CPU.help.lower().rstrip('.')}), "
            f"too much: from now on one tick every {sampler.period:g} s."
        )
        self.writer.event(self.run, "backed_off", said, scope=Scope.MONITOR, subject=self.run)
        return (said,)


def _named(identity: Identity | None) -> dict[str, str | None]:
    """Return what the run's head says of the job."""
    if identity is None:
        return {}
    return {
        "command": identity.command,
        "script": identity.script,
        "framework": identity.framework,
        "python": identity.python,
        "user": identity.user,
        "container": identity.container,
    }

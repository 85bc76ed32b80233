"""Watch one job: probes and agents -> one tick -> store -> a snapshot for the screen."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from whyidle.monitor.control.server import Server
from whyidle.monitor.core.metrics import SELF_CPU, Scope
from whyidle.monitor.core.reading import Reading, Tick
from whyidle.monitor.processes.naming import Naming
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.processes.tree import Tree
from whyidle.monitor.recording.clock import WallClock
from whyidle.monitor.recording.endings import Ending
from whyidle.monitor.recording.faults import Faults
from whyidle.monitor.recording.head import Head
from whyidle.monitor.recording.inside import Inside
from whyidle.monitor.recording.meter import Meter
from whyidle.monitor.recording.ownership import Owned, owned_gpus
from whyidle.monitor.recording.quota import Quota
from whyidle.monitor.recording.requests import Requests
from whyidle.monitor.recording.rows import Rows
from whyidle.monitor.recording.sampler import Sampler
from whyidle.monitor.recording.snapshot import JobEvent, Snapshot
from whyidle.monitor.recording.subjects import Subjects
from whyidle.monitor.recording.traces import Traces
from whyidle.monitor.recording.waker import Waker
from whyidle.monitor.sources.cgroup import Cgroup
from whyidle.monitor.sources.gpu import GpuFacts, GpuReading
from whyidle.monitor.sources.gpus import GpuProbe
from whyidle.monitor.sources.host import HostProbe
from whyidle.monitor.sources.news import GpuEvent
from whyidle.monitor.store import NewRun, Writer
from whyidle.monitor.tracing.policy import SETTLED_SECONDS, SHARE

# A tick may wait for NVML this share of its period, then it goes on without.
NVML_SHARE = 0.7
SLOWEST_PERIOD = 10.0
LEAVE_SECONDS = 1.0
# A tick that comes later than this after it was due was not held up by our own work.
STILL_SECONDS = 2.0
FAILED_AGAIN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asked for."""

    target: ProcessKey
    hz: float = 1.0
    label: str | None = None
    # Nothing of ours goes into the job.
    observe: bool = False
    # Processes of other users than the target's are entered, too.
    any_user: bool = False
    # The agent comes with the job: it is waited for before a process is entered from outside.
    brought: bool = False
    # Of the job's time, at most, for traces that nobody asked for; none are taken at 0.
    trace_share: float = SHARE
    # So long after the agent has come a job is taken to have settled: then a trace may be taken.
    settled: float = SETTLED_SECONDS


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
        # Where a person asks something of us; ``None``: it could not be made.
        self.control: Server | None = None
        self._tree = Tree(wanted.target, self.fs)
        self._naming = Naming(wanted.target, self.fs)
        cgroup = Cgroup(wanted.target.pid, self.fs)
        self._host = HostProbe(self.fs, cgroup)
        self._ending = Ending(wanted.target, self.fs, cgroup.oom_kills)
        self._inside = Inside(
            wanted.target,
            self.fs,
            observe=wanted.observe,
            any_user=wanted.any_user,
            brought=wanted.brought,
        )
        self._quota = Quota(wanted.target)
        self._probe = probe
        self._meter = Meter()
        self._clock = WallClock()
        self._began = self._clock.pair.monotonic_ns / 1e9
        self._ticks = 0
        self._tick_at: float | None = None
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
                monotonic_ns=self._clock.pair.monotonic_ns,
                realtime_ns=self._clock.pair.realtime_ns,
            )
        )
        self._head = Head(self.writer, self.run)
        self._head.name(self._naming.leader())
        self._head.gpus(self.gpu_problem)
        self._subjects = Subjects(self.writer, self.run, self.fs)
        self._rows = Rows(self._subjects, self.fs)
        share = 0.0 if self.wanted.observe else self.wanted.trace_share
        self._traces = Traces(
            self.wanted.target,
            self.writer.path,
            self.run,
            share=share,
            named_ms=self._clock.ms,
            settled=self.wanted.settled,
        )
        self._faults = Faults(self.writer, self.run, self.wanted.target)
        self._listen()
        return self.run

    def answer_in(self, waker: Waker) -> None:
        """Answer what a person asks also while we wait for the next tick."""
        if self.control is not None:
            waker.answer(self.control.handle, self.control.serve)

    def tick(self, sampler: Sampler) -> Snapshot | None:
        """Read everything once and store it; ``None`` when the job is over."""
        if self.control is not None:
            self.control.serve()
        started = time.monotonic()
        stats = self._tree.refresh(started)
        became_another = self._ending.look()
        if not stats:
            return None
        if became_another:
            self._naming.look_again(self.wanted.target)
        if self._naming.look(started, stats):
            self._head.name(self._naming.leader())
        gpus = self._read_gpus(sampler.period)
        self._inside.tick(started, stats, self._naming.known)
        processes = self._host.processes(started, stats)
        job = self._host.job(started, stats)
        self._inside.put_job(job)
        pids = frozenset(key.pid for key in stats)
        owned = self._owned(gpus, pids)
        self._traces.tick(started, self._inside.seats(), gpus, owned)
        self._traces.put_steps(started, job, self._inside.readings())
        host = self._host.host(started)
        own = self._meter.read(started, sampler.missed)
        self._faults.tick(started, new_trace=self._traces.is_new)
        events = tuple(self._probe.events())
        ts_ms = self._tick_ms(started)
        tick = Tick(
            ts_ms,
            {
                Scope.GPU: self._rows.gpus(self.gpus, gpus),
                Scope.GPU_PROCESS: self._rows.gpu_processes(self.gpus, gpus),
                Scope.PROCESS: self._process_rows(started, processes),
                Scope.JOB: {self.run: job},
                Scope.HOST: {self.run: host},
                Scope.MONITOR: {self.run: own},
            },
        )
        self.writer.append(self.run, tick)
        self._ticks += 1
        self._store_events(ts_ms, events)
        happened = self._happened(became_another=became_another)
        self.writer.maintain()
        notes = (*self._stood_still(started, sampler.period), *self._back_off(sampler))
        self._head.gpus(self.gpu_problem, owned)
        members = self._traces.sourced(started, self._inside.members())
        self._head.members(members, self._inside.not_entered)
        self._head.counted(started, self._inside.counted)
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
            stopped=all(s.is_stopped for s in stats.values()),
            main_stopped=self.wanted.target in stats and stats[self.wanted.target].is_stopped,
            not_entered=self._inside.not_entered,
            events=events,
            trouble=self.writer.trouble,
            notes=notes,
            members=members,
            happened=happened,
            traces=self._traces.last,
            has_new_trace=self._traces.is_new,
            findings=self._faults.shown,
        )

    def note_failure(self, error: Exception) -> None:
        """Keep in the recording that a tick is missing, and why."""
        if time.monotonic() - self._failed_at < FAILED_AGAIN_SECONDS:
            return
        self._failed_at = time.monotonic()
        said = f"A tick failed ({type(error).__name__}: {error}); the recording goes on."
        self.writer.event(self.run, "tick_failed", said, severity="medium")

    def end(self, reason: str | None, exit_code: int | None = None) -> None:
        """Close the recording: it is readable from now on, also without us.

        Without a reason the job has ended: it is looked for.
        """
        if self._ticks:
            try:
                # First: who leaves can drop no trace any more.
                self._traces.close(job_ended=reason is None)
                self._leave()
            except Exception as error:  # noqa: BLE001  a recording must have its end
                self.note_failure(error)
        if reason is None:
            reason = self._ending.reason(self._inside.last_word, exit_code)
            exit_code = self._ending.code
        self._probe.close()
        self.writer.end_run(self.run, reason, exit_code)
        if self.control is not None:
            # Whoever waits at it sees from now on that the recording has ended.
            self.control.close()
        self.writer.close()

    # Inside --------------------------------------------------------------------------------------
    def _listen(self) -> None:
        """Hear what a person asks of this recording; it goes on also without."""
        asked = Requests(self.run, self.wanted.target, self.writer, self._inside, self._traces)
        try:
            self.control = Server.open(self.writer.path, self.run, asked.answer)
        except OSError as error:
            said = f"This recording cannot be asked for anything: {error.strerror or error}."
            self.writer.event(self.run, "control_off", said, scope=Scope.MONITOR, subject=self.run)

    def _tick_ms(self, now: float) -> int:
        """Name this very moment; a leap of the wall clock is followed, and told."""
        if leapt := self._clock.follow():
            self.writer.leapt_ms += int(leapt * 1000)
            said = f"The clock leapt ahead by {leapt:.0f} s: the machine slept, or it was set."
            self.writer.event(self.run, "clock_leapt", said, severity="low")
        return self._clock.ms(now)

    def _stood_still(self, now: float, period: float) -> tuple[str, ...]:
        """Say that nothing was looked at for a while: who stops us stops the clock of no job."""
        before, self._tick_at = self._tick_at, now
        gap = 0.0 if before is None else now - before
        if gap <= period + max(STILL_SECONDS, 2 * period):
            return ()
        said = (
            f"The monitor stood still for {gap - period:.0f} s: it was stopped, or the machine was"
            " too busy for it. The job was not looked at meanwhile."
        )
        self.writer.event(
            self.run, "stood_still", said, severity="low", scope=Scope.MONITOR, subject=self.run
        )
        return (said,)

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

    def _leave(self) -> None:
        """Leave the job, and keep what its agents said last."""
        self._inside.leave(LEAVE_SECONDS)
        self._head.members(self._inside.last_members(), self._inside.not_entered)
        self._head.counted(float("inf"), self._inside.counted)
        self._happened(ending=True)
        now = time.monotonic()
        rows = self._process_rows(now, {})
        if any(reading.values for reading in rows.values()):
            self.writer.append(self.run, Tick(self._tick_ms(now), {Scope.PROCESS: rows}))

    def _process_rows(
        self, now: float, outside: Mapping[ProcessKey, Reading]
    ) -> dict[int, Reading]:
        naming, inside = self._naming, self._inside

        def settled(key: ProcessKey) -> bool:
            return naming.settled(now, key) or inside.has_settled(key)

        return self._rows.processes(outside, inside.readings(), naming.known, settled)

    def _happened(
        self, *, became_another: bool = False, ending: bool = False
    ) -> tuple[JobEvent, ...]:
        """Keep what happened in the job since the last call; returns what is news."""
        happened = [
            *self._inside.take_events(),
            *self._traces.take_events(),
            *self._faults.take_events(),
        ]
        if became_another:
            self._inside.renew(self.wanted.target)
            happened.append(_another(self.wanted.target, self._naming))
        happened = self._quota.admit(happened, time.monotonic(), ending=ending)
        for event in happened:
            self.writer.event(
                self.run,
                event.kind,
                event.text,
                severity=event.severity,
                ts_ms=None if event.at is None else self._clock.ms(event.at),
                scope=Scope.PROCESS,
                subject=self._subjects.process(event.key, self._naming.known.get(event.key)),
                data=event.data,
            )
        return tuple(e for e in happened if e.is_news)

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
        self.writer.event(
            self.run, "backed_off", said, severity="low", scope=Scope.MONITOR, subject=self.run
        )
        return (said,)


def _another(key: ProcessKey, naming: Naming) -> JobEvent:
    found = naming.known.get(key)
    command = found.command if found else "?"
    text = f"Process {key.pid} runs another program now: {command}"
    return JobEvent("exec", key, text, data={"command": command})

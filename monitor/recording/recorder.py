"""Watch one job: probes and agents -> one tick -> store -> a snapshot for the screen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from whyidle.monitor.control.server import Server
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.core.reading import FAILED, Reading, Tick
from whyidle.monitor.processes.events import JobEvent
from whyidle.monitor.processes.job_end import ENDED, JobEnd
from whyidle.monitor.processes.naming import Naming
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs, Stat
from whyidle.monitor.processes.tree import Tree
from whyidle.monitor.recording.agent_manager import AgentManager
from whyidle.monitor.recording.clock import Sampler, Waker, WallClock
from whyidle.monitor.recording.faults import Faults
from whyidle.monitor.recording.journal import Journal
from whyidle.monitor.recording.overhead import Overhead
from whyidle.monitor.recording.pipeline import Moment, Stage
from whyidle.monitor.recording.requests import Requests
from whyidle.monitor.recording.rows import Rows, Subjects
from whyidle.monitor.recording.run_metadata import RunMetadata
from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.recording.traces import Traces
from whyidle.monitor.sources.cgroup import Cgroup
from whyidle.monitor.sources.gpu import GpuFacts
from whyidle.monitor.sources.gpus import GpuProbe
from whyidle.monitor.sources.host import HostProbe
from whyidle.monitor.sources.news import GpuEvent
from whyidle.monitor.sources.ownership import Owned, owned_gpus
from whyidle.monitor.store import NewRun, Writer
from whyidle.monitor.tracing.policy import SETTLED_SECONDS, SHARE

# A tick may wait for NVML this share of its period, then it goes on without.
NVML_SHARE = 0.7
LEAVE_SECONDS = 1.0


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
    """One recording: made, it has begun. ``tick`` until it gives no snapshot, then ``end``."""

    def __init__(
        self,
        wanted: Wanted,
        writer: Writer,
        probe: GpuProbe,
        gpu_problem: str | None = None,
        fs: ProcFs | None = None,
    ) -> None:
        target = wanted.target
        self.wanted = wanted
        self.writer = writer
        self.gpu_problem = gpu_problem
        self.fs = fs or ProcFs()
        self._clock = WallClock()
        self._began = self._clock.pair.monotonic_ns / 1e9
        # What may fail by an odd line of /proc comes before there is a run to end.
        self._naming = Naming(target, self.fs)
        self._naming.look(time.monotonic(), [target])
        cgroup = Cgroup(target.pid, self.fs)
        self._job_end = JobEnd(target, self.fs, cgroup.oom_kills)
        self._tree = Tree(target, self.fs)
        self._host = HostProbe(self.fs, cgroup)
        self.run = writer.begin_run(
            NewRun(
                label=wanted.label,
                hz=wanted.hz,
                target_pid=target.pid,
                target_start_ticks=target.start_ticks,
                monotonic_ns=self._clock.pair.monotonic_ns,
                realtime_ns=self._clock.pair.realtime_ns,
            )
        )
        self._subjects = Subjects(writer, self.run, self.fs)
        self._journal = Journal(writer, self.run, target, self._subjects, self._clock)
        self._guard = self._journal.guard
        self._agents = AgentManager(
            target,
            self.fs,
            observe=wanted.observe,
            any_user=wanted.any_user,
            brought=wanted.brought,
            guard=self._guard,
        )
        self._probe = probe
        self._overhead = Overhead()
        self._metadata = RunMetadata(writer, self.run)
        self._rows = Rows(self._subjects, self.fs, self._guard)
        self._traces = Traces(
            target,
            writer.path,
            self.run,
            share=0.0 if wanted.observe else wanted.trace_share,
            named_ms=self._clock.ms,
            settled=wanted.settled,
            guard=self._guard,
        )
        self._faults = Faults(writer, self.run, target, self._guard)
        self._stages: tuple[Stage, ...] = (
            ("processes", self._follow),
            ("ending", self._look_for_the_end),
            ("names", self._name),
            ("gpus", self._read_gpus),
            ("agents", self._ask_agents),
            ("monitor", self._read_ourselves),
            ("host", self._read_host),
            ("job", self._read_job),
            ("owned gpus", self._find_owned),
            ("traces", self._take_traces),
            ("findings", self._look_for_faults),
            ("clock", self._follow_clock),
            ("store", self._store),
            ("gpu events", self._store_gpu_events),
            ("job events", self._store_job_events),
            ("upkeep", self._keep_up),
        )
        self._stats: Mapping[ProcessKey, Stat] = {}
        self._owned = Owned(frozenset(), "not known yet", sure=False)
        self._ticks = 0
        self._metadata.gpus(gpu_problem)
        self._metadata.name(self._naming.leader())
        # Where a person asks something of us; ``None``: it could not be made.
        self.control = self._listen()

    @property
    def gpus(self) -> tuple[GpuFacts, ...]:
        """The GPUs that are read."""
        return tuple(g.facts for g in self._probe.gpus)

    def answer_in(self, waker: Waker) -> None:
        """Answer what a person asks also while we wait for the next tick."""
        if self.control is not None:
            waker.answer(self.control.handle, self.control.serve)

    def tick(self, sampler: Sampler) -> Snapshot | None:
        """Read everything once and store it; ``None`` when the job is over."""
        if self.control is not None:
            self.control.serve()
        started = time.monotonic()
        moment = Moment(
            at=started,
            sampler=sampler,
            ts_ms=self._clock.ms(started),
            stats=self._stats,
            owned=self._owned,
            gpus=self._probe.silent(FAILED),
        )
        # Also in the tick that sees the end: the exit code is soon taken by the parent.
        failed = self._guard.run(self._stages[:2], moment)
        if not (self._tree.root_lives() if "processes" in failed else moment.stats):
            return None
        self._guard.run(self._stages[2:], moment)
        self._ticks += 1
        self._overhead.tick_seconds = time.monotonic() - started
        return self._snapshot(moment)

    def _snapshot(self, moment: Moment) -> Snapshot:
        stats, target = moment.stats, self.wanted.target
        return Snapshot(
            run=self.run,
            ts_ms=moment.ts_ms,
            elapsed=moment.at - self._began,
            ticks=self._ticks,
            identity=self._naming.leader(),
            facts=self.gpus,
            gpus=moment.gpus,
            owned=moment.owned,
            gpu_problem=self.gpu_problem,
            job_pids=moment.pids,
            job=moment.job,
            host=moment.host,
            monitor=moment.own,
            period=moment.sampler.period,
            stopped=bool(stats) and all(s.is_stopped for s in stats.values()),
            main_stopped=target in stats and stats[target].is_stopped,
            not_entered=self._agents.not_entered,
            events=moment.events,
            trouble=self.writer.trouble,
            notes=moment.notes,
            members=moment.members,
            happened=moment.happened,
            traces=self._traces.last,
            has_new_trace=self._traces.is_new,
            findings=self._faults.shown,
        )

    def end(self, reason: str | None, exit_code: int | None = None) -> None:
        """Close the recording: it is readable from now on, also without us.

        Without a reason the job has ended: why is looked for.
        """
        for name, step in self._last_steps(job_ended=reason is None) if self._ticks else ():
            self._guard.attempt(f"{name} at the end", step)
        if reason is None:
            reason, exit_code = self._why_ended(exit_code)
        self._guard.attempt("gpus at the end", self._probe.close)
        self._guard.attempt("defects", self._report_defects)
        self.writer.end_run(self.run, reason, exit_code)
        if self.control is not None:
            # A client that waits sees from now on that the recording has ended.
            self.control.close()
        self.writer.close()

    def caught(self, where: str, error: Exception) -> None:
        """Count a defect of ours; the recording goes on."""
        self._guard.caught(where, error)

    # Stages --------------------------------------------------------------------------------------
    def _follow(self, moment: Moment) -> None:
        """Find the job's processes."""
        moment.stats = self._stats = self._tree.refresh(moment.at)
        moment.is_fresh = True
        for error in self._tree.unreadable:
            self._guard.caught("a process", error)

    def _look_for_the_end(self, moment: Moment) -> None:
        """Keep what will be gone when the job is."""
        moment.became_another = self._job_end.look()

    def _name(self, moment: Moment) -> None:
        """Find out what they are."""
        if moment.became_another:
            self._naming.look_again(self.wanted.target)
        if self._naming.look(moment.at, moment.stats):
            self._metadata.name(self._naming.leader())

    def _read_gpus(self, moment: Moment) -> None:
        if not self._probe.gpus:
            return
        before = time.monotonic()
        moment.gpus = self._probe.read(NVML_SHARE * moment.sampler.period)
        self._overhead.nvml_seconds = time.monotonic() - before

    def _ask_agents(self, moment: Moment) -> None:
        self._agents.tick(moment.at, moment.stats, self._naming.known)

    def _read_ourselves(self, moment: Moment) -> None:
        """Read what we cost."""
        moment.own = self._overhead.read(moment.at, moment.sampler.missed)

    def _read_host(self, moment: Moment) -> None:
        moment.host = self._host.host(moment.at)

    def _read_job(self, moment: Moment) -> None:
        """Read the job and its processes from outside, unless all that we know is old."""
        now, stats = moment.at, moment.stats
        if moment.is_fresh:
            self._host.forget_others(stats)
            moment.processes = self._guard.each(
                "a process", stats, lambda key: self._host.process(now, key, stats[key])
            )
            moment.job = self._host.job(now, stats)
        self._agents.put_job(moment.job)

    def _find_owned(self, moment: Moment) -> None:
        """Find out which GPUs are the job's."""
        visible = {i.visible_gpus for i in self._naming.known.values() if i.frameworks}
        leader = self._naming.leader()
        if not visible and leader is not None:
            visible = {leader.visible_gpus}
        found = owned_gpus(self.gpus, moment.gpus, moment.pids, visible, self.fs)
        moment.owned = self._owned = found

    def _take_traces(self, moment: Moment) -> None:
        self._traces.tick(moment.at, self._agents.processes(), moment.gpus, moment.owned)
        self._traces.put_steps(moment.at, moment.job, self._agents.readings())

    def _look_for_faults(self, moment: Moment) -> None:
        self._faults.tick(moment.at, new_trace=self._traces.is_new)

    def _follow_clock(self, moment: Moment) -> None:
        """Name this very moment."""
        moment.ts_ms = self._journal.ms(moment.at)

    def _store(self, moment: Moment) -> None:
        rows = self._rows.tick(
            self.run, moment, self.gpus, lambda: self._process_rows(moment.at, moment.processes)
        )
        self.writer.append(self.run, rows)

    def _store_gpu_events(self, moment: Moment) -> None:
        """Store what happened to the GPUs, once their rows are there; what fails waits."""
        moment.events = self._gpu_events(self._probe.events(), moment.ts_ms)

    def _store_job_events(self, moment: Moment) -> None:
        moment.happened = self._happened(became_another=moment.became_another)

    def _keep_up(self, moment: Moment) -> None:
        """Look after the store, ourselves, and what is known of the whole run."""
        self.writer.maintain()
        moment.notes = tuple(
            self._journal.note(kind, text)
            for kind, text in self._overhead.notes(moment.at, moment.sampler)
        )
        self._metadata.gpus(self.gpu_problem, moment.owned)
        moment.members = self._traces.sourced(moment.at, self._agents.members())
        self._metadata.members(moment.members, self._agents.not_entered)
        self._metadata.counted(moment.at, self._agents.counted)
        self._metadata.defects(moment.at, self._journal.defects.counts)

    # The end -------------------------------------------------------------------------------------
    def _last_steps(self, *, job_ended: bool) -> tuple[tuple[str, Callable[[], object]], ...]:
        """Return what is to be done before the run ends, in this order."""
        return (
            # First: an agent that leaves can drop no trace any more.
            ("traces", lambda: self._traces.close(job_ended=job_ended)),
            ("agents", lambda: self._agents.leave(LEAVE_SECONDS)),
            ("run", self._describe_last),
            ("gpu events", lambda: self._gpu_events((), self._clock.ms(time.monotonic()))),
            ("job events", lambda: self._happened(ending=True)),
            ("rows", self._store_last),
        )

    def _describe_last(self) -> None:
        """Keep how each process was watched at last, and what it did in all."""
        self._metadata.members(self._agents.last_members(), self._agents.not_entered)
        self._metadata.counted(float("inf"), self._agents.counted)

    def _store_last(self) -> None:
        """Store what the agents said as they left."""
        now = time.monotonic()
        rows = self._process_rows(now, {})
        if any(reading.values for reading in rows.values()):
            self.writer.append(self.run, Tick(self._journal.ms(now), {Scope.PROCESS: rows}))

    def _why_ended(self, exit_code: int | None) -> tuple[str, int | None]:
        try:
            reason = self._job_end.reason(self._agents.last_word, exit_code)
        except Exception as error:  # noqa: BLE001  a recording must have its end
            self._guard.caught("ending", error)
            return ENDED, exit_code
        return reason, self._job_end.code

    def _report_defects(self) -> None:
        self._journal.defects.close()
        self._metadata.defects(float("inf"), self._journal.defects.counts)

    # Inside --------------------------------------------------------------------------------------
    def _listen(self) -> Server | None:
        """Hear what a person asks of this recording; it goes on also without."""
        asked = Requests(self.run, self.wanted.target, self.writer, self._agents, self._traces)
        try:
            return Server.open(self.writer.path, self.run, asked.answer)
        except OSError as error:
            said = f"This recording cannot be asked for anything: {error.strerror or error}."
            self._journal.note("control_off", said, "info")
            return None

    def _process_rows(
        self, now: float, outside: Mapping[ProcessKey, Reading]
    ) -> dict[int, Reading]:
        naming, inside = self._naming, self._agents

        def settled(key: ProcessKey) -> bool:
            return naming.settled(now, key) or inside.has_settled(key)

        return self._rows.processes(outside, inside.readings(), naming.known, settled)

    def _gpu_events(self, events: Iterable[GpuEvent], ts_ms: int) -> tuple[GpuEvent, ...]:
        return self._journal.of_gpus(events, {f.index: f for f in self.gpus}, ts_ms)

    def _happened(
        self, *, became_another: bool = False, ending: bool = False
    ) -> tuple[JobEvent, ...]:
        """Keep what happened in the job since the last call; returns what is news."""
        happened = [
            *self._agents.take_events(),
            *self._traces.take_events(),
            *self._faults.take_events(),
        ]
        if became_another:
            self._agents.renew(self.wanted.target)
            happened.append(_another(self.wanted.target, self._naming))
        return self._journal.of_job(happened, self._naming.known, ending=ending)


def _another(key: ProcessKey, naming: Naming) -> JobEvent:
    found = naming.known.get(key)
    command = found.command if found else "?"
    text = f"Process {key.pid} runs another program now: {command}"
    return JobEvent("exec", key, text, data={"command": command})

"""Watch one job: probes and agents -> one tick -> store -> a snapshot for the screen."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from whyidle.monitor.control.server import Server
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.core.reading import FAILED, Reading, Tick
from whyidle.monitor.processes.process import JobEvent, ProcessKey
from whyidle.monitor.recording.agent_manager import AgentManager
from whyidle.monitor.recording.clock import Sampler, Waker, WallClock
from whyidle.monitor.recording.faults import Faults
from whyidle.monitor.recording.journal import Journal
from whyidle.monitor.recording.outside import Outside
from whyidle.monitor.recording.pipeline import Moment, Stage
from whyidle.monitor.recording.requests import Requests, Wanted
from whyidle.monitor.recording.rows import Rows, Subjects
from whyidle.monitor.recording.run_metadata import RunMetadata
from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.recording.stops import Stops
from whyidle.monitor.recording.telling import Telling
from whyidle.monitor.recording.traces import Traces
from whyidle.monitor.sources.gpus import GpuProbe
from whyidle.monitor.sources.news import GpuEvent
from whyidle.monitor.store import NewRun, Writer

LEAVE_SECONDS = 1.0


class Recorder:
    """One recording: made, it has begun. ``tick`` until it gives no snapshot, then ``end``."""

    def __init__(
        self,
        wanted: Wanted,
        writer: Writer,
        probe: GpuProbe,
        gpu_problem: str | None = None,
    ) -> None:
        target, key, fs = wanted.target, wanted.target.key, wanted.target.fs
        self.wanted = wanted
        self.writer = writer
        self.gpu_problem = gpu_problem
        self._clock = WallClock()
        self._began = self._clock.pair.monotonic_ns / 1e9
        # What may fail by an odd line of /proc comes before there is a run to end.
        outside = self._outside = Outside(target, probe)
        self.run = writer.begin_run(
            NewRun(
                label=wanted.label,
                hz=wanted.hz,
                target_pid=key.pid,
                target_start_ticks=key.start_ticks,
                monotonic_ns=self._clock.pair.monotonic_ns,
                realtime_ns=self._clock.pair.realtime_ns,
            )
        )
        self._subjects = Subjects(writer, self.run, fs)
        self._journal = Journal(writer, self.run, key, self._subjects, self._clock)
        guard = self._guard = self._journal.guard
        self._agents = AgentManager(
            target,
            observe=wanted.observe,
            any_user=wanted.any_user,
            brought=wanted.brought,
            guard=guard,
        )
        self._probe = probe
        self._metadata = RunMetadata(writer, self.run)
        self._rows = Rows(self._subjects, fs, guard)
        self._traces = Traces(
            key,
            writer.path,
            self.run,
            share=0.0 if wanted.observe else wanted.trace_share,
            named_ms=self._clock.ms,
            settled=wanted.settled,
            guard=guard,
        )
        self._faults = Faults(writer, self.run, key, guard)
        self._stops = Stops()
        self._telling = Telling(guard)
        self._stages: tuple[Stage, ...] = (
            ("processes", lambda moment: outside.follow(moment, guard)),
            ("ending", outside.look_for_the_end),
            ("names", self._name),
            ("gpus", outside.read_gpus),
            ("agents", self._ask_agents),
            ("monitor", outside.read_ourselves),
            ("host", outside.read_host),
            ("job", self._read_job),
            ("owned gpus", outside.find_owned),
            ("traces", self._take_traces),
            ("findings", self._look_for_faults),
            ("clock", self._follow_clock),
            ("store", self._store),
            ("gpu events", self._store_gpu_events),
            ("job events", self._store_job_events),
            ("upkeep", self._keep_up),
        )
        self._ticks = 0
        self._metadata.gpus(gpu_problem)
        self._metadata.name(self._outside.leader)
        self.requests = Requests(self.run, key, writer, self._agents, self._traces)
        # Where a person asks something of us; ``None``: it could not be made.
        self.control = self._listen()

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
            stats=self._outside.stats,
            owned=self._outside.owned,
            gpus=self._probe.silent(FAILED),
        )
        # Also in the tick that sees the end: the exit code is soon taken by the parent.
        failed = self._guard.run(self._stages[:2], moment)
        if not (self._outside.root_lives() if "processes" in failed else moment.stats):
            return None
        self._guard.run(self._stages[2:], moment)
        self._ticks += 1
        self._outside.overhead.tick_seconds = time.monotonic() - started
        snapshot = self._snapshot(moment)
        due = partial(self._telling.due, snapshot)
        self._guard.attempt("telling", lambda: self._agents.tell(due))
        return snapshot

    def _snapshot(self, moment: Moment) -> Snapshot:
        stats, target = moment.stats, self.wanted.target.key
        return Snapshot(
            run=self.run,
            ts_ms=moment.ts_ms,
            elapsed=moment.at - self._began,
            ticks=self._ticks,
            identity=self._outside.leader,
            facts=self._outside.gpus,
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
            verdict=self._faults.verdict,
            serves=self._faults.serves,
        )

    def end(self, reason: str | None, exit_code: int | None = None) -> None:
        """Close the recording: it is readable from now on, also without us.

        Without a reason the job has ended: why is looked for.
        """
        # Whatever fails before them, both are closed, the last one first.
        with contextlib.ExitStack() as closing:
            closing.callback(self.writer.close)
            if self.control is not None:
                # A client that waits sees from then on that the recording has ended.
                closing.callback(self.control.close)
            for name, step in self._last_steps(job_ended=reason is None) if self._ticks else ():
                self._guard.attempt(f"{name} at the end", step)
            if reason is None:
                reason, exit_code = self._outside.why_ended(
                    self._agents.last_word, exit_code, self._guard
                )
            self._guard.attempt("gpus at the end", self._probe.close)
            self._guard.attempt("defects", self._report_defects)
            self.writer.end_run(self.run, reason, exit_code)

    def caught(self, where: str, error: Exception) -> None:
        """Count a defect of ours; the recording goes on."""
        self._guard.caught(where, error)

    # Stages --------------------------------------------------------------------------------------
    def _name(self, moment: Moment) -> None:
        if self._outside.name(moment):
            self._metadata.name(self._outside.leader)

    def _ask_agents(self, moment: Moment) -> None:
        traced: dict[ProcessKey, float] = {}
        self._guard.attempt("traces", lambda: traced.update(self._traces.step_seconds(moment.at)))
        self._agents.tick(moment.at, moment.stats, self._outside.known, traced)

    def _read_job(self, moment: Moment) -> None:
        self._outside.read_job(moment, self._guard)
        self._agents.put_job(moment.job)

    def _take_traces(self, moment: Moment) -> None:
        self._traces.tick(moment.at, self._agents.processes(), moment.gpus, moment.owned)
        self._traces.put_steps(moment.at, moment.job, self._agents.readings())

    def _look_for_faults(self, moment: Moment) -> None:
        self._faults.tick(moment.at, new_trace=self._traces.is_new)

    def _follow_clock(self, moment: Moment) -> None:
        moment.ts_ms = self._journal.ms(moment.at)

    def _store(self, moment: Moment) -> None:
        def processes() -> dict[int, Reading]:
            return self._process_rows(moment.at, moment.processes)

        gpus = self._outside.gpus
        self.writer.append(self.run, self._rows.tick(self.run, moment, gpus, processes))

    def _store_gpu_events(self, moment: Moment) -> None:
        moment.events = self._gpu_events(moment.ts_ms)

    def _store_job_events(self, moment: Moment) -> None:
        stops: list[JobEvent] = []
        if moment.is_fresh:
            self._guard.attempt(
                "stops", lambda: stops.extend(self._stops.look(moment.at, moment.stats))
            )
        moment.happened = self._happened(stops, another=moment.became_another)

    def _keep_up(self, moment: Moment) -> None:
        """Look after the store, ourselves, and what is known of the whole run."""
        self.writer.maintain()
        moment.notes = tuple(
            self._journal.note(kind, text)
            for kind, text in self._outside.overhead.notes(moment.at, moment.sampler)
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
            (
                "gpu events",
                lambda: self._gpu_events(self._clock.ms(time.monotonic())),
            ),
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

    def _report_defects(self) -> None:
        self._journal.defects.close()
        self._metadata.defects(float("inf"), self._journal.defects.counts)

    # Inside --------------------------------------------------------------------------------------
    def _listen(self) -> Server | None:
        """Hear what a person asks of this recording; it goes on also without."""
        try:
            return self.requests.listen()
        except OSError as error:
            said = f"This recording cannot be asked for anything: {error.strerror or error}."
            self._journal.note("control_off", said, "info")
            return None

    def _process_rows(
        self, now: float, outside: Mapping[ProcessKey, Reading]
    ) -> dict[int, Reading]:
        def settled(key: ProcessKey) -> bool:
            return self._outside.settled(now, key) or self._agents.has_settled(key)

        inside = self._agents.readings()
        return self._rows.processes(outside, inside, self._outside.known, settled)

    def _gpu_events(self, ts_ms: int) -> tuple[GpuEvent, ...]:
        """Store what happened to the GPUs, once their rows are there; what fails waits."""
        facts = {f.index: f for f in self._outside.gpus}
        return self._journal.of_gpus(self._probe.events(), facts, ts_ms)

    def _happened(
        self, stops: Iterable[JobEvent] = (), *, another: bool = False, ending: bool = False
    ) -> tuple[JobEvent, ...]:
        """Keep what happened in the job since the last call; returns what is news."""
        happened = [
            *stops,
            *self._agents.take_events(),
            *self._traces.take_events(),
            *self._faults.take_events(),
        ]
        if another:
            self._agents.renew(self.wanted.target.key)
            happened.append(self._outside.became_another())
        return self._journal.of_job(happened, self._outside.known, ending=ending)

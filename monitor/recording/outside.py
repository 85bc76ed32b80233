"""What a tick reads from outside: the job, the machine, its GPUs, and what we cost ourselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.reading import FIRST, UNSUPPORTED, Reading
from whyidle.monitor.processes.job_end import ENDED, JobEnd
from whyidle.monitor.processes.naming import Naming
from whyidle.monitor.processes.process import Identity, JobEvent, ProcessKey
from whyidle.monitor.processes.procfs import Stat, own_memory
from whyidle.monitor.processes.target import Target
from whyidle.monitor.processes.tree import Tree
from whyidle.monitor.recording.clock import Sampler
from whyidle.monitor.recording.pipeline import Guard, Moment
from whyidle.monitor.sources.cgroup import Cgroup
from whyidle.monitor.sources.gpu import GpuFacts, GpuReading
from whyidle.monitor.sources.gpus import GpuProbe
from whyidle.monitor.sources.host import HostProbe
from whyidle.monitor.sources.numa import Numa
from whyidle.monitor.sources.ownership import (
    Owned,
    is_alive,
    nodes_of,
    owned_gpus,
    unclaimed,
    users_of,
)

# A tick may wait for NVML this share of its period, then it goes on without.
NVML_SHARE = 0.7
# Everything together, the screen included; storing alone takes a tenth of it (benchmarks).
CPU_BUDGET_CORES = 0.10
JUDGED_OVER_SECONDS = 30.0
SLOWEST_PERIOD = 10.0
# A tick that comes later than this after it was due was not held up by our own work.
STILL_SECONDS = 2.0


class Outside:
    """The probes of one recording; each method but the last ones is a stage of a tick."""

    def __init__(self, target: Target, probe: GpuProbe) -> None:
        self._target = target
        self._probe = probe
        cgroup = Cgroup(target.pid, target.fs)
        self._host = HostProbe(target.fs, cgroup)
        self._numa = Numa()
        self._job_end = JobEnd(target, cgroup.oom_kills)
        self._tree = Tree(target.key, target.fs)
        self._naming = Naming(target.key, target.fs)
        self._naming.look(time.monotonic(), [target.key])
        self.overhead = Overhead()
        # As at the last tick.
        self.stats: Mapping[ProcessKey, Stat] = {}
        self.owned = Owned(frozenset(), "not known yet", sure=False)

    def follow(self, moment: Moment, guard: Guard) -> None:
        """Find the job's processes."""
        moment.stats = self.stats = self._tree.refresh(moment.at)
        moment.is_fresh = True
        for error in self._tree.unreadable:
            guard.caught("a process", error)

    def look_for_the_end(self, moment: Moment) -> None:
        """Keep what will be gone when the job is."""
        moment.became_another = self._job_end.look()

    def name(self, moment: Moment) -> bool:
        """Find out what the processes are; returns whether anything is new."""
        if moment.became_another:
            self._naming.look_again(self._target.key)
        return bool(self._naming.look(moment.at, moment.stats))

    def read_gpus(self, moment: Moment) -> None:
        """Read every GPU, as far as the driver answers in time."""
        if not self._probe.gpus:
            return
        before = time.monotonic()
        moment.gpus = self._probe.read(NVML_SHARE * moment.sampler.period)
        self.overhead.nvml_seconds = time.monotonic() - before

    def read_ourselves(self, moment: Moment) -> None:
        """Read what we cost."""
        moment.own = self.overhead.read(moment.at, moment.sampler.missed)

    def read_host(self, moment: Moment) -> None:
        """Read the machine."""
        moment.host = self._host.host(moment.at)

    def read_job(self, moment: Moment, guard: Guard) -> None:
        """Read the job and its processes, unless all that we know of them is old."""
        now, stats = moment.at, moment.stats
        if moment.is_fresh:
            self._host.forget_others(stats)
            moment.processes = guard.each(
                "a process", stats, lambda key: self._host.process(now, key, stats[key])
            )
            moment.job = self._host.job(now, stats)

    def find_owned(self, moment: Moment) -> None:
        """Find out which GPUs are the job's."""
        visible = {i.visible_gpus for i in self.known.values() if i.frameworks}
        leader = self.leader
        if not visible and leader is not None:
            visible = {leader.visible_gpus}
        found = owned_gpus(self.gpus, moment.gpus, moment.pids, visible, self._target.fs)
        moment.owned = self.owned = found
        # A job has one process on many GPUs.
        alive = cache(partial(is_alive, self._target.fs))
        for gpu in self.gpus:
            if gpu.index in moment.gpus:
                self._look_who_lives(gpu, moment.gpus[gpu.index], alive)
        pid = leader.key.pid if leader is not None and leader.frameworks else None
        users = users_of(moment.gpus, moment.pids, self._target.fs) if found.sure else {}
        near = nodes_of(found, self.gpus, users, pid)
        far = self._numa.far(moment.stats, near)
        if far is not None and moment.is_fresh:
            moment.job.unknown.pop(m.JOB_FAR_FROM_GPU, None)
            moment.job.values[m.JOB_FAR_FROM_GPU] = far

    def _look_who_lives(
        self, gpu: GpuFacts, read: GpuReading, alive: Callable[[int], bool]
    ) -> None:
        """Say how much memory of a GPU is held by nobody."""
        held, why = unclaimed(gpu, read, self.gpus, self._target.fs, alive)
        read.reading.unknown.pop(m.GPU_MEMORY_UNCLAIMED, None)
        read.reading.put(m.GPU_MEMORY_UNCLAIMED, held, why)

    # What is known -------------------------------------------------------------------------------
    @property
    def gpus(self) -> tuple[GpuFacts, ...]:
        """The GPUs that are read."""
        return tuple(gpu.facts for gpu in self._probe.gpus)

    @property
    def known(self) -> Mapping[ProcessKey, Identity]:
        """Who the processes are."""
        return self._naming.known

    @property
    def leader(self) -> Identity | None:
        """Who the job is named after."""
        return self._naming.leader()

    def settled(self, now: float, key: ProcessKey) -> bool:
        """Tell whether a process has lived long enough to be worth a name."""
        return self._naming.settled(now, key)

    def root_lives(self) -> bool:
        """Tell whether the named process lives, where the job's processes cannot be read."""
        return self._tree.root_lives()

    def became_another(self) -> JobEvent:
        """Return the event that the named process runs another program now."""
        key = self._target.key
        found = self.known.get(key)
        command = found.command if found else "?"
        text = f"Process {key.pid} runs another program now: {command}"
        return JobEvent("exec", key, text, data={"command": command})

    def why_ended(
        self, last_word: str | None, exit_code: int | None, guard: Guard
    ) -> tuple[str, int | None]:
        """Return why the job has ended, and its exit code."""
        try:
            reason = self._job_end.reason(last_word, exit_code)
        except Exception as error:  # noqa: BLE001  a recording must have its end
            guard.caught("ending", error)
            # It may have been seen before this.
            return ENDED, self._job_end.code if exit_code is None else exit_code
        return reason, self._job_end.code


class Overhead:
    """Measures this process between ticks."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None
        self._began: tuple[float, float] | None = None
        self._tick_at: float | None = None
        self.nvml_seconds: float | None = None
        self.tick_seconds: float | None = None

    def read(self, now: float, missed: int) -> Reading:
        """Return what was spent since the last tick."""
        reading = Reading({m.SELF_MISSED: missed})
        spent = time.process_time()
        if self._last is None:
            reading.unknown[m.SELF_CPU] = FIRST
        else:
            reading.values[m.SELF_CPU] = (spent - self._last[1]) / max(1e-6, now - self._last[0])
        self._last = (now, spent)
        self._began = self._began or self._last
        reading.put(m.SELF_RSS, own_memory(), UNSUPPORTED)
        reading.put(m.SELF_NVML, self.nvml_seconds, "no GPU is read")
        reading.put(m.SELF_TICK, self.tick_seconds, FIRST)
        return reading

    def notes(self, now: float, sampler: Sampler) -> Iterator[tuple[str, str]]:
        """Yield the kind and the text of what is to be noted; a monitor too dear ticks less."""
        before, self._tick_at = self._tick_at, now
        gap = 0.0 if before is None else now - before
        if gap > sampler.period + max(STILL_SECONDS, 2 * sampler.period):
            # A stopped monitor stops no job's clock.
            text = (
                f"The monitor was stopped for {gap - sampler.period:.0f} s: someone paused it, or"
                " the machine was too busy. The job was not watched meanwhile."
            )
            yield "stood_still", text
        cores = self.over_budget()
        if cores is not None and sampler.period < SLOWEST_PERIOD:
            sampler.slow_down()
            text = (
                f"The monitor took {cores:.0%} of a core ({m.SELF_CPU.help.lower().rstrip('.')}), "
                f"too much: from now on one tick every {sampler.period:g} s."
            )
            yield "backed_off", text

    def over_budget(self) -> float | None:
        """Return the cores taken when they are too many over a while; then it starts again."""
        if self._began is None or self._last is None:
            return None
        seconds = self._last[0] - self._began[0]
        if seconds < JUDGED_OVER_SECONDS:
            return None
        cores = (self._last[1] - self._began[1]) / seconds
        self._began = self._last
        return cores if cores > CPU_BUDGET_CORES else None

"""The jobs that hold GPUs, seen from outside: which processes are one job, and whose it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.export import kubelet
from whyidle.monitor.export.kubelet import Allocations
from whyidle.monitor.processes.container import placed
from whyidle.monitor.processes.namespace import pids_match
from whyidle.monitor.processes.process import Identity, ProcessKey, describe
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.sources.gpu import GpuFacts, GpuReading, innermost

# Frameworks load late, and reading a process's maps holds its memory lock: few looks, far apart.
LOOKS_AT: Final = (0.0, 20.0, 60.0, 300.0)
DEEPEST: Final = 64


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a process is, as schedulers say; empty where they do not."""

    slurm_job: str = ""
    slurm_step: str = ""
    pod: str = ""
    namespace: str = ""
    # Its name in the pod, as the kubelet tells it.
    container: str = ""
    container_id: str = ""
    pod_uid: str = ""
    is_in_pod: bool = False


@dataclass(slots=True)
class Job:
    """One job; ``key`` is the process that it goes by."""

    key: ProcessKey
    # The device memory that it holds on each GPU; 0 where the driver does not say.
    gpus: dict[str, float] = field(default_factory=dict)
    identity: Identity | None = None
    owner: Owner = Owner()

    @property
    def name(self) -> str:
        """Its job_key."""
        return f"{self.key.pid}-{self.key.start_ticks}"

    @property
    def memory(self) -> float:
        """The device memory that it holds."""
        return sum(self.gpus.values())


@dataclass(slots=True)
class _Known:
    since: float
    identity: Identity | None
    owner: Owner
    looks: int = 1


class Jobs:
    """Finds them at each tick; who a process is stays known."""

    def __init__(self, fs: ProcFs | None = None) -> None:
        self.fs = fs or ProcFs()
        self._known: dict[ProcessKey, _Known] = {}
        # Processes of the last tick that cannot be told from here, by GPU.
        self.strangers: dict[str, int] = {}

    def find(
        self,
        facts: tuple[GpuFacts, ...],
        readings: Mapping[str, GpuReading],
        recorded: Mapping[ProcessKey, ProcessKey],
        now: float,
        allocated: Allocations | None = None,
    ) -> list[Job]:
        """Return the jobs, those with the most device memory first.

        ``recorded`` has each process that a recording is known to watch, and the one that it
        was asked for; ``allocated`` who was given each GPU, by the kubelet.
        """
        held = self._held(facts, readings)
        found = {key: Job(key) for key in recorded.values()}
        users = set(held)
        for user, gpus in held.items():
            key = self._root(user, users, recorded)
            job = found.setdefault(key, Job(key))
            for index, memory in gpus.items():
                job.gpus[index] = job.gpus.get(index, 0.0) + memory
        for job in found.values():
            known = self._look(job.key, now)
            job.identity, job.owner = known.identity, known.owner
            if job.owner.is_in_pod and (
                who := kubelet.owner(job.gpus, allocated or {}, job.owner.pod)
            ):
                job.owner = replace(job.owner, **who._asdict())
        kept = found.keys() | users
        self._known = {key: known for key, known in self._known.items() if key in kept}
        return sorted(found.values(), key=lambda job: (-job.memory, job.key))

    def _held(
        self, facts: tuple[GpuFacts, ...], readings: Mapping[str, GpuReading]
    ) -> dict[ProcessKey, dict[str, float]]:
        held: dict[ProcessKey, dict[str, float]] = {}
        self.strangers = dict.fromkeys(readings, 0)
        for index, read in readings.items():
            for pid, process in read.processes.items():
                stat = self.fs.stat(pid)
                if stat is None or not pids_match(self.fs, pid):
                    self.strangers[index] += 1
                elif not stat.has_ended:
                    user = ProcessKey(pid, stat.start_ticks)
                    memory = process.get(m.PROCESS_GPU_MEMORY) or 0.0
                    held.setdefault(user, {})[index] = memory
        return {
            user: {i: memory for i, memory in gpus.items() if i in innermost(gpus, facts)}
            for user, gpus in held.items()
        }

    def _root(
        self, user: ProcessKey, users: set[ProcessKey], recorded: Mapping[ProcessKey, ProcessKey]
    ) -> ProcessKey:
        """Return the process that the job of this one goes by.

        That of its recording; else the topmost above it that holds a GPU, too; else, where a
        launcher has numbered it, the launcher.
        """
        line = [user, *self._above(user)]
        for each in line:
            if each in recorded:
                return recorded[each]
        above = [each for each in line if each in users]
        if len(above) > 1 or len(line) < 2:
            return above[-1]
        who = self._look(user, None).identity
        rank = None if who is None else who.rank
        # All that a batch script starts inherits SLURM's numbers.
        if rank is None or rank.source == "slurm" or rank.world_size == 1:
            return user
        return line[1]

    def _above(self, key: ProcessKey) -> Iterator[ProcessKey]:
        stat = self.fs.stat(key.pid)
        for _ in range(DEEPEST):
            if stat is None or stat.parent <= 1:
                return
            stat = self.fs.stat(stat.parent)
            if stat is not None:
                yield ProcessKey(stat.pid, stat.start_ticks)

    def _look(self, key: ProcessKey, now: float | None) -> _Known:
        known = self._known.get(key)
        if known is None:
            identity = self._describe(key)
            known = self._known[key] = _Known(now or 0.0, identity, owner_of(self.fs, key.pid))
        elif now is not None and self._is_due(known, now):
            known.looks += 1
            known.identity = self._describe(key) or known.identity
        return known

    def _is_due(self, known: _Known, now: float) -> bool:
        if known.identity is not None and known.identity.frameworks:
            return False
        return known.looks < len(LOOKS_AT) and now - known.since >= LOOKS_AT[known.looks]

    def _describe(self, key: ProcessKey) -> Identity | None:
        found = describe(key.pid, self.fs)
        return found if found is not None and found.key == key else None


def owner_of(fs: ProcFs, pid: int) -> Owner:
    """Return whose a process is: by its control group, else by its environment.

    No file of a container's is opened: it could be a link to one of ours, or never end.
    """
    given = fs.environment(pid) or {}
    group = placed(fs.text(f"{pid}/cgroup") or "")
    is_in_pod = bool(group.pod_uid) or "KUBERNETES_SERVICE_HOST" in given
    # By its job it is known for sure; steps of an outer job may be left in its environment.
    same = group.slurm_job in {"", given.get("SLURM_JOB_ID", "")}
    return Owner(
        slurm_job=group.slurm_job or given.get("SLURM_JOB_ID", ""),
        slurm_step=group.slurm_step or (given.get("SLURM_STEP_ID", "") if same else ""),
        # Without a name it has that of its host, which a pod is.
        pod=given.get("POD_NAME") or (given.get("HOSTNAME", "") if is_in_pod else ""),
        namespace=given.get("POD_NAMESPACE", ""),
        container_id=group.container_id,
        pod_uid=group.pod_uid,
        is_in_pod=is_in_pod,
    )

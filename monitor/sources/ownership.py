"""Which GPUs the job uses: from the driver's list of pids if that is reliable, else from hints."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.reading import LATE, UNSUPPORTED
from whyidle.monitor.processes.namespace import FIRST_NAMESPACE, pids_match
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.sources.gpu import GpuFacts, GpuReading, innermost

UNMATCHED: Final = "the driver's pids cannot be matched from here"
DIVIDED: Final = "its MIG instances say it"


@dataclass(frozen=True, slots=True)
class Owned:
    """The indices of the job's GPUs, and how we know."""

    indices: frozenset[str]
    how: str
    sure: bool


def owned_gpus(
    facts: Sequence[GpuFacts],
    readings: Mapping[str, GpuReading],
    pids: Collection[int],
    visible: Collection[str | None],
    fs: ProcFs,
) -> Owned:
    """Return the GPUs to show for this job; ``visible`` is CUDA_VISIBLE_DEVICES of its workers."""
    everything = frozenset(f.index for f in facts)
    held = frozenset(users_of(readings, pids, fs))
    if held:
        return Owned(innermost(held, facts), "the driver lists the job on them", sure=True)
    if not facts:
        return Owned(everything, "no GPU is known", sure=False)
    named = [visible_gpus(v, facts) for v in visible if v is not None]
    if named and len(named) == len(visible):
        values = " ".join(sorted(v for v in visible if v is not None))
        return Owned(frozenset().union(*named), f"CUDA_VISIBLE_DEVICES={values}", sure=False)
    if fs.namespace != FIRST_NAMESPACE:
        return Owned(everything, "all: the driver's pids cannot be matched from here", sure=False)
    return Owned(everything, "all: the job holds none of them yet", sure=False)


def users_of(
    readings: Mapping[str, GpuReading], pids: Collection[int], fs: ProcFs
) -> dict[str, set[int]]:
    """Return the processes of the job that the driver lists, by the index of the GPU."""
    listed = {pid for reading in readings.values() for pid in reading.processes}
    trusted = {pid for pid in listed.intersection(pids) if pids_match(fs, pid)}
    found = {index: trusted & reading.processes.keys() for index, reading in readings.items()}
    return {index: users for index, users in found.items() if users}


def nodes_of(
    owned: Owned,
    facts: Sequence[GpuFacts],
    users: Mapping[str, Collection[int]],
    leader: int | None,
) -> dict[int, set[int]]:
    """Return the NUMA nodes of the GPUs of each process, as far as both are known.

    Where the driver names no process, all GPUs of the job are its leader's.
    """
    found: dict[int, set[int]] = {}
    alone = () if leader is None else (leader,)
    for gpu in facts:
        if gpu.index in owned.indices and gpu.numa_node is not None:
            for pid in users.get(gpu.index, ()) if owned.sure else alone:
                found.setdefault(pid, set()).add(gpu.numa_node)
    return found


def visible_gpus(visible: str, facts: Sequence[GpuFacts]) -> frozenset[str]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES names; empty and -1 hide them all.

    CUDA numbers them fastest first, the driver by slot: these agree if all GPUs are alike.
    """
    known = {f.index: f.index for f in facts} | {f.uuid: f.index for f in facts if f.uuid}
    found: list[str] = []
    for word in (w.strip() for w in visible.split(",")):
        index = known.get(word) or next(
            (
                i
                for name, i in known.items()
                if word.startswith(("GPU-", "MIG-")) and name.startswith(word)
            ),
            None,
        )
        if index is None:
            # CUDA stops reading at the first unknown name.
            break
        found.append(index)
    return frozenset(found)


def unclaimed(
    gpu: GpuFacts,
    reading: GpuReading,
    facts: Sequence[GpuFacts],
    fs: ProcFs,
    alive: Callable[[int], bool],
) -> tuple[float | None, str]:
    """Return the memory in use that no live process holds; ``None`` with the reason: not known.

    Only the first pid namespace shows whether a process that the driver names is alive.
    """
    if fs.namespace != FIRST_NAMESPACE:
        return None, UNMATCHED
    if any(other.mig_of == gpu.index for other in facts):
        return None, DIVIDED
    if reading.processes_unknown is not None:
        return None, reading.processes_unknown
    used = reading.reading.get(m.GPU_MEMORY_USED)
    held = [
        process.get(m.PROCESS_GPU_MEMORY)
        for pid, process in reading.processes.items()
        if alive(pid)
    ]
    if used is None or None in held:
        return None, LATE if used is None else UNSUPPORTED
    return max(0.0, used - sum(each for each in held if each is not None)), ""


def is_alive(fs: ProcFs, pid: int) -> bool:
    """Tell whether a process that the driver names is there."""
    stat = fs.stat(pid)
    return stat is not None and not stat.has_ended

"""Which GPUs are this job's: by the driver's list of pids if it can be trusted, else by hints."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from whyidle.monitor.processes.namespace import pids_match
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.sources.gpu import GpuFacts, GpuReading


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
    visible: str | None,
    fs: ProcFs,
) -> Owned:
    """Return the GPUs to show for this job."""
    everything = frozenset(f.index for f in facts)
    trusted = {pid for pid in pids if pids_match(fs, pid)}
    held = frozenset(i for i, r in readings.items() if trusted & r.processes.keys())
    if held:
        return Owned(_innermost(held, facts), "the driver lists the job on them", sure=True)
    named = visible_gpus(visible, facts)
    if named is not None:
        return Owned(named, f"CUDA_VISIBLE_DEVICES={visible}", sure=False)
    if not facts:
        return Owned(everything, "no GPU is known", sure=False)
    if pids and not trusted:
        return Owned(everything, "all: the driver's pids cannot be matched from here", sure=False)
    return Owned(everything, "all: the job holds none of them yet", sure=False)


def _innermost(held: frozenset[str], facts: Sequence[GpuFacts]) -> frozenset[str]:
    """Drop a GPU whose MIG instance is held: the job has only that part of it."""
    parents = {f.mig_of for f in facts if f.index in held and f.mig_of is not None}
    return held - parents


def visible_gpus(visible: str | None, facts: Sequence[GpuFacts]) -> frozenset[str] | None:
    """Return the GPUs that CUDA_VISIBLE_DEVICES names, ``None`` when it names none we know."""
    if visible is None:
        return None
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
            # CUDA stops reading at the first name that it does not know.
            break
        found.append(index)
    return frozenset(found) if found else None

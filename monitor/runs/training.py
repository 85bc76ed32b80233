"""What a recording knows of the training: what trains, and how its time went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from whyidle.agents import wire
from whyidle.monitor.core import metrics as m

# The source of steps that are turns of the job's own loop: counted from outside, and none is timed.
LOOP: Final = "loop"
# What is measured all the time, and may have been unknown for a reason of its own.
METRICS: Final = {
    "steps": m.JOB_STEPS,
    "steps_source": m.JOB_STEPS,
    "step_p50_s": m.JOB_STEP_P50,
    "step_p95_s": m.JOB_STEP_P95,
    "samples_per_s": m.JOB_SAMPLES,
    "compiles": m.JOB_COMPILES,
    "loader_wait": m.JOB_LOADER_WAIT,
    "sync_wait": m.JOB_SYNC_WAIT,
    "compile": m.JOB_COMPILE,
}
# The probes of frameworks; in a process with both, PyTorch counts the steps.
_WORDS = {"torch": "PyTorch", "jax": "JAX", "tensorflow": "TensorFlow", "julia": "Julia"}

NOT_SAID = "the agent did not say"
NO_STEPS = "no step ended while an agent was in the job"
NOT_COUNTED = "the agent did not count it"


@dataclass(frozen=True, slots=True)
class Counted:
    """What one process did since its recording began, as it was kept last."""

    steps: int | None = None
    source: str | None = None
    step_p50_ns: int | None = None
    step_p95_ns: int | None = None
    # By the name of the gauge: what it grew by, and in how many seconds.
    totals: dict[str, tuple[float, float]] = field(default_factory=dict)
    # In their order: the steps of a stretch, its ns, and the middle duration of its steps.
    stretches: tuple[tuple[int, int, int], ...] = ()
    # How many steps took no longer than each of STEP_BOUNDS_S, and all; and how long these took.
    step_counts: tuple[int, ...] = ()
    step_sum_ns: int | None = None

    def grown(self, name: str) -> float | None:
        """Return what a total grew by."""
        return self.totals[name][0] if name in self.totals else None

    def rate(self, name: str) -> float | None:
        """Return the growth per second."""
        grown, seconds = self.totals.get(name, (0.0, 0.0))
        return grown / seconds if seconds else None

    def share(self, name: str) -> float | None:
        """Return which share of the time a total of nanoseconds took."""
        rate = self.rate(name)
        return None if rate is None else min(1.0, rate * 1e-9)


@dataclass(frozen=True, slots=True)
class Trained:
    """The training of a whole job."""

    framework: str | None = None
    version: str | None = None
    backend: str | None = None
    model: str | None = None
    parameters: int | None = None
    batch_size: int | None = None
    # Of the slowest process.
    steps: int | None = None
    steps_source: str | None = None
    step_p50_s: float | None = None
    step_p95_s: float | None = None
    # Of all processes together.
    samples_per_s: float | None = None
    compiles: int | None = None
    # Of the process that is worst.
    loader_wait: float | None = None
    sync_wait: float | None = None
    compile: float | None = None

    def why_not(self, name: str) -> str:
        """Return why one of these is not known."""
        if name.startswith("step"):
            return NO_STEPS
        return NOT_COUNTED if name in METRICS else NOT_SAID


def trained(
    processes: Iterable[tuple[Mapping[str, Mapping[str, Any]], Counted | None]],
) -> Trained:
    """Return what the processes come to; those that stand for the job first."""
    known_of = list(processes)
    counted = [sums for _, sums in known_of if sums is not None]
    paced = [sums for sums in counted if sums.steps]
    # What loops beside those that train makes no step of theirs.
    paced = [sums for sums in paced if sums.source != LOOP] or paced
    slowest = max(paced, key=lambda sums: sums.step_p50_ns or 0, default=Counted())
    # A process that takes steps and does not count its samples would be missing from the sum.
    samples = [sums.rate(wire.SAMPLES) for sums in (paced or counted)]
    known = [rate for rate in samples if rate]
    compiles = [n for sums in counted if (n := sums.grown(wire.COMPILES)) is not None]
    return Trained(
        **_what([frameworks for frameworks, _ in known_of]),
        steps=slowest.steps,
        steps_source=slowest.source,
        step_p50_s=_seconds(slowest.step_p50_ns),
        step_p95_s=_seconds(slowest.step_p95_ns),
        samples_per_s=sum(known) if known and len(known) == len(samples) else None,
        compiles=round(sum(compiles)) if compiles else None,
        # Without a batch there was no loader to wait for.
        loader_wait=_worst(
            [c for c in counted if c.grown(wire.LOADER_BATCHES)], wire.LOADER_WAIT_NS
        ),
        sync_wait=_worst(counted, wire.SYNC_NS),
        compile=_worst(counted, wire.COMPILE_NS),
    )


def _what(frameworks: list[Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return what trains, in the words of the first process that has a model, or says anything."""
    says = [(probe, facts) for each in frameworks for probe in _WORDS if (facts := each.get(probe))]
    best = next((pair for pair in says if pair[1].get("model")), says[0] if says else None)
    if best is None:
        return {}
    probe, facts = best
    words = {name: _of(str, facts.get(name)) for name in ("version", "backend", "model")}
    numbers = {name: _of(int, facts.get(name)) for name in ("parameters", "batch_size")}
    return {"framework": _WORDS[probe], **words, **numbers}


def _of(kind: type, fact: object) -> Any:
    return fact if type(fact) is kind else None


def _worst(counted: list[Counted], name: str) -> float | None:
    shares = [share for sums in counted if (share := sums.share(name)) is not None]
    return max(shares, default=None)


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e9

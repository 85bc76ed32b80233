"""The pipelines of ``tf.data``: what each does one after the other that could be done ahead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from whyidle.monitor.core.amounts import LEAST_SAMPLES, MOSTLY, NEARLY_ALL
from whyidle.monitor.core.finding import Evidence, Fix, Place
from whyidle.monitor.libraries.frames import plays
from whyidle.monitor.libraries.table import Role
from whyidle.monitor.signals.sampling import error_of
from whyidle.monitor.signals.window import Window

_CODE: Final = """\
data = (
    data.shuffle(10_000)
    .map(prepare, num_parallel_calls=tf.data.AUTOTUNE)
    .batch(64)
    .prefetch(tf.data.AUTOTUNE)
)"""
_KEPT: Final = """\
data = (
    data.map(prepare, num_parallel_calls=tf.data.AUTOTUNE)
    .cache()  # of what fits into memory, and before what is random
    .shuffle(10_000)
    .batch(64)
    .prefetch(tf.data.AUTOTUNE)
)"""
_ONE_ITERATOR: Final = """\
batches = iter(data.repeat().batch(64).prefetch(tf.data.AUTOTUNE))
for epoch in range(epochs):
    for _ in range(batches_of_an_epoch):
        step(next(batches))"""
RESTARTS: Final = "Each pass over the data restarts the tf.data pipeline"
IN_ORDER: Final = Fix("Shuffle samples, map them in parallel, and prefetch batches.", _CODE)
# Stages that read, or prepare, what was read and prepared the same way in the pass before.
READS: Final = re.compile("Interleave|Map|TFRecord|TextLine|FixedLength")
# What is wrong with a pipeline, and what to do about it.
_AGAIN: Final = (
    "nothing is kept from pass to pass: no cache",
    "If the data fits into memory, .cache() it before anything random.",
)
_PYTHON: Final = (
    "a Python function makes each element, and one holds Python's lock at a time",
    "Read with tf.data, or make whole batches in each Python call.",
)
_BEGUN: Final = (
    "most of the wait is for the first batch of a pass",
    "Repeat the data, and take the batches of all epochs from one iterator.",
)
_UNREAD: Final = (
    "nothing is made ahead: no prefetch at its end",
    "End it with .prefetch(tf.data.AUTOTUNE).",
)
_LATE: Final = (
    "shuffle stands after batch: it moves whole batches and holds many in memory",
    "Shuffle before batch.",
)


_AGENT: Final = "<_whyidle_agent"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What is known of the one that feeds the steps."""

    evidence: tuple[Evidence, ...]
    fix: Fix
    where: tuple[Place, ...]
    # Whether Python makes its elements, or a part of them.
    in_python: bool
    # What the finding is called then; ``None``: as the rule.
    title: str | None = None


def pipeline_of(window: Window) -> Pipeline | None:
    """Return the latest pipeline that is at fault; ``None``: nothing is known against one."""
    begins = (window.fact("first_waits") or 0.0) > MOSTLY
    for stages in window.fact("pipelines") or ():
        if faults := [_BEGUN] if begins else list(_faults(stages)):
            # One that works ahead may well read anew: that is no fault yet.
            names = [str(each.get("stage")) for each in stages]
            # A generator may make something new in each pass.
            is_other = any(re.search("Cache|Snapshot|Load|Generator", name) for name in names)
            again = not (begins or is_other) and any(READS.search(name) for name in names)
            faults = [*([_AGAIN] if again else []), *faults]
            called = [each.get("function") for each in stages]
            words = (f"{n}({at[2]})" if at else n for n, at in zip(names, called, strict=True))
            said = [*(("in it", what) for what, _ in faults), ("pipeline", ", ".join(words))]
            if begins:
                said.insert(0, ("batches of a pass", str(window.fact("batches_of_pass"))))
            age_s, seconds = window.job.age_s, window.job.seconds
            return Pipeline(
                tuple(Evidence(name, what, "", "agent", age_s, seconds) for name, what in said),
                Fix(
                    " ".join(cure for _, cure in faults),
                    _ONE_ITERATOR if begins else _KEPT if again else _CODE,
                ),
                tuple(Place(str(at[0]), int(at[1]), str(at[2])) for at in called if at),
                _has_python(stages),
                RESTARTS if begins else None,
            )
    return None


def in_python(window: Window) -> tuple[float, float] | None:
    """Return in what share of the looks a thread ran Python for a pipeline, and how far that errs.

    Where the steps wait within a graph, as in ``fit``, nothing else shows it. Python knows such a
    thread only while it is in a function of the pipeline's; the agent's own is there at each look.
    """
    mine = [stages for stages in window.fact("pipelines") or () if _has_python(stages)]
    if not mine:
        return None
    chains = window.job.threads.chains.items()
    ours = [n.samples for chain, n in chains if chain.leaf and chain.leaf.file.startswith(_AGENT)]
    looks = max(ours, default=0.0)
    if looks < LEAST_SAMPLES:
        return None
    others = (n for chain, n in chains if chain.leaf and not plays(Role.ASIDE, chain.leaf))
    ran = sum(n.samples - n.waited - n.locked for n in others)
    share = min(1.0, max(0.0, ran) / looks)
    error = error_of(share, looks, is_rare=True)
    # What is made ahead costs nothing as long as it keeps up.
    is_ahead = all(stages[-1].get("stage") == "Prefetch" for stages in mine)
    return (share, error) if not is_ahead or share - error >= NEARLY_ALL else None


def _has_python(stages: Sequence[Mapping[str, Any]]) -> bool:
    return any(each.get("python") or each.get("stage") == "Generator" for each in stages)


def _faults(stages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    names = [str(each.get("stage")) for each in stages]
    # What stands before a cache runs once.
    cached = max((i + 1 for i, name in enumerate(names) if name.endswith("Cache")), default=0)
    stages, names = stages[cached:], names[cached:]
    if _has_python(stages):
        yield _PYTHON
    if "Map" in names:
        yield ("map has no parallel calls", "Give map num_parallel_calls=tf.data.AUTOTUNE.")
    if not names or names[-1] not in {"Prefetch", "MapAndBatch"}:
        yield _UNREAD
    batch = next((i for i, name in enumerate(names) if "Batch" in name), None)
    if batch is not None and "Shuffle" in names[batch + 1 :]:
        yield _LATE

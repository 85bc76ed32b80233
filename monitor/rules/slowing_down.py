"""Each step takes longer than those before it.

## What it sees
Steps that take longer in the last third of the recording than in the first, and the lines that
grow.

## Why it costs
Each step processes more: a list, a copied array, hooks, or a graph that spans all steps.

## How to fix
Use a `set` or `dict` for searches, and write into an array made once instead of appending. Register
hooks once.

## When it is wrong
A curriculum, a growing population or a hotter machine also slow steps down; caches level out. Steps
with more samples or tokens are not reported. If only input waits grow, see `input_starved`. If all
parts grow, the machine is slower.

## Documents
Beyond the documents: D2 describes memory that grows, not time.
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.code.growing import grown_at
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain, Place
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.rules import Need, Rule, Severity, Verdict, Window, both
from whyidle.monitor.signals.drift import Drift
from whyidle.monitor.signals.phases import Phase
from whyidle.monitor.signals.user_lines import own, registering

SHORTEST_S: Final = 10.0
# What grows takes another share of the step in the end. Where all takes as much of it as before, as
# far as chance lets see, the machine may be slower: six jobs whose steps grew without a fault that
# grows moved by 0.3 to 1.2 of what chance moves, and rose in an order of 0.55 to 0.83; a growing
# list moved by 2.0, and hooks that pile up rose in an order of 0.98.
MOVED: Final = 1.3
STRICTLY: Final = 0.9
# What a step has more of where it has more to do.
WORK: Final = {
    m.PROCESS_SAMPLES.name: "samples",
    m.PROCESS_LOADER_BATCHES.name: "batches",
    m.PROCESS_DEVICE_PUTS.name: "copies to the device",
    m.PROCESS_SYNCS.name: "values read back as an environment is played",
}
# What is gone through in each step costs CPU time: at least half of the growth is that.
OWN: Final = 0.5


def detect(window: Window) -> Verdict:
    """Judge how the time of a step goes."""
    drift = window.job.drift
    if drift is None:
        return window.lacks(Need.LONGER if window.job.inside else Need.INSIDE)
    if window.job.seconds < SHORTEST_S:
        return window.lacks(Need.LONGER)
    if not drift.rises:
        return None
    if (other := _otherwise(window, drift)) is not None:
        return window.lacks(Need.LONGER, other)
    # What is registered again and again costs nothing there, but in each step from then on.
    where = own((*registering(window.job), *map(Place.at, drift.lines)))
    if not where:
        return window.lacks(Need.LONGER, "no line takes more of each step than before")
    # It was there before anybody looked: of that part, what it has cost since is the least.
    since = 1 - drift.early_s / drift.late_s
    least = 1 - drift.early_s / max(drift.median_s, drift.early_s)
    gain = Gain.between(least, since + (1 - since) * since)
    # All of a step may have grown alike, and not surely.
    is_even = (drift.moved is None or drift.moved < MOVED) and drift.order < STRICTLY
    is_thin = is_even and gain.expected >= Severity.MEDIUM.least
    measure, unit = window.job.measure, m.JOB_STEP_P50.unit
    return Found(
        gain=gain,
        evidence=(
            Evidence.of("a step took at first", measure(drift.early_s, unit)),
            Evidence.of("a step takes now", measure(drift.late_s, unit)),
        ),
        where=where,
        severity=Severity.LOW if is_thin else None,
        confidence=Confidence.INFERRED if is_thin else Confidence.MEASURED,
    )


def _otherwise(window: Window, drift: Drift) -> str | None:
    """Return what else than more work may have made steps longer."""
    if window.core_account is not None and window.core_account.is_crowded:
        # More of them, or fewer, move each step.
        return "other programs take its cores meanwhile"
    loads = 0.0 if window.host is None else window.host.share(HostClass.LOADER)
    if loads >= 1 - drift.early_s / drift.late_s:
        return "the steps wait for input, which may come slower"
    longer = drift.late_s / drift.early_s - 1
    if (grown := _grown(window, drift, 1 + OWN * longer)) is not None:
        return f"each step has more to do: {grown}"
    if window.device == "cpu" and drift.work is not None and drift.work - 1 < OWN * longer:
        return "the steps wait longer, and work no more than before"
    return None


def _grown(window: Window, drift: Drift, least: float) -> str | None:
    """Return what a step has at least so many times as much of as in the beginning."""
    if sum(row.share for row in window.rows if grown_at(row.frames)) >= OWN:
        return "the sequence that it goes through grows"
    for name, words in WORK.items():
        # What is read back for no environment may be a list that grows.
        plays = name != m.PROCESS_SYNCS.name or any(
            x.phase is Phase.ENVIRONMENT for x in window.rows
        )
        if plays and (times := drift.grew.get(name, 0.0)) >= least:
            return f"{times:.1f} times the {words}"
    return None


rule = Rule(
    title="Steps get slower over time",
    fixes=both(
        "Keep the last values, or their sum, instead of all of them.",
        """\
recent = collections.deque(maxlen=100)  # not: a list of all of them
for number, batch in enumerate(batches):
    recent.append(train_step(batch))""",
    ),
)

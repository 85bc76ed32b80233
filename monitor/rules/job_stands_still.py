"""The job is stuck: it is stopped, or its main thread waits and nothing works for it.

## What it sees
A stopped process. Or: the main thread of each training process at one line for a minute, with no
step, almost no CPU time, reads or writes, and GPUs that do nothing or only wait.

## Why it costs
A stopped process has to be resumed. A missing rank ends by a timeout at best: 10 minutes with NCCL,
30 with gloo.

## How to fix
`kill -CONT PID` resumes a process; after Ctrl-Z type `fg` or `bg`. Otherwise find the thread that
holds the lock, the process that fills the queue, or the rank at a different line. If all ranks wait
in collectives, it is the one that started fewer: PyTorch's flight recorder shows them.

## When it is wrong
Schedulers, debuggers and Ctrl-Z stop jobs on purpose. A waiting server or notebook looks the same.
Ranks on other machines are not seen.

## Documents
Beyond the five documents.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import A_MINUTE_S, A_WHILE_S, MOST_SHOWN, NEARLY_ALL
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Place, SourceLine
from whyidle.monitor.core.measure import SAMPLES, Measure
from whyidle.monitor.rules import Kind, Need, Rule, Severity, Verdict, Window, both
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.awaited import (
    NOTHING_TO_DO,
    Awaited,
    are_known,
    awaited,
    in_training,
    may_be_coming,
    works,
)
from whyidle.monitor.signals.serving import OF_ANYTHING, ORDERS, learns
from whyidle.monitor.signals.standstill import Stand, Standstill, Stopped, missing
from whyidle.monitor.signals.user_lines import own

# Steps were counted and none ends any more: this long, and so many times the longest of them.
SURE_S: Final = 120.0
SURE_STEPS: Final = 10.0
# PyTorch gives up a collective of NCCL after this time: nothing healthy takes longer.
LONG_S: Final = 600.0
# What a healthy program may wait for as long as it likes.
ON_PURPOSE: Final = frozenset({Awaited.SLEEP, Awaited.SAVING}) | NOTHING_TO_DO
# What a server waits in that nobody asks; and a part of a job that has no orders.
IDLE: Final = frozenset({Awaited.CLIENTS, Awaited.SIGNAL})
FOR_ORDERS: Final = frozenset({Awaited.UNKNOWN, Awaited.INPUT, Awaited.LOCK})
# Without steps before, only what nobody waits for on purpose says that something is wrong.
NEVER_LONG: Final = frozenset({Awaited.RANKS, Awaited.LOADER, Awaited.DEVICE, Awaited.GIL})


def detect(window: Window) -> Verdict:
    """Judge a job that is stopped, or is at one line."""
    stopped = window.job.stopped
    if stopped is not None and stopped.seconds >= A_WHILE_S:
        return _of_stopped(window, stopped)
    still = window.job.standstill
    if still is None:
        return None if window.job.looks else window.lacks(Need.RECORDING)
    if still.seconds < A_MINUTE_S or works(still):
        return None
    if not still.stepped and window.device == "gpu" and not are_known(still.gpus):
        return window.lacks(Need.GPU, "whether it computes meanwhile")
    processes = window.world_size or 1
    what = {
        each: Awaited.GIL if each.for_lock >= NEARLY_ALL else awaited(each.chain, processes)
        for each in (*still.stands, *still.helpers)
    }
    behind = missing(still.stands)
    first = sorted(still.stands, key=lambda each: (each not in behind, what[each] is Awaited.RANKS))
    cause = Awaited.RANKS if still.silent else what[first[0]]
    # A server that nobody asks is a healthy one; so is a part of it that waits for orders.
    without = IDLE if window.job.role is None else IDLE | FOR_ORDERS
    if cause in without and not _trains(window, still):
        return None
    # Whom it waits for, where that stands, too; and who has Python's lock, while all wait for it.
    by_workers = cause is Awaited.LOADER and bool(still.helpers)
    order = (*still.helpers, *first) if by_workers else (*first, *still.helpers)
    who = _name(order[0]) if len(still.stands) > 1 else "the job"
    if by_workers:
        who = "a loader worker"
    lines: list[SourceLine | CodeLine] = []
    if cause is Awaited.GIL:
        lines += window.job.holders.lines()
    lines += dict.fromkeys(each.line for each in order if each.line.line)
    return Found(
        gain=None,
        evidence=tuple(_evidence(window, still, what)),
        where=own(Place(line.file, line.line, line.function) for line in lines),
        severity=_severity(window, still, list(what.values()), cause),
        confidence=Confidence.MEASURED if still.stepped else Confidence.INFERRED,
        title=f"Stuck: {_comes(still, behind) or f'{who} {what[order[0]]}'}",
        fixes=both(f"{_WAY_OUT[cause]} {_LOOK}", _CODE),
        takes=min(1.0, still.seconds / window.job.seconds) if window.job.seconds else None,
    )


def _of_stopped(window: Window, stopped: Stopped) -> Found:
    """Judge a job of which something has stopped at least one process."""
    job, pids = window.job, " ".join(map(str, stopped.pids))
    since = "stopped since" if stopped.seen else "stopped before"
    who = "The job" if job.pid in stopped.pids else f"Process {stopped.pids[0]} of the job"
    return Found(
        gain=None,
        evidence=(
            Evidence.of("stopped for", job.measure(stopped.seconds, "s", "procfs")),
            Evidence(since, _clock(stopped.since_ms), "", "procfs", job.age_s),
            Evidence("stopped", f"process {pids.replace(' ', ', ')}", "", "procfs", job.age_s),
        ),
        severity=Severity.HIGH,
        title=f"{who} is stopped until someone resumes it",
        fixes=both(f"Resume it: kill -CONT {pids}"),
        takes=min(1.0, stopped.seconds / job.seconds) if job.seconds else None,
    )


def _clock(ts_ms: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(ts_ms / 1000))


def _severity(
    window: Window, still: Standstill, what: Sequence[Awaited], cause: Awaited
) -> Severity:
    trains = _trains(window, still)
    if not trains and cause in ORDERS:
        return Severity.LOW
    everyone = len(still.stands) + len(still.silent) >= (window.world_size or 1)
    is_long = still.seconds >= LONG_S
    is_sure = still.stepped and still.seconds >= max(SURE_S, SURE_STEPS * (still.step_s or 0.0))
    if _may_be_right(still, what, cause, everyone):
        is_lost = trains and is_long and cause is not Awaited.PERSON
        return Severity.MEDIUM if is_lost else Severity.LOW
    if is_sure or (trains and is_long):
        return Severity.HIGH
    late = still.seconds >= SURE_S if trains and not still.stepped else is_long
    return Severity.MEDIUM if late and (trains or cause in NEVER_LONG) else Severity.LOW


def _trains(window: Window, still: Standstill) -> bool:
    """Tell whether it trained before: turns of a loop may be answers to requests."""
    if any(in_training(each.chain) for each in still.stands) or learns(window.job.stacks):
        return True
    return still.stepped and window.job.steps_by not in OF_ANYTHING


def _may_be_right(
    still: Standstill, what: Sequence[Awaited], cause: Awaited, everyone: bool
) -> bool:
    """Tell whether a healthy job may wait so: on purpose, or for somebody that nobody watches."""
    if cause is Awaited.RANKS:
        return not everyone
    if cause is Awaited.SLEEP and Awaited.RANKS in what:
        return False
    return cause in ON_PURPOSE or may_be_coming(still, cause)


def _evidence(
    window: Window, still: Standstill, what: Mapping[Stand, Awaited]
) -> Iterator[Evidence]:
    job = window.job
    stood = Measure(still.seconds, "s", still.source, job.age_s, job.seconds or None)
    is_seen = still.source == SAMPLES
    yield Evidence.of("at the same line for" if is_seen else "none began another for", stood)
    for name, words in _words(window, still, what):
        yield Evidence(name, words, "", still.source, job.age_s, still.seconds)
    if still.step_s is not None:
        yield Evidence.of("a step before took at most", job.measure(still.step_s, "s"))
    if m.JOB_CPU in still.means:
        used = job.measure(still.means[m.JOB_CPU], "cores", "procfs")
        yield Evidence.of("cores that the job uses", used)
    for metric in (m.GPU_UTILISATION, m.GPU_POWER):
        values = [gpu[metric] for gpu in still.gpus if metric in gpu]
        if values:
            unit = m.SHOWN_UNIT.get(metric.unit, metric.unit)
            yield Evidence.of(f"GPU {metric.words}", job.measure(max(values), unit, "nvml"))


def _words(
    window: Window, still: Standstill, what: Mapping[Stand, Awaited]
) -> Iterator[tuple[str, str]]:
    """Yield what is known in words: since when, of how many, and who is where."""
    if still.since_ms is not None:
        yield "since", _clock(still.since_ms)
    if (processes := window.world_size or 1) > 1:
        seen = {each.rank for each in still.stands}
        others = sorted({*range(processes)} - seen) if None not in seen else []
        is_part = others and len(still.stands) < processes
        without = f", without {_of_ranks(others)}" if is_part else ""
        yield "ranks that were looked at", f"{len(still.stands)} of {processes}{without}"
    if Awaited.LOCK in what.values():
        # Whoever holds it, or should fill the queue, may be one of them.
        for line in window.job.threads.lines(MOST_SHOWN):
            yield "another thread was at", _short(line)
    if len(what) > 1:
        # A flight recorder may keep no lines.
        for each in what:
            if each.line.line:
                yield _name(each), f"{what[each]} at {_short(each.line)}"
    for each in still.stands:
        if each.collective is not None:
            yield f"{_name(each)} started last", each.collective.words
    for rank, why in still.silent.items():
        yield f"rank {rank} does not answer", why


def _of_ranks(ranks: Collection[int]) -> str:
    """Name a few of them."""
    names = ", ".join(map(str, sorted(ranks)[:MOST_SHOWN]))
    more = f" and {len(ranks) - MOST_SHOWN} more" if len(ranks) > MOST_SHOWN else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {names}{more}"


def _comes(still: Standstill, behind: Sequence[Stand]) -> str | None:
    """Say whom the others wait for, where the flight recorder knows; ``None``: it does not."""
    if still.silent:
        return f"{_of_ranks(still.silent)} {'does' if len(still.silent) == 1 else 'do'} not answer"
    if not behind:
        return None
    names = ", ".join(_name(each) for each in behind)
    others = [each for each in still.stands if each not in behind]
    missed = behind[0].collective
    assert missed is not None  # noqa: S101  it is behind in one
    has = "has" if len(behind) == 1 else "have"
    if any(other.collective and other.collective.number == missed.number for other in others):
        return f"{names} {has} not started {missed.called}"
    return f"{names} {has} started nothing after {missed.called}"


def _name(stand: Stand) -> str:
    return f"process {stand.pid}" if stand.rank is None else f"rank {stand.rank}"


def _short(line: SourceLine | CodeLine) -> str:
    return f"{Path(line.file).name}:{line.line} in {line.function}"


_WAY_OUT: Final[dict[Awaited, str]] = {
    Awaited.RANKS: "Find the rank that is not at this line. It left the loop, took another"
    " branch, has fewer batches, or has ended. All ranks must make the same calls"
    " in the same order.",
    Awaited.LOADER: "Look at what the loader's workers wait for. It may be a file system or"
    " service that does not answer, a lock that was held when they were forked,"
    " or too little shared memory. Give the loader a timeout.",
    Awaited.SAVING: "Check the file system or service it writes to. Save in a separate thread.",
    Awaited.INPUT: "Check that the sender is alive, and give the read a timeout. See what the"
    " sender waits for.",
    Awaited.LOCK: "Find the thread that holds the lock or should fill the queue. It may have"
    " ended with an exception. Take locks in a with block, in the same order, and"
    " give waits a timeout.",
    Awaited.CLIENTS: "Check that the clients are alive, and where they send requests.",
    Awaited.SIGNAL: "Find what should send the signal. It may have come before the wait.",
    Awaited.PERSON: "Answer it, or remove the question from a job that runs unattended.",
    Awaited.GIL: "Find C code that waits without releasing Python's lock. It may be an"
    " extension, or a library called through ctypes.PyDLL. Py_BEGIN_ALLOW_THREADS"
    " and py::gil_scoped_release release it.",
    Awaited.SLEEP: "Look at what it waits for between the sleeps. What should bring it may be"
    " gone. Give the loop an end.",
    Awaited.DEVICE: "Look for GPU errors in dmesg, and for a kernel that does not end.",
    Awaited.UNKNOWN: "Look at what this line waits for, and give it a timeout.",
}
_LOOK: Final = "To see what each thread does next time, print their stacks every ten minutes."
_CODE: Final = """\
import faulthandler
faulthandler.dump_traceback_later(600, repeat=True)"""

rule = Rule(
    title="The job is stuck",
    fixes=both(f"Find what should have let this line continue. {_LOOK}", _CODE),
    kind=Kind.ERROR,
)

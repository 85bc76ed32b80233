"""Who works in a program whose main thread waits for requests, for orders, or for its own threads.

Such a wait may last as long as it likes: nothing is lost in it. So its samples are left out, and
where the main thread does little else, those of the threads that work stand in their place. A wait
for a queue, a lock or a thread counts as one only while nothing else of the job works: else what
it waits for could come sooner. Of a thread that trains every wait counts.

Of a program in which no framework computes nothing is left out: there only a wait for others of the
same job can be made shorter, and no shorter than these run.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from whyidle.monitor.code.trains import trains_at
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import BEYOND_CHANCE, LEAST_POINTS, LITTLE, MOSTLY
from whyidle.monitor.core.finding import ROUNDING, Severity
from whyidle.monitor.core.host_class import LAUNCHES, HostClass
from whyidle.monitor.libraries.frames import plays
from whyidle.monitor.libraries.table import Role
from whyidle.monitor.libraries.users import is_users
from whyidle.monitor.runs.stacks import Chain, CodeLine, Counts, StackSamples
from whyidle.monitor.runs.training import LOOP
from whyidle.monitor.signals.account import HostAccount, divided
from whyidle.monitor.signals.awaited import LEAST_CORES, NOTHING_TO_DO, Awaited, awaited, serves_at
from whyidle.monitor.signals.recorded import Recorded, Serving

if TYPE_CHECKING:
    from whyidle.monitor.signals.window import Window

# What only a framework at work shows; who waits is not among it.
AT_WORK: Final = LAUNCHES | {HostClass.COMPILE}
# The main thread is sampled so often for each time that the others are.
OF_MAIN: Final = 10
# Steps of these may answer requests: they are turns of any loop, or calls of any model.
OF_ANYTHING: Final = frozenset({LOOP, "tf.function"})
# What a thread waits for that was asked for nothing.
ORDERS: Final = NOTHING_TO_DO | {Awaited.LOCK, Awaited.SLEEP}
# Somebody outside of the job ends such a wait.
OUTSIDE: Final = NOTHING_TO_DO | {Awaited.INPUT, Awaited.SLEEP, Awaited.UNKNOWN}

_Waits = Mapping[Chain, tuple[Awaited, float]]


def judged(job: Recorded) -> Recorded:
    """Return a recording with the samples of those who work, and without their idle waits."""
    waits = _waits(job.stacks)
    idle = _share(job.stacks, waits, ORDERS)
    answers = idle >= Severity.MEDIUM.least or _answers(job.stacks)
    if job.serving is not None or not answers or learns(job.stacks):
        return job
    works = _at_work(job.stacks)
    threads = _working(job.threads)
    # Who hands its work to others has hardly any of the framework's, and they have more.
    if idle >= MOSTLY and works <= BEYOND_CHANCE:
        if threads.samples >= LEAST_POINTS and _at_work(threads) >= Severity.MEDIUM.least:
            return _with(job, threads, waits, 1.0 - min(1.0, _running(job, threads)), threads=True)
        unseen = job.means.get(m.PROCESS_CPU, 0.0) - job.means.get(m.JOB_MAIN_THREAD, 0.0)
        if not job.threads.samples and job.facts and unseen >= MOSTLY:
            return _with(job, StackSamples(), waits, None, threads=True)
    if works <= BEYOND_CHANCE or steps_learn(job):
        # Of a program that computes nothing it is known elsewhere what a wait costs.
        return job
    left = {chain: n * _idles(job, what, threads, waits) for chain, (what, n) in waits.items()}
    idle = sum(left.values()) / job.stacks.samples
    if idle < Severity.MEDIUM.least and not _answers(job.stacks):
        return job
    return _with(job, _without(job.stacks, left), waits, idle, threads=False)


def _with(
    job: Recorded, stacks: StackSamples, waits: _Waits, idle: float | None, *, threads: bool
) -> Recorded:
    # Of equals the first; who never waits answers requests all the time.
    some = [Awaited.CLIENTS, *(what for what in Awaited if what in ORDERS)]
    most = max(some, key=lambda what: _share(job.stacks, waits, {what}))
    trains = threads and (steps_learn(job) or learns(stacks))
    return replace(
        job,
        stacks=stacks,
        lines=stacks.lines(),
        leaves=stacks.leaves(),
        looks=int(stacks.samples) or None,
        serving=Serving(str(most), idle, threads, trains),
    )


def _idles(job: Recorded, what: Awaited, threads: StackSamples, waits: _Waits) -> float:
    """Return the part of a wait in which there was nothing to do."""
    if what is Awaited.LOCK:
        for_others = _share(job.stacks, waits, {what})
        return max(0.0, 1.0 - _running(job, threads) / for_others)
    if what is Awaited.SLEEP:
        # A loop that is known to turn sleeps in each of its turns: for nothing, unless others of
        # the job have the cores meanwhile.
        beside = job.means.get(m.JOB_CPU, 0.0) - job.means.get(m.PROCESS_CPU, 0.0)
        is_helped = job.steps_by in OF_ANYTHING and max(beside, _running(job, threads)) >= 1.0
        return 1.0 if is_helped or not job.means.get(m.JOB_STEPS) else 0.0
    return 1.0 if what in ORDERS else 0.0


def _running(job: Recorded, threads: StackSamples) -> float:
    """Return how many others of the job work on average: threads that run Python, processes."""
    helpers = sum(each.cores for each in job.helpers) + job.parts
    return OF_MAIN * threads.samples / job.stacks.samples + helpers


def _working(threads: StackSamples) -> StackSamples:
    """Return the samples of other threads without those that wait for orders, or serve us."""
    waits = _waits(threads)
    gone = {chain: n for chain, (what, n) in waits.items() if what in ORDERS}
    for chain, counts in threads.chains.items():
        leaf = chain.innermost
        if leaf is None or plays(Role.ASIDE, leaf):
            gone[chain] = counts.samples
    return _without(threads, gone)


def _waits(stacks: StackSamples) -> _Waits:
    """Return by chain what it waited for, and in how many samples; for a disk is no such wait."""
    found: dict[Chain, tuple[Awaited, float]] = {}
    for chain, counts in stacks.chains.items():
        if counts.known:
            waited = counts.of(counts.waited - counts.blocked)
        else:
            # Whether it ran is not known: who is in a place to wait at mostly waits.
            leaf = chain.innermost
            waited = 0.0 if leaf is None or is_users(leaf.file) else counts.samples
        if waited > 0:
            what = awaited(chain)
            at = [line for line in (chain.leaf, chain.called) if line is not None]
            if what is Awaited.INPUT and all(
                is_users(line.file) or plays(Role.CONNECTION, line) for line in at
            ):
                what = Awaited.CLIENTS
            found[chain] = what, waited
    return found


def _share(stacks: StackSamples, waits: _Waits, what: Container[Awaited]) -> float:
    mine = sum(n for each, n in waits.values() if each in what)
    return mine / stacks.samples if stacks.samples else 0.0


def _without(stacks: StackSamples, gone: Mapping[Chain, float]) -> StackSamples:
    """Return samples without some of each chain, all of which waited."""
    left = StackSamples()
    left.looks = stacks.looks
    for chain, counts in stacks.chains.items():
        n = min(counts.samples, gone.get(chain, 0.0))
        if n >= counts.samples:
            continue
        known = n * counts.known / counts.samples
        left.samples += counts.samples - n
        left.chains[chain] = Counts(
            counts.samples - n,
            counts.known - known,
            max(0.0, counts.waited - known),
            counts.locked,
            counts.blocked,
            counts.when,
        )
    return left


def _answers(stacks: StackSamples) -> bool:
    """Tell whether most samples are of answers to requests, also where these leave no time."""
    chains = stacks.chains.items()
    mine = sum(counts.samples for chain, counts in chains if any(map(serves_at, chain.frames)))
    return mine >= MOSTLY * stacks.samples > 0


def _at_work(stacks: StackSamples) -> float:
    """Return the share of the samples in which a framework works."""
    found = sum(_framework(chain, counts) for chain, counts in stacks.chains.items())
    return found / stacks.samples if stacks.samples else 0.0


def _framework(chain: Chain, counts: Counts) -> float:
    return sum(n for doing, n in divided(chain, counts) if doing in AT_WORK)


def learns(stacks: StackSamples) -> bool:
    """Tell whether what the framework does is done to learn, as far as the source says."""
    works = {chain: _framework(chain, counts) for chain, counts in stacks.chains.items()}
    learns = sum(n for chain, n in works.items() if n and any(map(trains_at, chain.frames)))
    return learns > 0 and learns >= LITTLE * sum(works.values())


def steps_learn(job: Recorded) -> bool:
    """Tell whether steps were counted that only training makes."""
    return bool(job.means.get(m.JOB_STEPS)) and job.steps_by not in OF_ANYTHING


# Programs in which no framework computes -------------------------------------------------------
def trains(window: Window) -> bool:
    """Tell whether the program computes by a framework, as far as anything shows it.

    One that has only loaded it, and runs on no core, is a server like others.
    """
    job, host = window.job, window.host
    if window.steps_per_s is not None or window.traces or any(gpu.owned for gpu in job.gpus):
        return True
    if host is not None and host.share(*AT_WORK):
        return True
    # What our own agents take is not the job's work.
    cores, agents = job.means.get(m.JOB_CPU), job.means.get(m.JOB_AGENT_CPU, 0.0)
    return bool(window.frameworks) and (cores is None or cores - agents >= LEAST_CORES)


def others_run(window: Window) -> float:
    """Return how many other threads of the job run, or wait for a core; none, if nothing shows it.

    While the main thread waits it does neither.
    """
    job, total = window.job, window.job.stacks.samples
    cores, waiting = job.means.get(m.JOB_CPU), job.means.get(m.JOB_WAITING_THREADS, 0.0)
    if cores is None or not total:
        return 0.0
    chains = job.stacks.chains.values()
    idle = sum(n.samples * (n.waited + n.locked) / n.known for n in chains if n.known) / total
    agents = job.means.get(m.JOB_AGENT_CPU, 0.0)
    return max(0.0, cores + waiting - agents - max(0.0, 1.0 - idle))


def own(window: Window, account: HostAccount) -> HostAccount:
    """Return the account of the main thread without its waits for the outside."""
    if trains(window):
        return account
    # For a disk is the program's own doing.
    stacks = window.job.stacks
    waits = {chain: each for chain, each in _waits(stacks).items() if stacks.chains[chain].known}
    for chain, (_, n) in waits.items():
        # Whoever waits for a process or a thread waits for one that the program has started.
        if plays(Role.CHILDREN, chain.leaf, chain.called):
            waits[chain] = Awaited.LOCK, n
    for_others = sum(n for what, n in waits.values() if what is Awaited.LOCK) / account.samples
    alone = 1.0 - min(1.0, others_run(window) / for_others) if for_others else 0.0
    gone: dict[tuple[tuple[CodeLine, ...], HostClass], float] = {}
    for chain, (what, waited) in waits.items():
        part = 1.0 if what in OUTSIDE else alone if what is Awaited.LOCK else 0.0
        for doing, n in divided(chain, Counts(waited, waited, waited)):
            key = chain.frames, doing
            gone[key] = gone.get(key, 0.0) + part * n / account.samples
    left = ((row, row.share - gone.get((row.frames, row.doing), 0.0)) for row in account.rows)
    return replace(account, rows=tuple(replace(row, share=n) for row, n in left if n > ROUNDING))

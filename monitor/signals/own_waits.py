"""Which waits of the main thread cost anything: in a program that trains, all of them.

In one in which no framework computes they are the wait for a request, a message, a person: it may
take as long as it likes. Only where the thread waits for others of the same job is there something
to make faster, and no longer than these run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, TypeAlias

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import ROUNDING
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.libraries.frames import plays
from whyidle.monitor.libraries.table import Role
from whyidle.monitor.runs.stacks import Chain, CodeLine, Counts, StackSamples
from whyidle.monitor.signals.account import HostAccount, divided
from whyidle.monitor.signals.awaited import NOTHING_TO_DO, Awaited, awaited
from whyidle.monitor.signals.quiet import LEAST_CORES
from whyidle.monitor.signals.serving import AT_WORK
from whyidle.monitor.signals.window import Window

# Somebody outside of the job ends such a wait.
OUTSIDE: Final = NOTHING_TO_DO | {Awaited.INPUT, Awaited.SLEEP, Awaited.UNKNOWN}
# Whoever waits in one of these waits for a process or a thread that the program has started.
_Frames: TypeAlias = tuple[CodeLine, ...]


def trains(window: Window) -> bool:
    """Tell whether the program computes by a framework, as far as anything shows it.

    One that has only loaded it, and runs on no core, is a server like others.
    """
    job, host = window.job, window.host
    if window.steps_per_s is not None or window.traces or any(gpu.owned for gpu in job.gpus):
        return True
    if host is not None and host.share(*AT_WORK):
        return True
    return bool(window.frameworks) and job.means.get(m.JOB_CPU, LEAST_CORES) >= LEAST_CORES


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
    waits = list(_waits(window.job.stacks))
    for_others = sum(n for *_, what, n in waits if what is Awaited.LOCK) / account.samples
    alone = 1.0 - min(1.0, others_run(window) / for_others) if for_others else 0.0
    gone: dict[tuple[_Frames, HostClass], float] = {}
    for frames, doing, what, n in waits:
        part = 1.0 if what in OUTSIDE else alone if what is Awaited.LOCK else 0.0
        gone[frames, doing] = gone.get((frames, doing), 0.0) + part * n / account.samples
    left = ((row, row.share - gone.get((row.frames, row.doing), 0.0)) for row in account.rows)
    return replace(account, rows=tuple(replace(row, share=n) for row, n in left if n > ROUNDING))


def _waits(stacks: StackSamples) -> Iterator[tuple[_Frames, HostClass, Awaited, float]]:
    """Yield what was waited for, in how many samples; for a disk is the program's own doing."""
    for chain, counts in stacks.chains.items():
        waited = counts.waited - counts.blocked
        if waited > 0:
            waited *= counts.samples / counts.known
            for doing, n in divided(chain, Counts(waited, waited, waited)):
                yield chain.frames, doing, _awaited(chain), n


def _awaited(chain: Chain) -> Awaited:
    return Awaited.LOCK if plays(Role.CHILDREN, chain.leaf, chain.called) else awaited(chain)

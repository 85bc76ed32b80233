"""The job does not get the CPU time that it asks for.

## What it sees
The share of the time in which the main thread could run and got no core, as the kernel counts it;
the share of scheduling periods in which the limit of the container stopped the job; the cores that
it may use, beside the threads that want one, those that wait included, and the processes that they
are of. Of the job's own threads it speaks only where half as many again as there are cores want
one, and where it knows of something to make fewer.

## Why it costs
The main thread launches all work of the device: while it waits for a core the device soon has
nothing to do. More processes or threads than cores take the cores from each other, and a container
that has used up its limit stands still for the rest of each tenth of a second, all threads at once.

## How to fix
Raise the CPU limit of the container. Start no more loader workers than there are cores left beside
the main thread, and give each process its part of the cores: `torch.set_num_threads`,
OMP_NUM_THREADS, MKL_NUM_THREADS. Libraries count the cores of the machine and not those of the
container, in each process anew. NumPy has a pool of its own beside PyTorch's, whose threads go on
running for some milliseconds after each product of matrices: OPENBLAS_NUM_THREADS=1. Where other
programs take the cores, let one of the jobs move.

## When it is wrong
A main thread that runs ahead of a busy device loses nothing by waiting. Of JAX's threads on a CPU
another one than the main thread computes: there only counts what the main thread waits longer than
it sleeps. What other programs take is reported without a gain: they may be gone tomorrow. Where a
mask keeps the job from cores that are free, that is the cause: `few_cpus_allowed`.

## Documents
None of the five mentions it: beyond the documents.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from whyidle.monitor.code.source import calls, last, line_of, nodes_at
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import (
    Evidence,
    Fix,
    Found,
    Framework,
    Gain,
    Need,
    Place,
    Severity,
    Verdict,
)
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.rules import Rule
from whyidle.monitor.signals.account import HostRow
from whyidle.monitor.signals.cores import Runner, allowed
from whyidle.monitor.signals.phases import Phase
from whyidle.monitor.signals.serving import trains
from whyidle.monitor.signals.user_lines import asking, own
from whyidle.monitor.signals.window import Window

# Below this a wait costs nothing.
LEAST_WAIT: Final = Severity.MEDIUM.least
# A limit that bites in one of ten periods is too low; single bursts are not.
LEAST_THROTTLED: Final = 0.10
# So many threads for each core want one, of the job alone: fewer of them help, whoever else runs.
# With as many as there are cores, two on two, the main thread of a healthy job waits 5 to 9% of its
# time, and with half of them it was slower.
LEAST_WANTED: Final = 1.5
# Beside products of NumPy's the job takes this much of its cores.
OWN: Final = 0.75
# Neighbours that take a quarter of the cores, with nothing left, take them from threads that
# compute for a main thread, which itself waits for those and not for a core.
LEAST_TAKEN: Final = 0.25
# Who waits for so long was kept waiting by what ran, also where a core was free now and then: less
# than one of them on average.
LONG_WAIT: Final = 0.20
# What else ran meanwhile was the job's own work: half of it comes later instead.
BACK_LEAST: Final = 0.5
# Of several processes with a pool each the others work on meanwhile: of 0.48 that two with four
# threads each waited on two cores 0.11 came back with one thread each.
BACK_LEAST_OF_SEVERAL: Final = 0.2
# Where the job's threads take the cores from each other, they also keep waiting for those of them
# that have none: that is no wait for a core, and comes back with it.
BACK_MOST_OF_OWN: Final = 1.25
# Who asks for threads or processes, and for how many if that stands there.
_ASKS: Final = re.compile(
    r"(?:set_num_(?:interop_)?threads|(?:OMP|MKL|OPENBLAS|NUMEXPR)_NUM_THREADS"
    r"|(?:intra|inter)_op_parallelism(?:_threads)?|num_workers|max_workers|Pool)"
    r"""["'\])]*\s*[=(,:]\s*["']?(\d*)"""
)
# What NumPy and SciPy compute in threads of their own, and who has given them one.
_PRODUCTS: Final = re.compile(
    r"dot|matmul|einsum|tensordot|inner|solve|lstsq|svd|eigh?|inv|pinv|qr|cholesky"
)
_HAS_ONE: Final = re.compile(
    r"""OPENBLAS_NUM_THREADS["'\])]*\s*[=,:]\s*["']?1\b|threadpool_limits"""
)
ONE_POOL: Final = Fix(
    "Give NumPy one thread: OPENBLAS_NUM_THREADS=1 in the job's environment. Its threads go on"
    " running for some milliseconds after each product, on the cores that the framework computes"
    " on.",
)
EVERY: Final[tuple[Framework, ...]] = ("pytorch", "jax", "tensorflow")
OWN_CORES: Final = Fix(
    "Give the job cores of its own: taskset -c 0-7 for a start, cpuset.cpus of its cgroup, "
    "--cpus-per-task under SLURM; or let one of the jobs move. Fewer threads would not help.",
)


def detect(window: Window) -> Verdict:
    """Judge the waits for a core."""
    job, cores, wanted = window.job, window.cores, _wanted(window)
    wait = window.needed(job.mean(m.JOB_MAIN_THREAD_WAIT), Need.RECORDING)
    throttled = job.mean(m.JOB_THROTTLED)
    if throttled is not None and throttled.value >= LEAST_THROTTLED:
        # It stops all threads at once: none has time to spare.
        gain = _gain(window, min(wait.value, window.not_computing), is_limited=True)
        title = "The CPU limit of the container stops the job"
        return _found(window, gain, _evidence(window, wait, throttled), title, is_limited=True)
    if wait.value < LEAST_WAIT:
        return _of_other_threads(window, wait)
    found, products = None, _products(window)
    too_many = cores and wanted and wanted.value >= LEAST_WANTED * cores.value
    if products or too_many:
        found = _of_own_threads(window, wait, products)
    there, used = allowed(job), job.mean(m.JOB_CPU)
    if found is not None or there is None or used is None:
        return found
    # Nothing is left of the cores, and others have a part of them.
    is_full = there.is_full or (wait.value >= LONG_WAIT and there.there - there.busy < 1)
    if not is_full or there.busy - used.value < LEAST_TAKEN * there.there:
        return None
    return _of_others(_evidence(window, wait))


def _of_others(evidence: Sequence[Evidence]) -> Found:
    return Found(
        None,
        tuple(evidence),
        severity=Severity.MEDIUM,
        title="Other programs take the cores that the job waits for",
        fixes=dict.fromkeys(EVERY, OWN_CORES),
    )


def _of_own_threads(window: Window, wait: Measure, products: tuple[Place, ...]) -> Found | None:
    """Judge threads of the job that keep each other waiting; ``None``: nothing makes them fewer."""
    runs, spare = window.job.mean(m.JOB_MAIN_THREAD), 0.0
    if runs is not None and window.device == "cpu" and window.uses("jax"):
        # A main thread sleeps beside which others compute: it can catch up then.
        spare = max(0.0, 1 - runs.value - wait.value)
    lost = max(0.0, min(wait.value, window.not_computing) - spare)
    gain, evidence = _gain(window, lost, is_limited=False), _evidence(window, wait)
    # There is too much of processes, workers, or threads of one process.
    there, workers, processes = _there(window), _workers(window), _processes(window)
    title = "The job runs more threads than it has cores"
    if processes > 1:
        title = f"{processes} processes of the job run more threads than it has cores"
    elif workers >= there and not _has_too_many(window):
        cores = "one core" if there == 1 else f"{there} cores"
        title = f"{workers} loader workers run beside the steps on {cores}"
    is_late = gain.high >= LEAST_WAIT
    if products and is_late:
        # A framework's threads wait for one another at each operation: the one without a core
        # keeps all of them.
        most = window.sampled.share(HostClass.FRAMEWORK)
        return replace(
            _found(window, gain, evidence, f"{title}: NumPy's beside the framework's"),
            gain=Gain(gain.low, max(gain.high, most)),
            where=(*_asking(window), *products),
            fixes=dict.fromkeys(EVERY, ONE_POOL),
        )
    # A loader's workers, or other processes, may wait where the main thread does not.
    if not (is_late or workers or processes > 1) or not _cures(window):
        return None
    return _found(window, gain, evidence, title)


def _found(
    window: Window,
    gain: Gain,
    evidence: Sequence[Evidence],
    title: str,
    *,
    is_limited: bool = False,
) -> Found:
    fixes = _cures(window, is_limited=is_limited)
    if gain.high < LEAST_WAIT:
        return Found(None, tuple(evidence), severity=Severity.LOW, title=title, fixes=fixes)
    return Found(
        gain,
        tuple(evidence),
        where=_asking(window),
        slice=Slice.IDLE_DISPATCH if window.device == "gpu" else None,
        title=title,
        fixes=fixes,
    )


def _products(window: Window) -> tuple[Place, ...]:
    """Return where the main thread has NumPy's threads compute, beside those of a framework."""
    if window.host is None or window.device != "cpu" or any(asking(window.job, _HAS_ONE)):
        return ()
    cores, used = window.cores, window.job.mean(m.JOB_CPU)
    if cores is None or used is None or used.value < OWN * cores.value:
        return ()
    found = own(window.host.lines(_multiplies))
    return found if sum(place.share or 0.0 for place in found) >= LEAST_WAIT else ()


def _multiplies(row: HostRow) -> bool:
    line = row.frames[0]
    if row.doing is not HostClass.LIBRARY or row.phase is not Phase.STEP:
        return False
    nodes = (getattr(node, "op", None) for node in nodes_at(line.file, line.line))
    named = any(_PRODUCTS.fullmatch(last(call)) for call in calls(line.file, line.line))
    return named or any(isinstance(node, ast.MatMult) for node in nodes)


def _of_other_threads(window: Window, wait: Measure) -> Found | None:
    """Judge a job whose main thread gets its core, while others compute for it on a CPU."""
    account = window.core_account
    if account is None or window.device != "cpu" or not account.is_full:
        return None
    # Who only waits for requests asks for no core.
    if not _others_take(window) or not trains(window):
        return None
    others = window.job.measure(account.runs[Runner.OTHERS], "cores", "procfs")
    taken = Evidence.of("cores that other programs take", others)
    return _of_others((taken, *_evidence(window, wait)))


def _others_take(window: Window) -> bool:
    account = window.core_account
    return account is not None and account.runs[Runner.OTHERS] >= LEAST_TAKEN * account.cores


def _wanted(window: Window) -> Measure | None:
    """Return how many threads run or wait for a core, on average."""
    used, waiting = window.job.mean(m.JOB_CPU), window.job.mean(m.JOB_WAITING_THREADS)
    if used is None or waiting is None:
        return None
    return window.job.measure(used.value + waiting.value, "count", "procfs")


def _processes(window: Window) -> int:
    """Return of how many processes the threads compute."""
    return round(window.job.means.get(m.JOB_BUSY_PROCESSES, 0.0))


def _there(window: Window) -> int:
    return 1 if window.cores is None else max(1, int(window.cores.value))


def _each(window: Window) -> int:
    """Return how many threads each process has cores for."""
    return max(1, _there(window) // max(1, _processes(window)))


def _has_too_many(window: Window) -> bool:
    """Tell whether PyTorch's own threads are more than that, as it or the source says."""
    has = window.job.facts.get("torch", {}).get("num_threads")
    return not isinstance(has, int) or has > _each(window) or bool(_asking(window))


def _cures(window: Window, *, is_limited: bool = False) -> dict[Framework, Fix]:
    """Return what to type, with the job's own numbers in it; nothing that is so already."""
    there, each = _there(window), _each(window)
    processes, workers = _processes(window), _workers(window)
    beside = max(1, there - 1)
    said, code = [], []
    if _has_too_many(window):
        fewer = f"Give it no more threads than cores: OMP_NUM_THREADS={each} MKL_NUM_THREADS={each}"
        said.append(f"{fewer} for each of the {processes} processes" if processes > 1 else fewer)
        code.append(f"torch.set_num_threads({each})")
    # Of two on two cores, which the steps waited for, one did less: 8.5 steps a second became 6.1,
    # and 10.6 with one thread of PyTorch's beside both.
    waits = 0.0 if window.host is None else window.host.share(HostClass.LOADER)
    if workers > beside and waits < LEAST_WAIT:
        said.append(f"num_workers={beside}" if said else f"Start fewer: num_workers={beside}")
        code.append(f"loader = DataLoader(dataset, batch_size=batch_size, num_workers={beside})")
    raised = f" {_raised(window)}" if is_limited else ""
    others = f"Run fewer threads and processes beside the main thread.{raised}"
    cures: dict[Framework, Fix] = {
        "jax": Fix(others),
        "tensorflow": Fix(
            others,
            f"tf.config.threading.set_intra_op_parallelism_threads({each})  # before anything runs",
        ),
    }
    if said or raised:
        words = f"{', and '.join(said)}." if said else ""
        cures["pytorch"] = Fix(f"{words}{raised}".strip(), "\n".join(code))
    return cures if "pytorch" in cures or not window.uses("pytorch") else {}


def _raised(window: Window) -> str:
    wanted, there = _wanted(window), window.job.means.get(m.HOST_CORES, math.inf)
    if wanted is None:
        return "Or raise the CPU limit."
    needs = math.ceil(min(wanted.value, there))
    return (
        f"Or raise the CPU limit to {needs} cores: resources.limits.cpu: {needs} in Kubernetes,"
        f" --cpus={needs} for Docker, CPUQuota={100 * needs}% in systemd."
    )


def _asking(window: Window) -> tuple[Place, ...]:
    """Return the lines that ask for more threads, or processes, than there are cores."""
    there = math.inf if window.cores is None else window.cores.value
    return tuple(
        place
        for place in asking(window.job, _ASKS)
        if (text := line_of(place.file, place.line)) is not None
        and all(float(n) > there for n in _ASKS.findall(text) if n)
    )


def _gain(window: Window, lost: float, *, is_limited: bool) -> Gain:
    wanted, cores = _wanted(window), window.cores
    fits = wanted is None or cores is None or wanted.value <= cores.value
    alone = _processes(window) < 2 and not _others_take(window)
    least = BACK_LEAST if alone else BACK_LEAST_OF_SEVERAL
    at_most = 1.0 if is_limited and fits else BACK_MOST_OF_OWN
    return Gain.between(least * lost, min(window.not_computing, at_most * lost))


def _workers(window: Window) -> int:
    return sum(w for each in window.loaders if isinstance(w := each.get("workers"), int))


def _evidence(
    window: Window, wait: Measure, throttled: Measure | None = None
) -> tuple[Evidence, ...]:
    measure, workers, processes = window.job.measure, _workers(window), _processes(window)
    return Evidence.known(
        {
            "main thread waits for a core": wait,
            "periods cut by the CPU limit": throttled,
            "cores": window.cores,
            "cores used by the job": window.job.mean(m.JOB_CPU),
            "threads that want a core": _wanted(window),
            "processes that compute": measure(processes, "count", "procfs")
            if processes > 1
            else None,
            "loader workers": measure(workers, "count") if workers else None,
        }
    )


rule = Rule(
    title="The job does not get the CPU time that it asks for",
    documents=("beyond the documents",),
    fixes={
        "pytorch": Fix(
            "Raise the CPU limit, or ask for no more than it allows.",
            """\
cores = len(os.sched_getaffinity(0))
torch.set_num_threads(max(1, cores // 2))
loader = DataLoader(dataset, batch_size=64, num_workers=max(1, cores - 1))""",
        ),
        "jax": Fix(
            "Raise the CPU limit, or prepare the data in fewer processes.",
            """\
cores = len(os.sched_getaffinity(0))
pool = concurrent.futures.ThreadPoolExecutor(max_workers=max(1, cores - 1))""",
        ),
        "tensorflow": Fix("Raise the CPU limit, or ask for no more threads than it allows."),
    },
    detect=detect,
)

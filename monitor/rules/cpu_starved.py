"""The job does not get the CPU time that it asks for.

## What it sees
The share of the time in which the main thread could run and got no core, as the kernel counts it;
the share of scheduling periods in which the limit of the container stopped the job; the cores that
it may use, beside the threads that want one, those that wait included, and the processes that they
are of.

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
from typing import Final

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
from whyidle.monitor.signals.acts import Phase
from whyidle.monitor.signals.cores import Runner, allowed
from whyidle.monitor.signals.own_waits import trains
from whyidle.monitor.signals.source import calls, last, line_of, nodes_at
from whyidle.monitor.signals.user_lines import asking, own
from whyidle.monitor.signals.window import Window

# Below this a wait costs nothing: "medium" in the contract.
LEAST_WAIT: Final = 0.05
# A limit that bites in one of ten periods is too low; single bursts are not.
LEAST_THROTTLED: Final = 0.10
# A job that takes this much of its cores waits for itself.
OWN: Final = 0.75
# So many threads for each core want one, of the job alone: fewer of them help, whoever else runs.
LEAST_WANTED: Final = 1.5
# Neighbours that take a quarter of the cores, with nothing left, take them from threads that
# compute for a main thread, which itself waits for those and not for a core.
LEAST_TAKEN: Final = 0.25
# Neighbours count where nothing is left.
FULL: Final = 0.90
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
ONE_POOL: Final = (
    "Give NumPy one thread: OPENBLAS_NUM_THREADS=1 in the job's environment. Its threads go on"
    " running for some milliseconds after each product, on the cores that the framework computes on"
)
BOTH: Final[tuple[Framework, ...]] = ("pytorch", "jax")
OWN_CORES: Final = Fix(
    "Give the job cores of its own: taskset -c 0-7 for a start, cpuset.cpus of its cgroup, "
    "--cpus-per-task under SLURM; or let one of the jobs move. Fewer threads would not help.",
)


def detect(window: Window) -> Verdict:
    """Judge the waits for a core."""
    job = window.job
    wait, throttled = job.mean(m.JOB_MAIN_THREAD_WAIT), job.mean(m.JOB_THROTTLED)
    if wait is None:
        return window.lacks(Need.RECORDING)
    stopped = throttled is not None and throttled.value >= LEAST_THROTTLED
    if not stopped and wait.value < LEAST_WAIT:
        return _of_other_threads(window, wait)
    evidence = tuple(_evidence(window, wait, throttled if stopped else None))
    if stopped:
        title = "The CPU limit of the container stops the job"
    elif _takes_its_cores(window, wait):
        several = _processes(window)
        who = f"{several} processes of the job run" if several > 1 else "The job runs"
        title = f"{who} more threads than it has cores"
    elif _is_crowded(window, wait):
        title = "Other programs take the cores that the job waits for"
        return Found(
            None,
            evidence,
            severity=Severity.MEDIUM,
            title=title,
            fixes=dict.fromkeys(BOTH, OWN_CORES),
        )
    else:
        return None
    # A limit stops all threads at once: none of them has time to spare.
    lost = _lost(window, wait, 0.0 if stopped else _spare(window, wait))
    gain = _gain(window, lost, is_limited=stopped)
    cures = _cures(window, is_limited=stopped)
    if gain.high < LEAST_WAIT:
        # A loader's workers, or other processes, may wait where the main thread does not.
        alone = not stopped and not _workers(window) and _processes(window) < 2
        low = Found(None, evidence, severity=Severity.LOW, title=title, fixes=cures)
        return None if alone else low
    products = () if stopped else _products(window)
    if products:
        # A framework's threads wait for one another at each operation: the one without a core
        # keeps all of them.
        gain = Gain(gain.low, max(gain.high, _framework(window)))
        cures = {name: Fix(f"{ONE_POOL}. {fix.text}", fix.code) for name, fix in cures.items()}
    return Found(
        gain,
        evidence,
        where=(*_asking(window), *products),
        slice=_slice(window),
        severity=Severity.LOW if _may_fit(window) and not (stopped or products) else None,
        title=f"{title}: NumPy's beside the framework's" if products else title,
        fixes=cures,
        symptom_of=() if stopped or products or _wants_too_many(window) else ("input_starved",),
    )


def _products(window: Window) -> tuple[Place, ...]:
    """Return where the main thread has NumPy's threads compute, beside those of a framework."""
    if window.host is None or window.device != "cpu" or any(asking(window.job, _HAS_ONE)):
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


def _framework(window: Window) -> float:
    return 0.0 if window.host is None else window.host.share(HostClass.FRAMEWORK)


def _of_other_threads(window: Window, wait: Measure) -> Found | None:
    """Judge a job whose main thread gets its core, while others compute for it on a CPU."""
    account = window.core_account
    if account is None or window.device != "cpu" or not account.is_full:
        return None
    # Who only waits for requests asks for no core.
    if not _others_take(window) or not trains(window):
        return None
    taken = account.runs[Runner.OTHERS]
    others = window.job.measure(taken, "cores", "procfs")
    return Found(
        None,
        (Evidence.of("cores that other programs take", others), *_evidence(window, wait, None)),
        severity=Severity.MEDIUM,
        title="Other programs take the cores that the job waits for",
        fixes=dict.fromkeys(BOTH, OWN_CORES),
    )


def _takes_its_cores(window: Window, wait: Measure) -> bool:
    cores, used = window.cores, window.job.mean(m.JOB_CPU)
    if cores is None or used is None:
        return False
    if _wants_too_many(window):
        return True
    ran = _all_that_ran(window, wait)
    return used.value >= OWN * (cores.value if ran is None else min(cores.value, ran))


def _wants_too_many(window: Window) -> bool:
    """Tell whether fewer threads help, whatever they do: else loading may take the cores."""
    cores, wanted = window.cores, _wanted(window)
    return cores is not None and wanted is not None and wanted.value >= LEAST_WANTED * cores.value


def _is_crowded(window: Window, wait: Measure) -> bool:
    cores = allowed(window.job)
    return (cores is not None and cores.is_full) or _all_that_ran(window, wait) is not None


def _all_that_ran(window: Window, wait: Measure) -> float | None:
    """Return the cores in use, where a thread waited for long with hardly one to spare."""
    cores = allowed(window.job)
    if cores is None or wait.value < LONG_WAIT:
        return None
    return cores.busy if cores.there - cores.busy < 1 else None


def _others_take(window: Window) -> bool:
    account = window.core_account
    return account is not None and account.runs[Runner.OTHERS] >= LEAST_TAKEN * account.cores


def _wanted(window: Window) -> Measure | None:
    """Return how many threads run or wait for a core, on average."""
    used, waiting = window.job.mean(m.JOB_CPU), window.job.mean(m.JOB_WAITING_THREADS)
    if used is None or waiting is None:
        return None
    return window.job.measure(used.value + waiting.value, "count", "procfs")


def _may_fit(window: Window) -> bool:
    """Tell whether the framework's threads may use what loader workers leave of their cores.

    Of two beside one worker, on two cores, one thread less was slower in a healthy job, and 1.1
    times as fast in two others with two workers.
    """
    return bool(_workers(window)) and not _wants_too_many(window)


def _processes(window: Window) -> int:
    """Return of how many processes the threads compute."""
    return round(window.job.means.get(m.JOB_BUSY_PROCESSES, 0.0))


def _cures(window: Window, *, is_limited: bool) -> dict[Framework, Fix]:
    """Return what to type, with the job's own numbers in it."""
    there = 1 if window.cores is None else max(1, int(window.cores.value))
    processes, workers = _processes(window), _workers(window)
    each = max(1, there // max(1, processes))
    raised = f". {_raised(window)}" if is_limited else ""
    fewer = f"Give it no more threads than cores: OMP_NUM_THREADS={each} MKL_NUM_THREADS={each}"
    if processes > 1:
        fewer += f" for each of the {processes} processes that compute"
    code = f"torch.set_num_threads({each})"
    if not workers:
        return {
            "pytorch": Fix(f"{fewer}{raised}.", code),
            "jax": Fix(f"Run fewer threads and processes beside the main thread{raised}."),
        }
    beside = max(1, there - 1)
    # Of two on two cores, which the steps waited for, one did less: 8.5 steps a second became 6.1,
    # and 10.6 with one thread of PyTorch's beside both.
    if workers > beside and not _waits_for_input(window):
        fewer += f", and num_workers={beside}"
        code += f"\nloader = DataLoader(dataset, batch_size=batch_size, num_workers={beside})"
    return {"pytorch": Fix(f"{fewer}{raised}.", code), "jax": rule.fixes["jax"]}


def _waits_for_input(window: Window) -> bool:
    return window.host is not None and window.host.share(HostClass.LOADER) >= LEAST_WAIT


def _asking(window: Window) -> tuple[Place, ...]:
    """Return the lines that ask for more threads, or processes, than there are cores."""
    there = math.inf if window.cores is None else window.cores.value
    return tuple(
        place
        for place in asking(window.job, _ASKS)
        if (text := line_of(place.file, place.line)) is not None
        and all(float(n) > there for n in _ASKS.findall(text) if n)
    )


def _raised(window: Window) -> str:
    wanted, there = _wanted(window), window.job.means.get(m.HOST_CORES, math.inf)
    if wanted is None:
        return "Or raise the CPU limit"
    needs = math.ceil(min(wanted.value, there))
    return (
        f"Or raise the CPU limit to {needs} cores: resources.limits.cpu: {needs} in Kubernetes,"
        f" --cpus={needs} for Docker, CPUQuota={100 * needs}% in systemd"
    )


def _most(window: Window) -> float:
    """Return the share of the time in which no device computes: more cannot come back."""
    compute = window.share(Slice.COMPUTE) if window.device == "gpu" else None
    return 1.0 if compute is None else 1 - compute.value


def _lost(window: Window, wait: Measure, spare: float) -> float:
    """Return the wait, as far as no device computed meanwhile."""
    return max(0.0, min(wait.value, _most(window)) - spare)


def _gain(window: Window, lost: float, *, is_limited: bool) -> Gain:
    wanted, cores = _wanted(window), window.cores
    fits = wanted is None or cores is None or wanted.value <= cores.value
    alone = _processes(window) < 2 and not _others_take(window)
    least = BACK_LEAST if alone else BACK_LEAST_OF_SEVERAL
    if _may_fit(window) and not is_limited:
        least = 0.0
    at_most = 1.0 if is_limited and fits else BACK_MOST_OF_OWN
    return Gain.between(least * lost, min(_most(window), at_most * lost))


def _spare(window: Window, wait: Measure) -> float:
    """Return how long a main thread sleeps beside which others compute: it can catch up then."""
    runs = window.job.mean(m.JOB_MAIN_THREAD)
    if runs is None or window.device != "cpu" or not window.uses("jax"):
        return 0.0
    return max(0.0, 1 - runs.value - wait.value)


def _slice(window: Window) -> Slice | None:
    return Slice.IDLE_DISPATCH if window.device == "gpu" else None


def _workers(window: Window) -> int:
    return sum(w for each in window.loaders if isinstance(w := each.get("workers"), int))


def _evidence(window: Window, wait: Measure, throttled: Measure | None) -> list[Evidence]:
    workers = _workers(window)
    measures = {
        "main thread waits for a core": wait,
        "periods cut by the CPU limit": throttled,
        "cores": window.cores,
        "cores used by the job": window.job.mean(m.JOB_CPU),
        "threads that want a core": _wanted(window),
        "processes that compute": None
        if _processes(window) < 2
        else window.job.measure(_processes(window), "count", "procfs"),
        "loader workers": window.job.measure(workers, "count") if workers else None,
    }
    return [Evidence.of(name, measure) for name, measure in measures.items() if measure is not None]


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
    },
    detect=detect,
    symptom_of=("few_cpus_allowed",),
)

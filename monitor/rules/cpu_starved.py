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

# Below this a wait costs nothing: "medium" in the contract.
LEAST_WAIT: Final = 0.05
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
    job = window.job
    wait, throttled = job.mean(m.JOB_MAIN_THREAD_WAIT), job.mean(m.JOB_THROTTLED)
    if wait is None:
        return window.lacks(Need.RECORDING)
    if throttled is not None and throttled.value >= LEAST_THROTTLED:
        return _of_limit(window, wait, throttled)
    if wait.value < LEAST_WAIT:
        return _of_other_threads(window, wait)
    found, products = None, _products(window)
    if products or _wants_too_many(window):
        found = _of_own_threads(window, wait, products)
    if found is not None or not _is_crowded(window, wait):
        return found
    return Found(
        None,
        tuple(_evidence(window, wait, None)),
        severity=Severity.MEDIUM,
        title="Other programs take the cores that the job waits for",
        fixes=dict.fromkeys(EVERY, OWN_CORES),
    )


def _of_limit(window: Window, wait: Measure, throttled: Measure) -> Found:
    """Judge a limit of the container; it stops all threads at once: none has time to spare."""
    gain = _gain(window, _lost(window, wait, 0.0), is_limited=True)
    title = "The CPU limit of the container stops the job"
    return _found(window, gain, _evidence(window, wait, throttled), title, is_limited=True)


def _of_own_threads(window: Window, wait: Measure, products: tuple[Place, ...]) -> Found | None:
    """Judge threads of the job that keep each other waiting; ``None``: nothing makes them fewer."""
    gain = _gain(window, _lost(window, wait, _spare(window, wait)), is_limited=False)
    evidence, title = _evidence(window, wait, None), _title(window)
    is_late = gain.high >= LEAST_WAIT
    if products and is_late:
        # A framework's threads wait for one another at each operation: the one without a core
        # keeps all of them.
        return replace(
            _found(window, gain, evidence, f"{title}: NumPy's beside the framework's"),
            gain=Gain(gain.low, max(gain.high, _framework(window))),
            where=(*_asking(window), *products),
            fixes=dict.fromkeys(EVERY, ONE_POOL),
        )
    # A loader's workers, or other processes, may wait where the main thread does not.
    if not (is_late or _workers(window) or _processes(window) > 1) or not _cures(window):
        return None
    return _found(window, gain, evidence, title)


def _found(
    window: Window, gain: Gain, evidence: list[Evidence], title: str, *, is_limited: bool = False
) -> Found:
    fixes = _cures(window, is_limited=is_limited)
    if gain.high < LEAST_WAIT:
        return Found(None, tuple(evidence), severity=Severity.LOW, title=title, fixes=fixes)
    return Found(
        gain,
        tuple(evidence),
        where=_asking(window),
        slice=_slice(window),
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
        fixes=dict.fromkeys(EVERY, OWN_CORES),
    )


def _title(window: Window) -> str:
    """Say what there is too much of: processes, workers, or threads of one process."""
    there, workers = _there(window), _workers(window)
    if (several := _processes(window)) > 1:
        return f"{several} processes of the job run more threads than it has cores"
    if workers >= there and not _has_too_many(window):
        return f"{workers} loader workers run beside the steps on {_cores(there)}"
    return "The job runs more threads than it has cores"


def _cores(number: int) -> str:
    return "one core" if number == 1 else f"{number} cores"


def _wants_too_many(window: Window) -> bool:
    """Tell whether clearly more threads want a core than there are."""
    cores, wanted = window.cores, _wanted(window)
    return cores is not None and wanted is not None and wanted.value >= LEAST_WANTED * cores.value


def _is_crowded(window: Window, wait: Measure) -> bool:
    """Tell whether nothing is left of the cores, and others have a part of them."""
    cores, used = allowed(window.job), window.job.mean(m.JOB_CPU)
    if cores is None or used is None or cores.busy - used.value < LEAST_TAKEN * cores.there:
        return False
    return cores.is_full or (wait.value >= LONG_WAIT and cores.there - cores.busy < 1)


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
    if workers > beside and not _waits_for_input(window):
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
        return "Or raise the CPU limit."
    needs = math.ceil(min(wanted.value, there))
    return (
        f"Or raise the CPU limit to {needs} cores: resources.limits.cpu: {needs} in Kubernetes,"
        f" --cpus={needs} for Docker, CPUQuota={100 * needs}% in systemd."
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
        "tensorflow": Fix("Raise the CPU limit, or ask for no more threads than it allows."),
    },
    detect=detect,
)

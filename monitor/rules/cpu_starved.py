"""The job waits for CPU cores.

## What it sees
The main thread waits for a core, or the container's limit stops the job. Its own threads are blamed
at 1.5 or more for each core.

## Why it costs
A container over its limit stops for the rest of each tenth of a second.

## How to fix
Leave a core for the main thread, and divide the others among processes and workers:
`torch.set_num_threads`, OMP_NUM_THREADS, MKL_NUM_THREADS, and OPENBLAS_NUM_THREADS=1 for NumPy.
Libraries count the machine's cores, not the container's.

## When it is wrong
A main thread ahead of a busy device loses nothing. For a CPU mask see `few_cpus_allowed`.

## Documents
Beyond the five documents.
"""

from __future__ import annotations

import math
import re
from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Evidence, Found, Place
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.rules import Fix, Framework, Need, Rule, Severity, Slice, Verdict, Window
from whyidle.monitor.signals.cores import LEAST_TAKEN, Runner, busy_processes, wanted_by
from whyidle.monitor.signals.gain import Side, comes_back
from whyidle.monitor.signals.loading_cause import with_workers
from whyidle.monitor.signals.serving import trains
from whyidle.monitor.signals.user_lines import asking

# Below this a wait costs nothing.
LEAST_WAIT: Final = Severity.MEDIUM.least
# A limit that bites in one of ten periods is too low; single bursts are not.
LEAST_THROTTLED: Final = 0.10
# So many threads for each core want one, of the job alone: fewer of them help, whoever else runs.
# With as many as there are cores, two on two, the main thread of a healthy job waits 5 to 9% of its
# time, and with half of them it was slower.
LEAST_WANTED: Final = 1.5
# Who waits for so long was kept waiting by what ran, also where a core was free now and then: less
# than one of them on average.
LONG_WAIT: Final = 0.20
# Who asks for threads or processes, and for how many if that stands there.
_ASKS: Final = re.compile(
    r"(?:set_num_(?:interop_)?threads|(?:OMP|MKL|OPENBLAS|NUMEXPR)_NUM_THREADS"
    r"|(?:intra|inter)_op_parallelism(?:_threads)?|num_workers|max_workers|Pool)"
    r"""["'\])]*\s*[=(,:]\s*["']?(\d*)"""
)
EVERY: Final[tuple[Framework, ...]] = ("pytorch", "jax", "tensorflow")
OWN_CORES: Final = Fix(
    "Give the job its own cores, or move one of the jobs. To reserve cores: taskset -c 0-7 for"
    " a start, cpuset.cpus of its cgroup, or --cpus-per-task under Slurm. Fewer threads would"
    " not help."
)


def detect(window: Window) -> Verdict:
    """Judge the waits for a core."""
    job, cores, wanted = window.job, window.cores, wanted_by(window.job)
    wait = window.needed(job.mean(m.JOB_MAIN_THREAD_WAIT), Need.RECORDING)
    throttled = job.mean(m.JOB_THROTTLED)
    is_limited = throttled is not None and throttled.value >= LEAST_THROTTLED
    is_late, title = wait.value >= LEAST_WAIT, "The CPU limit of the container stops the job"
    processes, workers = busy_processes(job), sum(with_workers(window))
    evidence = {
        "main thread waits for a core": wait,
        "periods cut by the CPU limit": throttled if is_limited else None,
        "cores": cores,
        "cores used by the job": job.mean(m.JOB_CPU),
        "threads that want a core": wanted,
        "processes that compute": job.measure(processes, "count", "procfs")
        if processes > 1
        else None,
        "loader workers": job.measure(workers, "count") if workers else None,
    }
    too_many = is_late and cores and wanted and wanted.value >= LEAST_WANTED * cores.value
    if is_limited or too_many:
        gain = comes_back(window, wait.value, wait.value, Side.NO_CORE)
        loses, fixes = gain.high >= LEAST_WAIT, _cures(window, is_limited=is_limited)
        if not is_limited:
            several = f"{processes} processes of the job run" if processes > 1 else "The job runs"
            title = f"{several} more threads than it has cores"
        # A loader's workers, or other processes, may wait where the main thread does not.
        if is_limited or (fixes and (loses or workers or processes > 1)):
            return Found(
                gain if loses else None,
                Evidence.known(evidence),
                where=_asking(window),
                slice=Slice.IDLE_DISPATCH if window.device == "gpu" and loses else None,
                severity=None if loses else Severity.LOW,
                title=title,
                fixes=fixes,
            )
    account = window.core_account
    if account is None or not account.is_taken:
        return None
    others = account.runs[Runner.OTHERS]
    # Other threads may compute for a main thread that waits for no core.
    computes = comes_back(window, others, others, Side.CORES).low >= LEAST_TAKEN and trains(window)
    is_full = account.is_full or (wait.value >= LONG_WAIT and account.runs[Runner.FREE] < 1)
    if not is_full or not (is_late or computes):
        return None
    taken = {"cores that other programs take": job.measure(others, "cores", "procfs")}
    return Found(
        None,
        Evidence.known({**(taken if not is_late else {}), **evidence}),
        severity=Severity.MEDIUM,
        title="Other programs take the cores that the job waits for",
        fixes=dict.fromkeys(EVERY, OWN_CORES),
    )


def _cures(window: Window, *, is_limited: bool) -> dict[Framework, Fix]:
    """Return what to type, with the job's own numbers in it; nothing that is so already."""
    job, processes, workers = window.job, busy_processes(window.job), sum(with_workers(window))
    there = 1 if window.cores is None else max(1, int(window.cores.value))
    each, beside = max(1, there // max(1, processes)), max(1, there - 1)
    said, code = [], []
    has = job.facts.get("torch", {}).get("num_threads")
    if not isinstance(has, int) or has > each or _asking(window):
        fewer = f"OMP_NUM_THREADS={each} MKL_NUM_THREADS={each}"
        said.append(f"{fewer} for each of the {processes} processes" if processes > 1 else fewer)
        code.append(f"torch.set_num_threads({each})")
    # Of two on two cores, which the steps waited for, one did less: 8.5 steps a second became 6.1,
    # and 10.6 with one thread of PyTorch's beside both.
    waits = 0.0 if window.host is None else window.host.share(HostClass.LOADER)
    if workers > beside and waits < LEAST_WAIT:
        said.append(f"num_workers={beside}")
        code.append(f"loader = DataLoader(dataset, num_workers={beside}, **as_before)")
    words = (
        f"Run no more threads and workers than cores. Set {', and '.join(said)}." if said else ""
    )
    wanted, raised = wanted_by(job), " Or raise the CPU limit." if is_limited else ""
    if is_limited and wanted is not None:
        needs = math.ceil(min(wanted.value, job.means.get(m.HOST_CORES, math.inf)))
        raised = (
            f" Or raise the CPU limit to {needs} cores: resources.limits.cpu: {needs} in"
            f" Kubernetes, --cpus={needs} for Docker, CPUQuota={100 * needs}% in systemd."
        )
    others = f"Run fewer threads and processes next to the main thread.{raised}"
    cures: dict[Framework, Fix] = {
        "jax": Fix(others),
        "tensorflow": Fix(
            others,
            f"# before anything runs\ntf.config.threading.set_intra_op_parallelism_threads({each})",
        ),
    }
    if said or raised:
        cures["pytorch"] = Fix(f"{words}{raised}".strip(), "\n".join(code))
    return cures if "pytorch" in cures or not window.uses("pytorch") else {}


def _asking(window: Window) -> tuple[Place, ...]:
    """Return the lines that ask for more threads, or processes, than there are cores."""
    there = math.inf if window.cores is None else window.cores.value
    return asking(window.job, _ASKS, if_=lambda asked: not asked[1] or float(asked[1]) > there)


rule = Rule(
    title="The job waits for CPU cores",
    fixes={
        "pytorch": Fix(
            "Raise the CPU limit, or use no more than it allows.",
            """\
cores = len(os.sched_getaffinity(0))
torch.set_num_threads(max(1, cores // 2))
loader = DataLoader(dataset, num_workers=max(1, cores - 1), **as_before)""",
        ),
        "jax": Fix(
            "Raise the CPU limit, or prepare the data in fewer processes.",
            """\
cores = len(os.sched_getaffinity(0))
pool = concurrent.futures.ThreadPoolExecutor(max(1, cores - 1))""",
        ),
        "tensorflow": Fix("Raise the CPU limit, or run no more threads than it allows."),
    },
)

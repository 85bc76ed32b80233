"""The job may use only some of the cores, and these are full.

## What it sees
The cores that the job may use are full, and others are idle.

## Why it costs
A mask (`taskset`, `numactl`, a cpuset, Slurm, OpenMP) holds for later threads and loader workers.

## How to fix
Slurm gives a task one core without `--cpus-per-task`, and `srun` needs the option again. `taskset
-apc` widens the masks of a running job within its cpuset. `len(os.sched_getaffinity(0))` counts its
cores, `os.cpu_count()` does not.

## When it is wrong
Idle cores may be reserved for others. If no thread waits, no gain is given.

## Documents
Beyond the five documents.
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import MOSTLY
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain
from whyidle.monitor.rules import Need, Rule, Severity, Slice, Verdict, Window, both
from whyidle.monitor.signals.cores import FULL, Runner, allowed

# Threads that wait for each core: one that has it to itself was found waiting 1% of the time, also
# beside our own threads; two that share it wait half of it each.
LEAST_WAITING: Final = 0.25
# Of the time that it waits for a core or its loader: four workers beside the main thread on one of
# two cores gave back 0.21 of 0.48, one worker 0.24 of 0.32; the rest comes later instead.
BACK_LEAST: Final = 0.4
# A pool of threads that the whole machine has no room for is as slow there: 8 threads took as long
# on two cores as on one. That is another fault, and no mask's.
MOST_OF_A_POOL: Final = 1.25
CODE: Final = """\
# before pools and workers start
os.sched_setaffinity(0, range(os.cpu_count()))"""


def detect(window: Window) -> Verdict:
    """Judge the masks of the threads."""
    job, account = window.job, window.core_account
    there, used = job.mean(m.HOST_CORES), job.mean(m.JOB_CPU)
    mask, waiting = job.mean(m.JOB_CORES_ALLOWED), job.mean(m.JOB_WAITING_THREADS)
    cores = allowed(job)
    if there is None or used is None or mask is None or waiting is None or cores is None:
        return window.lacks(Need.RECORDING)
    limit = job.means.get(m.JOB_CPU_LIMIT, there.value)
    if mask.value >= there.value or limit < mask.value:
        # A limit that is tighter is another fault.
        return None
    busy, free = job.means.get(m.HOST_CPU), 0.0
    if busy is not None:
        free = there.value - cores.there - max(0.0, busy * there.value - cores.busy)
    if not cores.is_full or free < MOSTLY:
        return None
    wanted, gain = used.value + waiting.value, None
    there_is = mask.value + free
    # It is rather threads of the main process that run than others of the job.
    is_pool = account is not None and account.runs[Runner.THREADS] > account.runs[Runner.HELPERS]
    if is_pool and wanted > MOST_OF_A_POOL * there_is:
        return None
    if waiting.value >= LEAST_WAITING * mask.value:
        gain = _gain(window, used.value, min(wanted, there_is))
    elif used.value < FULL * mask.value:
        return None
    return Found(
        gain,
        (
            Evidence.of("threads that want a core", job.measure(wanted, "count", "procfs")),
            Evidence.of("cores that it may use", mask),
            Evidence.of("cores of the machine", there),
            Evidence.of("cores free elsewhere", job.measure(free, "cores", "procfs")),
        ),
        slice=Slice.IDLE_DISPATCH if window.device == "gpu" and gain else None,
        # Libraries that count these cores start no more threads: who would use more is not seen.
        severity=None if gain else Severity.INFO,
        confidence=Confidence.MEASURED if gain else Confidence.HINTED,
        title=f"The job may use {mask.value:.0f} of {there.value:.0f} cores, and they are full",
        fixes=both(_words(window, mask.value, there.value, wanted), CODE),
    )


def _gain(window: Window, used: float, then: float) -> Gain:
    """Return what comes back where the same work has more cores, as far as it divides."""
    means = window.job.means
    serial = min(1.0, means.get(m.JOB_MAIN_THREAD, 0.0))
    stays = max(used / then, serial if then > 1 else 0.0)
    most = max(0.0, min(1 - stays, window.not_computing))
    waits = max(means.get(m.JOB_MAIN_THREAD_WAIT, 0), means.get(m.JOB_LOADER_WAIT, 0))
    return Gain.between(BACK_LEAST * min(most, waits), most)


def _words(window: Window, mask: float, there: float, wanted: float) -> str:
    # Who waits now and then for a hundredth of a core needs no other.
    needs = min(max(int(mask) + 1, round(wanted)), int(there))
    pid = "PID" if window.job.pid is None else window.job.pid
    return (
        f"Give it {needs} cores. For sbatch, srun: --cpus-per-task={needs} (--cpu-bind=none where"
        f" srun alone narrows it); for Docker: --cpuset-cpus=0-{needs - 1}; at once:"
        f" taskset -apc 0-{int(there) - 1} {pid}. Or use no more than it has:"
        f" OMP_NUM_THREADS={mask:.0f} num_workers={mask:.0f}."
    )


rule = Rule(
    title="The job may use only some of the cores, and these are full",
    fixes=both("Widen the CPU mask, or run no more threads than it has cores.", CODE),
)

"""Sums that a fleet is asked for: how much a counter grew, by whom it is asked.

A server that has the rules of ``monitor fleet init`` keeps each of them every five minutes, with
who a job is joined to it while it runs: a day of a job is then 288 numbers and not 5,760, and a
job that has ended still has an owner. Without the rules the counters themselves are asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from whyidle.monitor.export import families as f

# How often the rules run; each keeps what grew since the time before.
EVERY: Final = "5m"
EVERY_SECONDS: Final = 300
# Whose a job is. These stay the same while it runs: what is learnt late (a framework, the number
# of a recording) would make two series of one job. ``team`` is for the scrape configuration.
OWNER: Final = ("user", "team", "namespace", "slurm_job", "pod")
JOB: Final = ("instance", "job_key")


@dataclass(frozen=True, slots=True)
class Sum:
    """What a counter grew by."""

    # Under which name the rules keep it.
    record: str
    counter: f.Name
    by: tuple[str, ...]
    # Its series have a job_key, and their owners stand elsewhere.
    of_job: bool = False

    def kept(self, window: str, selector: str = "") -> str:
        """Return the query for what the rules kept."""
        return f"sum_over_time({self.record}{selector}[{window}])"

    def counted(self, window: str, selector: str = "") -> str:
        """Return the query that adds it up from the counters."""
        grown = f"increase({self.counter.name}{selector}[{window}])"
        grown = f"sum by ({', '.join(self.by)}) ({grown})"
        if not self.of_job:
            return grown
        info = owners(f"last_over_time({f.JOB_INFO.name}{selector}[{window}])")
        return f"{grown} * on ({', '.join(JOB)}) group_left ({', '.join(OWNER)}) {info}"


def owners(info: str) -> str:
    """Return who jobs are, one series a job."""
    return f"max by ({', '.join((*JOB, *OWNER))}) ({info})"


_GPU: Final = ("instance", "held")
# fmt: off
JOB_IDLE: Final = Sum("whyidle_job_idle_seconds:increase5m", f.JOB_IDLE, (*JOB, "cause"), True)
JOB_TIME: Final = Sum("whyidle_job_device_seconds:increase5m", f.JOB_SECONDS, JOB, True)
GPU_IDLE: Final = Sum("whyidle_gpu_idle_seconds:increase5m", f.GPU_IDLE, _GPU)
GPU_TIME: Final = Sum("whyidle_gpu_seconds:increase5m", f.GPU_SECONDS, _GPU)
GPU_JOULES: Final = Sum("whyidle_gpu_idle_joules:increase5m", f.GPU_IDLE_JOULES, _GPU)
GPU_COST: Final = Sum("whyidle_gpu_idle_cost:increase5m", f.GPU_IDLE_COST, (*_GPU, "currency"))
# fmt: on
SUMS: Final = (JOB_IDLE, JOB_TIME, GPU_IDLE, GPU_TIME, GPU_JOULES, GPU_COST)

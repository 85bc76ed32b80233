"""The names of our own that a scrape has, beside those that follow from ``core/metrics.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric, Scope, metrics_of
from whyidle.monitor.export.exposition import Family, Kind


@dataclass(frozen=True, slots=True)
class Name:
    """One name, and what it means."""

    name: str
    kind: Kind
    help: str

    def family(self) -> Family:
        """Return it without a series."""
        return Family(self.name, self.kind, self.help)


# What a recording knows of its job, as far as a fleet asks for it.
OF_JOB: Final = (
    m.JOB_STEPS, m.JOB_STEP_P50, m.JOB_STEP_P95, m.JOB_SAMPLES, m.JOB_LOADER_WAIT, m.JOB_SYNC_WAIT,
    m.JOB_COMPILE, m.JOB_GC_PAUSE, m.JOB_AGENTS, m.JOB_AGENT_CPU, m.JOB_CPU, m.JOB_RSS,
    m.JOB_PROCESSES, m.JOB_THROTTLED, m.JOB_MEMORY_LIMIT, m.JOB_MEMORY_USED, m.JOB_OOM_KILLS,
)  # fmt: skip
# What its recorder takes.
OF_MONITOR: Final = (m.SELF_CPU, m.SELF_RSS)
OF_GPU: Final = metrics_of(Scope.GPU)


def of_metric(metric: Metric) -> Family:
    """Return the family of a metric that we record, without a series."""
    return Family(metric.exported, metric.kind, metric.help)


# fmt: off
# Of a GPU; ``held``: whether a process has memory on it.
GPU_ANSWERS: Final = Name("whyidle_gpu_answers", "gauge", "1: the driver gives values of it.")
GPU_LOST: Final = Name("whyidle_gpu_lost", "gauge", "1: the driver no longer reaches it.")
GPU_PROCESSES: Final = Name("whyidle_gpu_processes", "gauge", "Processes that hold memory of it.")
GPU_UNMATCHED: Final = Name("whyidle_gpu_unmatched_processes", "gauge",
    "Of these, those that cannot be told from here.")
GPU_HELD_IDLE: Final = Name("whyidle_gpu_held_idle", "gauge",
    "1: a process holds memory of it, and at the last look nothing ran on it.")
GPU_SECONDS: Final = Name("whyidle_gpu_seconds_total", "counter", "Time in which it was watched.")
GPU_IDLE: Final = Name("whyidle_gpu_idle_seconds_total", "counter",
    "Time in which no kernel ran on it, at least.")
GPU_IDLE_JOULES: Final = Name("whyidle_gpu_idle_joules_total", "counter",
    "Energy drawn in that time, at most: at the mean power of each look.")
GPU_IDLE_COST: Final = Name("whyidle_gpu_idle_cost_total", "counter",
    "Money for that time and energy, where prices are set.")
GPU_XIDS: Final = Name("whyidle_gpu_xid_errors_total", "counter", "XID errors that were reported.")

GPU_ALLOCATED: Final = Name("whyidle_gpu_allocated", "gauge",
    "1: the kubelet has given it to this container.")

# Of a job.
JOB_INFO: Final = Name("whyidle_job_info", "gauge", "Who a job is; join by job_key.")
JOB_GPU: Final = Name("whyidle_job_gpu_memory_bytes", "gauge",
    "Device memory that a job holds on a GPU; 0: the driver does not say how much.")
JOB_SECONDS: Final = Name("whyidle_job_device_seconds_total", "counter",
    "Time of a job, times its GPUs; a job without a GPU counts as one.")
JOB_IDLE: Final = Name("whyidle_job_idle_seconds_total", "counter",
    "Of that, the time in which devices waited, by cause; only a recording knows causes.")
JOB_STEP_TIME: Final = Name("whyidle_job_step_seconds", "histogram",
    "How long steps took since the recording began.")
JOB_SAMPLES: Final = Name("whyidle_job_samples_total", "counter",
    "Samples trained on since the recording began.")
JOB_FINDING: Final = Name("whyidle_job_finding", "gauge", "1: this was found and lasts.")
JOB_LOST_POWER: Final = Name("whyidle_job_lost_watts", "gauge",
    "Power that the job's largest finding loses, at most.")
JOB_LOST_COST: Final = Name("whyidle_job_lost_cost_per_hour", "gauge",
    "What it loses in money an hour, where prices are set.")

# Of the exporter itself.
BUILD: Final = Name("whyidle_build_info", "gauge", "The version of whyidle.")
PROBLEM: Final = Name("whyidle_exporter_problem", "gauge",
    "1: this part does not work at the moment; standard error says why.")
CPU: Final = Name("whyidle_exporter_cpu_seconds_total", "counter", "CPU time of the exporter.")
RSS: Final = Name("whyidle_exporter_rss_bytes", "gauge", "Resident memory of the exporter.")
TICK: Final = Name("whyidle_exporter_tick_seconds", "gauge", "Time that the last look took.")
AGE: Final = Name("whyidle_exporter_age_seconds", "gauge", "How old the values of the GPUs are.")
LEFT_OUT: Final = Name("whyidle_exporter_jobs_left_out", "gauge",
    "Jobs without series, as there are more than a host may show.")
# fmt: on

"""What a server says of a fleet of one host and one job."""

from __future__ import annotations

import time
from typing import Any

from whyidle.monitor.export import families as f

JOB = {"instance": "node1:9400", "job_key": "11-7", "user": "ada", "team": "vision"}


def whole() -> dict[str, Any]:
    """One job on one host, by the queries that find it; the first that fits counts."""
    now = time.time()
    idle, job_time = "job_idle_seconds:increase5m", "job_device_seconds:increase5m"
    return {
        "[15m]": [({}, 1.0)],
        "unless on (instance)": [({"instance": "node9:9400"}, now - 3600)],
        "and on (instance, gpu, UUID)": [(JOB, 2.0)],
        "vector(0)": [({}, 2.0)],
        "ALERTS": [
            ({"alertname": "WhyidleGpuXid", "severity": "warning", "gpu": "1"}, 1.0),
            ({"alertname": "WhyidleGpuLost", "severity": "critical", "gpu": "0"}, 1.0),
        ],
        f"job_key, cause) (sum_over_time(whyidle_{idle}": [
            ({**JOB, "cause": "input"}, 2.0), ({**JOB, "cause": "gc"}, 1.0)],
        f"slurm_job, pod) (sum_over_time(whyidle_{idle}": [(JOB, 3.0)],
        f"by (cause) (sum_over_time(whyidle_{idle}": [({"cause": "input"}, 2.0),
                                                      ({"cause": "gc"}, 1.0)],
        f"by (user) (sum_over_time(whyidle_{idle}": [({"user": "ada"}, 3.0)],
        f"by (team) (sum_over_time(whyidle_{idle}": [({"team": "vision"}, 3.0)],
        f"by (namespace) (sum_over_time(whyidle_{idle}": [({}, 3.0)],
        f"by (instance) (sum_over_time(whyidle_{idle}": [({"instance": "node1:9400"}, 3.0)],
        f"job_key) (sum_over_time(whyidle_{job_time}": [(JOB, 12.0)],
        f"(instance) (sum_over_time(whyidle_{job_time}": [({"instance": "node1:9400"}, 12.0)],
        f"(user) (sum_over_time(whyidle_{job_time}": [({"user": "ada"}, 12.0)],
        f"sum(sum_over_time(whyidle_{job_time}": [({}, 12.0)],
        "currency) (sum_over_time": [({"instance": "node1:9400", "held": "true",
                                       "currency": "EUR"}, 7.5)],
        "joules:increase5m": [({"instance": "node1:9400", "held": "true"}, 0.6)],
        "whyidle_gpu_idle_seconds:increase5m": [({"held": "true"}, 3.0)],
        "whyidle_gpu_seconds:increase5m": [({"held": "true"}, 12.0)],
        "last_over_time(whyidle_job_info": [({**JOB, "run": ""}, 1.0),
                                            ({**JOB, "run": "5", "framework": "jax"}, 1.0)],
        f.BUILD.name: [({}, 1.0)],
        f.GPU_ANSWERS.name: [({}, 8.0)],
    }  # fmt: skip

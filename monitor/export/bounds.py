"""How many series a host has at most, whatever runs there: docs/fleet.md says so, tests hold it."""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core.metrics import STEP_BOUNDS_S
from whyidle.monitor.export import families as f
from whyidle.monitor.export.collector import PARTS
from whyidle.monitor.export.job_time import IDLE
from whyidle.monitor.export.kubelet import MOST_OF_A_GPU
from whyidle.monitor.export.recordings import MOST_FINDINGS

# Its metrics, six facts of it, four sums for each of three answers to whether it is held, its pods.
OF_A_GPU: Final = len(f.OF_GPU) + 6 + 4 * 3 + MOST_OF_A_GPU
# Who it is, its time, its time by cause; and one more for each GPU that it holds.
OF_A_JOB: Final = 2 + len(IDLE)
# Its metrics and its recorder's, the histogram with its sum and count and the bucket of all, its
# findings, its samples, the power and the money that it loses.
OF_A_RECORDING: Final = (
    len(f.OF_JOB) + len(f.OF_MONITOR) + len(STEP_BOUNDS_S) + 3 + MOST_FINDINGS + 3
)
OF_THE_EXPORTER: Final = len(PARTS) + 6

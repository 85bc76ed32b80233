"""Default values that both an option's help and its command use."""

from __future__ import annotations

from typing import Final

# How long a trace of a running process lasts by default, and at most.
TRACE_SECONDS: Final = 1.0
MOST_TRACE_SECONDS: Final = 10.0
# Kept short: a trace that the job itself begins meanwhile fails in the job.
MOST_SERVER_SECONDS: Final = 1.0
# How long a process that is not being recorded is watched: enough for agent, trace, and some steps
# after it.
WATCH_SECONDS: Final = 30.0
# Only this machine reaches it, unless it is asked for otherwise.
LOOPBACK: Final = "127.0.0.1"
# Where a Prometheus server looks for metrics of GPUs.
EXPORT_PORT: Final = 9400

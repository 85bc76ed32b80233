"""Probes: what NVML and the host tell from outside the job, read without ever raising."""

"""Probes: read NVML and the host from outside the job, without ever raising."""

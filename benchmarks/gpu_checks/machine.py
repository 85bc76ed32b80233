"""What machine this is: what makes a recording of it worth something later."""

from __future__ import annotations

import os
import platform
import re
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from gpu_recorder.report import PACKAGES

from whyidle.monitor.sources.nvml import Nvml, text

MORE_PACKAGES = ("msgspec", "click", "jax-cuda13-plugin", "jax-cuda12-plugin", "triton", "grpcio")


def is_fake() -> bool:
    """Tell whether NVML is the library of the tests, which plays a tape."""
    return "WHYIDLE_NVML_TAPE" in os.environ


def gpu() -> dict[str, Any] | None:
    """Return what NVML says of the first GPU; ``None``: there is none."""
    nvml = Nvml()
    try:
        nvml.open()
    except Exception:  # noqa: BLE001  whatever the reason, there is nothing to ask
        return None
    handle = nvml.get("nvmlDeviceGetHandleByIndex", 0)
    if handle is None:
        return None
    return {
        "model": text(nvml.get("nvmlDeviceGetName", handle)) or "unknown GPU",
        "gpus": nvml.get("nvmlDeviceGetCount"),
        "driver": text(nvml.get("nvmlSystemGetDriverVersion")),
        "cuda": nvml.get("nvmlSystemGetCudaDriverVersion"),
    }


def facts() -> dict[str, Any]:
    """Return everything that a reader of the figures must know; nothing that names a person."""
    found = gpu()
    return {
        "date": datetime.now(UTC).isoformat(timespec="milliseconds"),
        **(found or {"model": None, "gpus": 0, "driver": None, "cuda": None}),
        "fake": is_fake(),
        "python": platform.python_version(),
        "packages": {name: v for name in (*PACKAGES, *MORE_PACKAGES) if (v := _version(name))},
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        # Its number alone: what follows names who built it.
        "kernel": f"{platform.system()} {platform.release().partition('-')[0]}",
        "machine": platform.machine(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1].strip() if found else platform.machine()

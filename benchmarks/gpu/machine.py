"""The machine that is looked at: how a checkout is imported there as it lies, and what it is."""

from __future__ import annotations

import os
import platform
import re
import zipfile
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LINKS = ROOT / ".typing"
PARTS = ("monitor", "agents", "dashboard", "demo_workloads")
PACKAGES = (
    *("nvidia-ml-py", "torch", "jax", "jaxlib", "numpy", "psutil", "msgspec", "click"),
    *("jax-cuda13-plugin", "jax-cuda12-plugin", "triton", "grpcio"),
)


def prepare(work: Path, wheels: Path | None) -> None:
    """Put the checkout, and wheels that came along, on the import path of what we start."""
    links, site = LINKS, work / "site"
    if not (LINKS / "whyidle/monitor/cli.py").exists():
        # Links that did not travel are made anew.
        links = work / "import"
        (links / "whyidle").mkdir(parents=True)
        for part in PARTS:
            (links / "whyidle" / part).symlink_to(ROOT / part)
    files = sorted(wheels.glob("*.whl")) if wheels else []
    if wheels and not files:
        raise SystemExit(f"There is no wheel in {wheels}.")
    for wheel in files:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    known = (links, ROOT, site if files else None, os.environ.get("PYTHONPATH"))
    os.environ["PYTHONPATH"] = os.pathsep.join(str(each) for each in known if each)


def software() -> dict[str, Any]:
    """Return the versions that a recording depends on."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "packages": found,
        # Its number alone: what follows names who built it.
        "kernel": f"{platform.system()} {platform.release().partition('-')[0]}",
        "machine": platform.machine(),
    }


def facts() -> dict[str, Any]:
    """Return what a reader of the figures must know; nothing that names a person."""
    cpu = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "date": datetime.now(UTC).isoformat(timespec="milliseconds"),
        **_gpu(),
        # The library of the tests, which plays a tape.
        "fake": "WHYIDLE_NVML_TAPE" in os.environ,
        **software(),
        "cpu": cpu[1].strip() if cpu else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
    }


def _gpu() -> dict[str, Any]:
    """Return what NVML says of the first GPU; without one the model is ``None``."""
    from whyidle.monitor.sources.nvml import Nvml, text  # noqa: PLC0415  prepared by now

    nvml, found = Nvml(), {"model": None, "gpus": 0, "driver": None, "cuda": None}
    try:
        nvml.open()
    except Exception:  # noqa: BLE001  whatever the reason, there is nothing to ask
        return found
    handle = nvml.get("nvmlDeviceGetHandleByIndex", 0)
    if handle is None:
        return found
    return {
        "model": text(nvml.get("nvmlDeviceGetName", handle)) or "unknown GPU",
        "gpus": nvml.get("nvmlDeviceGetCount"),
        "driver": text(nvml.get("nvmlSystemGetDriverVersion")),
        "cuda": nvml.get("nvmlSystemGetCudaDriverVersion"),
    }

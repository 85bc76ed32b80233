"""Whether this machine lets its users into running jobs, known before any job is looked at."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from whyidle.monitor.attach import precheck
from whyidle.monitor.attach.answers import Refusal
from whyidle.monitor.core.paths import as_root
from whyidle.monitor.processes.procfs import ProcFs

START: Final = "monitor run -- python train.py"
# What Docker and Podman leave in each container.
_OF_CONTAINERS: Final = ("/.dockerenv", "/run/.containerenv")
_POD: Final = "KUBERNETES_SERVICE_HOST"


def closed(fs: ProcFs, pid: str = "PID") -> Refusal | None:
    """Return why one's own running jobs cannot be entered here, and what to type."""
    scope = (fs.text(precheck.YAMA) or "0").strip()
    if scope == "3":
        return Refusal(
            "This machine lets no one into a running job (kernel.yama.ptrace_scope is 3).",
            f"Start it with the monitor: {START}",
        )
    if scope == "0" or precheck.may_trace(fs):
        return None
    if os.geteuid() == 0 or _in_container():
        return Refusal(
            "This container lets no one into a running job: it lacks SYS_PTRACE.",
            f"Docker: docker exec --privileged -u root -it CONTAINER monitor attach {pid}\n"
            f"Kubernetes: kubectl debug -it POD --target=CONTAINER --profile=sysadmin"
            f" --image=IMAGE -- monitor attach {pid}\n"
            f"Or start the job with the monitor: {START}",
        )
    return Refusal(
        f"This machine lets only root into a running job (kernel.yama.ptrace_scope is {scope}).",
        f"{as_root(f'attach {pid}')}   or: {START}",
    )


def _in_container() -> bool:
    return _POD in os.environ or any(Path(mark).exists() for mark in _OF_CONTAINERS)

"""What the control group of a process says of it: which container, pod or SLURM step it is in.

Every user may read it, of every process, and a job cannot change it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_HEX: Final = "[0-9a-f]"
# A pod of the API server's has a UID, with dashes or, under systemd, underscores; one from a file
# of the kubelet's a hash.
_POD: Final = re.compile(
    rf"(?:^|[/-])pod({_HEX}{{8}}(?:[-_]{_HEX}{{4}}){{3}}[-_]{_HEX}{{12}}|{_HEX}{{32}})(?=[./:]|$)"
)
# By the runtime: /docker/ID, docker-ID.scope, cri-containerd-ID.scope, SLICE:cri-containerd:ID.
_ID: Final = re.compile(
    rf"(?:^|[/:])(?:(docker|libpod|crio|cri-containerd|cri-o)[-:/])?({_HEX}{{64}})(?=[./:]|$)"
)
# Ids are cut short by some.
_NAMED: Final = (
    ("docker", re.compile(rf"docker[-/]({_HEX}{{12,64}})")),
    ("podman", re.compile(rf"libpod-({_HEX}{{12,64}})")),
    ("containerd", re.compile(rf"cri-containerd[-:]({_HEX}{{12,64}})")),
    ("cri-o", re.compile(rf"crio-({_HEX}{{12,64}})")),
)
_SLURM: Final = re.compile(r"/(?:slurm|[\w.-]*slurmstepd)[^\n]*?/job_(\d+)(?:/step_(\w+))?")
_LXC: Final = re.compile(r"/lxc(?:\.payload\.|/)([^/\n]+)")
# What a person sees of an id, as the tools of containers show it.
SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class Placed:
    """Empty where there is none."""

    # The runtime; of a pod it is no matter.
    kind: str = ""
    container_id: str = ""
    pod_uid: str = ""
    slurm_job: str = ""
    slurm_step: str = ""

    @property
    def shown(self) -> str | None:
        """What a person calls it."""
        if self.pod_uid:
            return f"kubernetes {self.pod_uid[:SHOWN]}"
        if self.kind:
            return f"{self.kind} {self.container_id[:SHOWN]}"
        return f"slurm job {self.slurm_job}" if self.slurm_job else None


def placed(groups: str) -> Placed:
    """Read a file /proc/PID/cgroup, of version 1 or 2."""
    slurm = _SLURM.search(groups)
    job, step = (slurm[1], slurm[2] or "") if slurm else ("", "")
    pod, uid = None, ""
    for line in groups.splitlines():
        pods = list(_POD.finditer(line)) if "kubepods" in line or "kubelet" in line else []
        if pods:
            # The innermost, where nodes are containers themselves.
            pod, uid = line, pods[-1][1].replace("_", "-")
            break
    if pod is not None:
        ids = _ID.findall(pod)
        return Placed("kubernetes", ids[-1][1] if ids else "", uid, job, step)
    for kind, pattern in _NAMED:
        if hit := pattern.search(groups):
            return Placed(kind, hit[1], "", job, step)
    if (hit := _LXC.search(groups)) and not job:
        return Placed("lxc", hit[1])
    return Placed(slurm_job=job, slurm_step=step)

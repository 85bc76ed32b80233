"""Where a control group says that a process is: the paths that runtimes and drivers write."""

from __future__ import annotations

import pytest

from whyidle.monitor.processes.container import placed

UID = "7c1f2f3a-5b6c-4d7e-8f90-a1b2c3d4e5f6"
SCORED = UID.replace("-", "_")
ID = "0123456789abcdef" * 4
STATIC = "d1f2" * 8


@pytest.mark.parametrize(
    ("groups", "uid"),
    [
        # Version 2; the driver cgroupfs, then systemd, with containerd, CRI-O and Docker.
        (f"0::/kubepods/burstable/pod{UID}/{ID}", UID),
        (f"0::/kubepods/pod{UID}/{ID}", UID),
        ((f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SCORED}.slice"
         f"/cri-containerd-{ID}.scope"), UID),
        (f"0::/kubepods.slice/kubepods-pod{SCORED}.slice/crio-{ID}.scope", UID),
        (f"0::/kubepods.slice/kubepods-pod{SCORED}.slice/crio-{ID}.scope/container", UID),
        ((f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{SCORED}.slice"
         f"/docker-{ID}.scope"), UID),
        # A pod from a file of the kubelet's.
        (f"0::/kubepods/besteffort/pod{STATIC}/{ID}", STATIC),
        ((f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{STATIC}.slice"
         f"/cri-containerd-{ID}.scope"), STATIC),
        # As seen from a container with a view of its own.
        (f"0::/../../kubepods-burstable-pod{SCORED}.slice/cri-containerd-{ID}.scope".replace(
            "/../../", "/../../kubepods-burstable.slice/"), UID),
        # Version 1.
        ((f"12:devices:/kubepods/burstable/pod{UID}/{ID}\n11:cpu,cpuacct:/kubepods/burstable/pod{UID}"
         f"/{ID}\n1:name=systemd:/kubepods/burstable/pod{UID}/{ID}\n0::/"), UID),
        ((f"5:memory:/system.slice/containerd.service/kubepods-burstable-pod{SCORED}.slice"
         f":cri-containerd:{ID}\n0::/"), UID),
        # Nodes that are containers, and a kubelet with a root of its own.
        (f"0::/docker/{'f' * 64}/kubelet/kubepods/burstable/pod{UID}/{ID}", UID),
        ((f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice"
         f"/kubelet-kubepods-burstable-pod{SCORED}.slice/cri-containerd-{ID}.scope"), UID),
    ],
)  # fmt: skip
def test_a_pod_and_its_container(groups: str, uid: str) -> None:
    found = placed(groups + "\n")
    assert (found.pod_uid, found.container_id) == (uid, ID)
    assert found.shown == f"kubernetes {uid[:12]}"


@pytest.mark.parametrize(
    ("groups", "shown"),
    [
        (f"0::/docker/{ID}", "docker 0123456789ab"),
        (f"0::/system.slice/docker-{ID}.scope", "docker 0123456789ab"),
        (f"4:cpu:/docker/{ID}\n0::/system.slice/containerd.service", "docker 0123456789ab"),
        (f"0::/machine.slice/libpod-{ID}.scope/container", "podman 0123456789ab"),
        (f"0::/system.slice/cri-containerd-{ID}.scope", "containerd 0123456789ab"),
        ("0::/lxc.payload.train/init.scope", "lxc train"),
        ("0::/user.slice/user-1000.slice/session-3.scope", None),
        # A folder of somebody's with such a name is no pod.
        (f"0::/user.slice/pod{UID}/a", None),
        ("", None),
    ],
)
def test_without_a_pod(groups: str, shown: str | None) -> None:
    found = placed(groups)
    assert (found.shown, found.pod_uid) == (shown, "")


@pytest.mark.parametrize(
    ("groups", "job", "step"),
    [
        ("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_3", "4711", "0"),
        (
            "0::/system.slice/node7_slurmstepd.scope/job_4711/step_batch/user/task_0",
            "4711",
            "batch",
        ),
        ("9:memory:/slurm/uid_1000/job_4711/step_2/task_0\n0::/", "4711", "2"),
        ("9:freezer:/slurm_node7/uid_1000/job_4711/step_extern", "4711", "extern"),
        ("9:cpuset:/slurm/uid_1000/job_4711", "4711", ""),
        ("0::/user.slice/job_12", "", ""),
    ],
)
def test_a_step_of_slurm(groups: str, job: str, step: str) -> None:
    found = placed(groups)
    assert (found.slurm_job, found.slurm_step) == (job, step)
    assert found.shown == (f"slurm job {job}" if job else None)


def test_a_container_in_a_step_is_both() -> None:
    found = placed(f"0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0/docker/{ID}")
    assert (found.shown, found.slurm_job, found.slurm_step) == ("docker 0123456789ab", "7", "0")

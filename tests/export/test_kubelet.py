"""Which pods have the GPUs: a kubelet of the test's own answers over a real socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import pytest

from tests.export.exporter import samples, values
from tests.export.test_jobs import FACTS, Machine, on
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.export import collector as collecting
from whyidle.monitor.export import kubelet
from whyidle.monitor.export.collector import Collector, Look
from whyidle.monitor.export.jobs import Jobs
from whyidle.monitor.export.kubelet import Allocation, of_gpus, owner, parsed, read
from whyidle.monitor.export.scrape import Shown, scrape
from whyidle.monitor.sources.gpu import GpuFacts, GpuReading

POD = "12345678-1234-1234-1234-123456789012"


def message(number: int, content: bytes | str) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    length = len(raw)
    size = bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])
    return bytes([number << 3 | 2]) + size + raw


def pod(namespace: str, name: str, **containers: tuple[str, ...]) -> bytes:
    """Return a pod whose containers have devices: the resource, then the devices' names."""
    held = b"".join(
        message(3, message(1, container)
                + message(2, message(1, "rdma/hca") + message(2, "mlx5_0"))
                + message(2, message(1, devices[0]) + b"".join(message(2, x) for x in devices[1:])))
        for container, devices in containers.items()
    )  # fmt: skip
    return message(1, message(1, name) + message(2, namespace) + held)


LIST = (
    pod("research", "train-0", main=("nvidia.com/gpu", "GPU-0", "GPU-1"), side=("cpu/x", "GPU-9"))
    + pod("serve", "vllm-a", main=("nvidia.com/gpu.shared", "GPU-2::0"))
    + pod("serve", "vllm-b", main=("nvidia.com/gpu.shared", "GPU-2::1"))
    + pod("kube-system", "proxy")
)


@contextmanager
def listening(
    folder: Path, answer: Callable[[bytes, grpc.ServicerContext], bytes]
) -> Iterator[Path]:
    handler = grpc.method_handlers_generic_handler(
        "v1.PodResourcesLister", {"List": grpc.unary_unary_rpc_method_handler(answer)}
    )
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"unix:{folder}/kubelet.sock")
    server.start()
    try:
        yield folder / "kubelet.sock"
    finally:
        server.stop(None).wait()


def test_a_kubelet_is_asked_over_its_socket(tmp_path: Path) -> None:
    with listening(tmp_path, lambda *_: LIST) as socket:
        found = read(socket)
    assert found == {
        "GPU-0": (Allocation("research", "train-0", "main"),),
        "GPU-1": (Allocation("research", "train-0", "main"),),
        "GPU-2": (Allocation("serve", "vllm-a", "main"), Allocation("serve", "vllm-b", "main")),
    }


def test_without_a_kubelet_nobody_has_a_gpu_and_nothing_is_wrong(tmp_path: Path) -> None:
    assert read(tmp_path / "none.sock") == {}


def test_a_kubelet_that_refuses_hangs_or_is_none_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        return b""

    with listening(tmp_path, refuse) as socket, pytest.raises(Problem, match="rate limit"):
        read(socket)
    (tmp_path / "a").mkdir()
    damaged = listening(tmp_path / "a", lambda *_: b"\x0a\xff\xff\x03")
    with damaged as socket, pytest.raises(Problem, match="is no kubelet"):
        read(socket)
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(kubelet, "SECONDS", 0.5)
    with pytest.raises(Problem, match="names no pods"):
        read(tmp_path / "file")


@pytest.mark.parametrize("cut", range(1, len(LIST), 7))
def test_half_an_answer_ends(cut: int) -> None:
    with suppress(kubelet.Damaged):
        parsed(LIST[:cut])


def test_devices_go_by_uuid_and_on_gke_by_number() -> None:
    mig = GpuFacts("1:0", "MIG 1g.18gb", uuid="MIG-7", mig_of="1", mig_instance=9)
    gpus = (*FACTS[:2], mig)
    a, b = Allocation("n", "a", "c"), Allocation("n", "b", "c")
    assert of_gpus(gpus, {"GPU-0": (a,), "MIG-7": (b,)}) == {"0": (a,), "1:0": (b,)}
    assert of_gpus(gpus, {"nvidia0": (a,), "nvidia1/gi9": (b,)}) == {"0": (a,), "1:0": (b,)}
    assert parsed(pod("n", "a", c=("nvidia.com/gpu", "nvidia0/vgpu3"))) == {"nvidia0": (a,)}
    many = tuple(Allocation("n", f"p{n}", "c") for n in range(99))
    assert len(of_gpus(gpus, {"GPU-0": many})["0"]) == kubelet.MOST_OF_A_GPU


def test_who_takes_turns_is_told_apart_by_its_own_name() -> None:
    a, b = Allocation("n", "a", "c"), Allocation("n", "b", "c")
    shared = {"0": (a, b), "1": (a,)}
    assert owner(["1"], shared, "") == a
    assert owner(["0", "1"], shared, "") == a
    assert owner(["0"], shared, "b") == b
    assert owner(["0"], shared, "") is None
    assert owner(["0"], shared, "other") is None
    assert owner([], shared, "a") is None


def test_a_job_in_a_pod_gets_the_names_of_its_gpus_container(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.start(7)
    machine.start(8, POD_NAME="mine", KUBERNETES_SERVICE_HOST="10.0.0.1")
    (tmp_path / "7" / "cgroup").write_text(f"0::/kubepods/burstable/pod{POD}/{'a' * 64}\n")
    allocated = {"0": (Allocation("research", "train-0", "main"),)}
    jobs = {
        job.key.pid: job.owner
        for job in Jobs(machine.fs).find(FACTS, on(gpu0=(7,), gpu1=(8,)), {}, 0.0, allocated)
    }
    assert (jobs[7].namespace, jobs[7].pod, jobs[7].container) == ("research", "train-0", "main")
    assert (jobs[7].pod_uid, jobs[7].container_id) == (POD, "a" * 64)
    # Of its GPU the kubelet says nothing: it goes by its own word.
    assert (jobs[8].pod, jobs[8].container) == ("mine", "")
    # A process of the host's on a pod's GPU is none of the pod's.
    (tmp_path / "b").mkdir()
    host = Machine(tmp_path / "b")
    host.start(7)
    (job,) = Jobs(host.fs).find(FACTS, on(gpu0=(7,)), {}, 0.0, allocated)
    assert job.owner.pod == ""


def test_a_page_names_the_container_of_each_gpu(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = Collector(state / DATABASE, print)
    with listening(tmp_path, lambda *_: LIST) as socket:
        monkeypatch.setattr(collecting.kubelet, "read", lambda: read(socket))
        collector.read_pods()
    allocated = of_gpus(FACTS, collector.allocations)
    readings = {gpu.index: GpuReading() for gpu in FACTS}
    for each in readings.values():
        each.reading.unknown[collecting.m.GPU_XID] = "none so far"
    collector.last = Look(0.0, facts=FACTS, readings=readings, allocated=allocated)
    page = scrape(collector, Shown("h")).decode()
    held = {(x.labels["gpu"], x.labels["pod"]) for x in samples(page)
            if x.name == "whyidle_gpu_allocated"}  # fmt: skip
    assert held == {("0", "train-0"), ("1", "train-0"), ("2", "vllm-a"), ("2", "vllm-b")}
    assert values(page, "whyidle_exporter_problem", part="pods") == [0]

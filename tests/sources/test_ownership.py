from functools import partial
from pathlib import Path

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.processes.namespace import FIRST_NAMESPACE
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.sources.gpu import GpuFacts, GpuReading
from whyidle.monitor.sources.ownership import is_alive, owned_gpus, unclaimed, visible_gpus

FACTS = [GpuFacts("0", "A", uuid="GPU-aaa"), GpuFacts("1", "A", uuid="GPU-bbb")]
CUDA = "7f00-7f01 r-xp 0 0 1 /usr/lib/libcuda.so.570\n"


def proc(folder: Path, *, namespace: str, maps: str = "") -> ProcFs:
    (folder / "self" / "ns").mkdir(parents=True)
    (folder / "self" / "ns" / "pid").symlink_to(namespace)
    (folder / "7").mkdir()
    (folder / "7" / "maps").write_text(maps)
    return ProcFs(str(folder))


def on(*indices: str) -> dict[str, GpuReading]:
    return {
        f.index: GpuReading(processes={7: Reading()} if f.index in indices else {}) for f in FACTS
    }


def test_the_drivers_list_decides_where_pids_are_the_same(tmp_path: Path) -> None:
    owned = owned_gpus(FACTS, on("1"), {7}, {"0"}, proc(tmp_path, namespace=FIRST_NAMESPACE))
    assert owned.indices == {"1"}
    assert owned.sure


def test_in_a_container_a_pid_is_not_joined_blindly(tmp_path: Path) -> None:
    owned = owned_gpus(FACTS, on("1"), {7}, {None}, proc(tmp_path, namespace="pid:[4026532999]"))
    assert owned.indices == {"0", "1"}
    assert not owned.sure
    assert "cannot be matched" in owned.how


def test_in_a_container_a_process_that_uses_the_driver_is_joined(tmp_path: Path) -> None:
    fs = proc(tmp_path, namespace="pid:[4026532999]", maps=CUDA)
    assert owned_gpus(FACTS, on("1"), {7}, {None}, fs).indices == {"1"}


def test_without_the_drivers_word_the_environment_counts(tmp_path: Path) -> None:
    owned = owned_gpus(FACTS, on(), {7}, {"1"}, proc(tmp_path, namespace=FIRST_NAMESPACE))
    assert owned.indices == {"1"}
    assert not owned.sure


def test_a_job_that_holds_no_gpu_says_so(tmp_path: Path) -> None:
    owned = owned_gpus(FACTS, on(), {7}, {None}, proc(tmp_path, namespace=FIRST_NAMESPACE))
    assert owned.indices == {"0", "1"}
    assert "holds none" in owned.how


def test_a_mig_instance_stands_for_its_gpu(tmp_path: Path) -> None:
    facts = [GpuFacts("0", "A"), GpuFacts("0:1", "A MIG", mig_of="0")]
    readings = {f.index: GpuReading(processes={7: Reading()}) for f in facts}
    fs = proc(tmp_path, namespace=FIRST_NAMESPACE)
    assert owned_gpus(facts, readings, {7}, {None}, fs).indices == {"0:1"}


def test_cuda_visible_devices_is_read_as_cuda_reads_it() -> None:
    assert visible_gpus("1,0", FACTS) == {"0", "1"}
    assert visible_gpus("GPU-bb", FACTS) == {"1"}
    assert visible_gpus("0,-1,1", FACTS) == {"0"}
    assert visible_gpus("", FACTS) == frozenset()
    assert visible_gpus("-1", FACTS) == frozenset()


def test_each_rank_names_its_own(tmp_path: Path) -> None:
    fs = proc(tmp_path, namespace="pid:[4026532999]")
    assert owned_gpus(FACTS, on(), {7}, {"0", "1"}, fs).indices == {"0", "1"}
    hidden = owned_gpus(FACTS, on(), {7}, {""}, fs)
    assert hidden.indices == frozenset()
    assert hidden.how == "CUDA_VISIBLE_DEVICES="


def holding(folder: Path, *, state: str = "S", namespace: str = FIRST_NAMESPACE) -> float | None:
    """Return what nobody holds of 10 GB, of which the driver gives 6 to a process."""
    fs = proc(folder, namespace=namespace)
    fields = " ".join(["0"] * 49)
    (folder / "7" / "stat").write_text(f"7 (python) {state} {fields}")
    (folder / "7" / "task" / "7").mkdir(parents=True)
    process = Reading({m.PROCESS_GPU_MEMORY: 6e9})
    reading = GpuReading(Reading({m.GPU_MEMORY_USED: 10e9}), {7: process})
    return unclaimed(FACTS[0], reading, FACTS, fs, partial(is_alive, fs))[0]


def test_memory_that_no_live_process_holds(tmp_path: Path) -> None:
    for name in ("live", "dead", "inside"):
        (tmp_path / name).mkdir()
    assert holding(tmp_path / "live") == 4e9
    assert holding(tmp_path / "dead", state="Z") == 10e9
    # Who is alive there nobody sees from a container.
    assert holding(tmp_path / "inside", namespace="pid:[4026532999]") is None


def test_memory_of_processes_that_the_driver_does_not_tell_is_not_held_by_nobody(
    tmp_path: Path,
) -> None:
    fs = proc(tmp_path, namespace=FIRST_NAMESPACE)
    used = Reading({m.GPU_MEMORY_USED: 10e9})
    alive = partial(is_alive, fs)
    secret = GpuReading(used, processes_unknown="no")
    assert unclaimed(FACTS[0], secret, FACTS, fs, alive)[0] is None
    divided = [*FACTS, GpuFacts("0:1", "A MIG", mig_of="0")]
    assert unclaimed(FACTS[0], GpuReading(used), divided, fs, alive)[0] is None

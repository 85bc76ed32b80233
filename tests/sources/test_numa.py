"""Who runs far from its GPU, on a machine made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import Stat
from whyidle.monitor.sources.gpu import GpuFacts
from whyidle.monitor.sources.numa import LOOKS, Numa
from whyidle.monitor.sources.ownership import Owned, nodes_of

BUS = "00000000:CA:00.0"


def machine(folder: Path, *lists: str, gpu: str = "1") -> Numa:
    for node, listed in enumerate(lists):
        path = folder / f"devices/system/node/node{node}"
        path.mkdir(parents=True)
        (path / "cpulist").write_text(f"{listed}\n")
    device = folder / "bus/pci/devices/0000:ca:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text(f"{gpu}\n")
    return Numa(folder)


def on(core: int, pid: int = 7) -> dict[ProcessKey, Stat]:
    return {ProcessKey(pid, 5): Stat(pid, "a", "R", 1, 0, 0, 0, 1, 5, 4096, core=core)}


def test_the_node_of_a_gpu(tmp_path: Path) -> None:
    numa = machine(tmp_path, "0-3", "4-7")
    assert numa.node_of_gpu(BUS) == 1
    assert numa.node_of_gpu("00000000:01:00.0") is None
    assert numa.node_of_gpu(None) is None


@pytest.mark.parametrize(("lists", "gpu"), [(("0-7",), "0"), (("0-3", "4-7"), "-1"), ((), "0")])
def test_where_nothing_is_far(tmp_path: Path, lists: tuple[str, ...], gpu: str) -> None:
    assert machine(tmp_path, *lists, gpu=gpu).node_of_gpu(BUS) is None


def test_the_process_that_is_far_the_most(tmp_path: Path) -> None:
    numa = machine(tmp_path, "0-3", "4-7")
    near = {7: {1}, 8: {0, 1}}
    stats = on(2) | on(0, pid=8) | on(0, pid=9)
    assert numa.far(stats, near) == 1.0
    # It has moved; what lies back far enough is forgotten.
    assert numa.far(on(5), near) == 0.5
    for _ in range(LOOKS):
        last = numa.far(on(5), near)
    assert last == 0.0
    assert numa.far({}, near) is None


def test_whose_gpu_it_is() -> None:
    facts = [GpuFacts("0", "a", numa_node=0), GpuFacts("1", "b", numa_node=1), GpuFacts("2", "c")]
    sure = Owned(frozenset({"1", "2"}), "", sure=True)
    assert nodes_of(sure, facts, {"1": {7}, "2": {9}}, 8) == {7: {1}}
    hinted = Owned(frozenset({"0", "1"}), "", sure=False)
    assert nodes_of(hinted, facts, {}, 8) == {8: {0, 1}}
    assert nodes_of(hinted, facts, {}, None) == {}

"""The names of dcgm-exporter: exactly its own, so that dashboards for it find what they ask for."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from tests.conftest import TAPES, Monitor
from tests.export.exporter import samples, values

Tape = Callable[..., dict[str, str]]

# What its default list of counters (etc/default-counters.csv, release 4.5.3-4.8.2) turns on, by
# the unit that it states; the value that the tape plays, in that unit.
DEFAULT = {
    "DCGM_FI_DEV_SM_CLOCK": 1890,  # MHz
    "DCGM_FI_DEV_MEM_CLOCK": 3201,  # MHz
    "DCGM_FI_DEV_MEMORY_TEMP": 61,  # C
    "DCGM_FI_DEV_GPU_TEMP": 58,  # C
    "DCGM_FI_DEV_POWER_USAGE": 612,  # W
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 5000191453,  # mJ
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 0,
    "DCGM_FI_DEV_GPU_UTIL": 97,  # %
    "DCGM_FI_DEV_MEM_COPY_UTIL": 41,  # %
    "DCGM_FI_DEV_ENC_UTIL": 0,  # %
    "DCGM_FI_DEV_DEC_UTIL": 0,  # %
    "DCGM_FI_DEV_XID_ERRORS": 0,
    "DCGM_FI_DEV_FB_FREE": 84791,  # MiB
    "DCGM_FI_DEV_FB_USED": 58368,  # MiB
    "DCGM_FI_DEV_FB_RESERVED": 612,  # MiB
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": 81.92,  # MB/s
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.972,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.461,
    "DCGM_FI_PROF_DRAM_ACTIVE": 0.386,
    "DCGM_FI_PROF_PCIE_TX_BYTES": 1.8e8,  # bytes/s
    "DCGM_FI_PROF_PCIE_RX_BYTES": 1.2e9,  # bytes/s
}
# Its template writes these, in this order; the driver's version comes from the same list.
LABELS = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION")
# What the panels and variables of its dashboard, 12239, ask for.
BOARD = (
    'DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"}',
    'avg(DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"})',
    'DCGM_FI_DEV_POWER_USAGE{instance=~"$instance", gpu=~"$gpu"}',
    'sum(DCGM_FI_DEV_POWER_USAGE{instance=~"$instance", gpu=~"$gpu"})',
    'DCGM_FI_DEV_SM_CLOCK{instance=~"$instance", gpu=~"$gpu"} * 1000000',
    'DCGM_FI_DEV_GPU_UTIL{instance=~"$instance", gpu=~"$gpu"}',
    'DCGM_FI_DEV_FB_USED{instance=~"$instance", gpu=~"$gpu"}',
    'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{instance=~"$instance", gpu=~"$gpu"}',
    "label_values(DCGM_FI_DEV_GPU_TEMP, gpu)",
)


def once(monitor: Monitor, env: dict[str, str], *options: str) -> str:
    done = monitor("export", "--once", "--host", "node7", *options, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_names_units_and_labels_are_those_of_dcgm_exporter(monitor: Monitor, tape: Tape) -> None:
    page = once(monitor, tape("one_gpu", TRAINER=os.getpid()))
    for name, value in DEFAULT.items():
        (found,) = values(page, name)
        # Rates and totals go on while the tape plays.
        assert abs(found - value) <= 0.05 * value, name
    theirs = [each for each in samples(page) if each.name.startswith("DCGM_")]
    assert {tuple(each.labels) for each in theirs} == {LABELS}
    assert theirs[0].labels == {
        "gpu": "0",
        "UUID": "GPU-00000000-0000-4000-8000-000000000000",
        "pci_bus_id": "00000000:19:00.0",
        "device": "nvidia0",
        "modelName": "NVIDIA H200",
        "Hostname": "node7",
        "DCGM_FI_DRIVER_VERSION": "580.82.07",
    }


def test_every_query_of_board_12239_finds_a_series_of_each_gpu(
    monitor: Monitor, tape: Tape
) -> None:
    page = once(monitor, tape("eight_gpus", TRAINER=os.getpid()))
    for query in BOARD:
        (name,) = re.findall(r"DCGM_\w+", query)
        found = {each.labels["gpu"] for each in samples(page) if each.name == name}
        assert found == set("01234567"), query


def test_newer_releases_write_hostname_in_small_letters(monitor: Monitor, tape: Tape) -> None:
    page = once(monitor, tape("one_gpu", TRAINER=os.getpid()), "--host-label", "hostname")
    assert values(page, "DCGM_FI_DEV_GPU_TEMP", hostname="node7") == [58]
    assert "Hostname=" not in page


def test_without_its_names_all_is_still_there(monitor: Monitor, tape: Tape) -> None:
    page = once(monitor, tape("one_gpu", TRAINER=os.getpid()), "--no-dcgm-names")
    assert "DCGM_" not in page
    assert values(page, "whyidle_gpu_utilisation_ratio", gpu="0") == [0.97]


def test_a_mig_instance_goes_by_its_gpu_and_its_profile(monitor: Monitor, tape: Tape) -> None:
    page = once(monitor, tape("mig", TRAINER=os.getpid()))
    name = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
    mine = {"gpu": "0", "UUID": "GPU-00000000-0000-4000-8000-000000000000"}
    assert values(page, name, GPU_I_PROFILE="1g.18gb", GPU_I_ID="9", **mine) == [0.71]
    assert values(page, name, GPU_I_PROFILE="1g.18gb", GPU_I_ID="10", **mine) == [0]
    # Of the whole the driver gives no utilisation then, and nothing is written as zero.
    assert values(page, "DCGM_FI_DEV_GPU_UTIL") == []
    assert values(page, "DCGM_FI_DEV_XID_ERRORS", GPU_I_ID="9") == []
    assert values(page, "DCGM_FI_DEV_XID_ERRORS") == [0]


def test_no_value_is_no_series(monitor: Monitor, tape: Tape) -> None:
    page = once(monitor, tape("sentinels", TRAINER=os.getpid()))
    assert all(each.value < 1e12 for each in samples(page) if each.name.startswith("DCGM_"))


def test_only_a_virtual_gpu_has_a_licence(monitor: Monitor, tape: Tape, tmp_path: Path) -> None:
    name = "DCGM_FI_DEV_VGPU_LICENSE_STATUS"
    assert values(once(monitor, tape("one_gpu", TRAINER=os.getpid())), name) == []
    played = (TAPES / "one_gpu.tape").read_text()
    for state in (1, 0):
        file = tmp_path / f"{state}.tape"
        file.write_text(f"{played}\ntrack 0 license 0:{state}\n")
        assert values(once(monitor, tape(file, TRAINER=os.getpid())), name) == [state]

"""The metrics as declared: valid names, and nothing missing of what we promise to record."""

import re
from collections import Counter

import pytest

from whyidle.monitor.core.metrics import METRICS, Metric, Scope, metrics_of, processes_of

PROMETHEUS_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
BY_SCOPE = {scope: {m.name for m in metrics_of(scope)} for scope in Scope}

PROMISED = {
    "GPU utilisation": (Scope.GPU, {"utilisation"}),
    "GPU memory": (Scope.GPU, {"memory_used", "memory_total", "memory_bandwidth"}),
    "SM activity and occupancy": (Scope.GPU, {"sm_activity", "sm_occupancy"}),
    "tensor activity": (Scope.GPU, {"tensor_activity"}),
    "DRAM activity": (Scope.GPU, {"dram_activity"}),
    "PCIe traffic": (Scope.GPU, {"pcie_rx", "pcie_tx"}),
    "NVLink traffic": (Scope.GPU, {"nvlink_rx", "nvlink_tx"}),
    "power and energy": (Scope.GPU, {"power", "energy"}),
    "temperatures": (Scope.GPU, {"temperature", "memory_temperature"}),
    "clocks": (Scope.GPU, {"sm_clock", "memory_clock"}),
    "throttling by reason": (
        Scope.GPU,
        {
            "throttled_power",
            "throttled_sync_boost",
            "throttled_heat",
            "throttled_hardware_heat",
            "throttled_power_brake",
        },
    ),
    "PCIe link": (Scope.GPU, {"pcie_generation", "pcie_width"}),
    "XID errors": (Scope.GPU, {"xid"}),
    "a process's share of a GPU": (Scope.GPU_PROCESS, {"memory_used", "sm_share"}),
    "CPU of the job tree": (Scope.JOB, {"cpu"}),
    "CPU of the machine": (Scope.HOST, {"cpu_busy", "cpu"}),
    "resident memory": (Scope.JOB, {"rss"}),
    "page faults": (Scope.JOB, {"minor_faults", "major_faults"}),
    "disk I/O of the job": (Scope.JOB, {"disk_read", "disk_write"}),
    "disk I/O of the machine": (Scope.HOST, {"disk_read", "disk_write"}),
    "network I/O of the job": (Scope.JOB, {"net_rx", "net_tx"}),
    "network I/O of the machine": (Scope.HOST, {"net_rx", "net_tx"}),
    "threads": (Scope.JOB, {"threads"}),
    "context switches": (Scope.JOB, {"context_switches", "preemptions"}),
    "CPU throttling by the cgroup": (Scope.JOB, {"cgroup_throttled"}),
}
GPM = {"sm_activity", "sm_occupancy", "tensor_activity", "dram_activity"}


@pytest.mark.parametrize("what", PROMISED)
def test_what_we_promise_is_recorded(what: str) -> None:
    scope, names = PROMISED[what]
    assert names <= BY_SCOPE[scope]


@pytest.mark.parametrize("scope", Scope)
def test_scope_has_metrics_each_with_its_own_column(scope: Scope) -> None:
    metrics = metrics_of(scope)
    assert metrics
    assert not [n for n, count in Counter(m.column for m in metrics).items() if count > 1]
    assert not [n for n, count in Counter(m.name for m in metrics).items() if count > 1]


def test_scopes_share_all_metrics_out() -> None:
    assert sorted(id(m) for scope in Scope for m in metrics_of(scope)) == sorted(map(id, METRICS))


def test_exported_names_are_unique() -> None:
    assert len({m.exported for m in METRICS}) == len(METRICS)


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.exported)
def test_names_follow_prometheus_and_carry_the_unit(metric: Metric) -> None:
    assert PROMETHEUS_NAME.fullmatch(metric.exported)
    assert metric.column == f"{metric.name}_{metric.unit}"
    shown = {"count": metric.name, "megahertz": f"{metric.name}_hertz"}
    assert shown.get(metric.unit, metric.column) in metric.exported
    assert not metric.exported.endswith("_count")
    assert metric.exported.startswith(f"whyidle_{metric.scope}_")
    assert metric.exported.endswith("_total") == (metric.kind == "counter")


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.exported)
def test_help_is_one_sentence(metric: Metric) -> None:
    assert metric.help.endswith(".")
    assert metric.help[0].isupper()
    assert "\n" not in metric.help


def test_what_an_agent_sends_is_declared_beside_its_metric() -> None:
    inside = [m for m in METRICS if m.source == "agent" and m.scope is Scope.PROCESS]
    # Steps come as records of their own.
    assert [m.name for m in inside if m.gauge is None] == ["steps", "step_p50", "step_p95"]
    keys = Counter(m.gauge.key for m in inside if m.gauge is not None)
    assert not [key for key, count in keys.items() if count > 1]
    for metric in inside:
        if metric.gauge is not None and metric.gauge.becomes.endswith("share"):
            assert metric.gauge.key.endswith("_ns")
            assert metric.unit in {"ratio", "cores"}


def test_what_a_job_adds_up_its_processes_measure() -> None:
    for metric in METRICS:
        if metric.together is not None:
            assert processes_of(metric).unit == metric.unit
            assert processes_of(metric).source == metric.source == "agent"


def test_activity_comes_from_gpm() -> None:
    assert {m.name for m in METRICS if m.source == "gpm"} >= GPM


def test_labels_name_the_unit() -> None:
    labels = {m.exported: m.label for m in METRICS}
    assert labels["whyidle_gpu_power_watts"] == "power (W)"
    assert labels["whyidle_gpu_pcie_rx_bytes_per_second"] == "pcie rx (bytes/s)"
    assert labels["whyidle_gpu_energy_joules_total"] == "energy (J)"
    assert labels["whyidle_gpu_temperature_celsius"] == "temperature (°C)"
    assert labels["whyidle_job_cpu_cores"] == "cpu (cores)"

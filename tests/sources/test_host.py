from pathlib import Path

import pytest

from whyidle.monitor import metrics as m
from whyidle.monitor.metrics import Scope, metrics_of
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs, Stat
from whyidle.monitor.reading import FIRST, Reading
from whyidle.monitor.sources import host
from whyidle.monitor.sources.cgroup import Cgroup
from whyidle.monitor.sources.host import HostProbe, disk_totals, network_totals, pressure_total

PROC = Path(__file__).parent.parent / "data" / "proc"
PIDS = (10294, 10295, 10296)
APART = 1.0032279879997077


class Recorded:
    """The recorded job, read at its two moments."""

    def __init__(self, probe: HostProbe) -> None:
        self.probe = probe

    def at(self, moment: str, now: float) -> tuple[Reading, Reading, dict[ProcessKey, Reading]]:
        fs = ProcFs(str(PROC / moment))
        self.probe.fs = fs
        stats: dict[ProcessKey, Stat] = {}
        for pid in PIDS:
            stat = fs.stat(pid)
            assert stat is not None
            stats[ProcessKey(pid, stat.start_ticks)] = stat
        processes = self.probe.processes(now, stats)
        return self.probe.job(now, stats, processes), self.probe.host(now), processes


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    monkeypatch.setattr(host, "SWITCHES_EVERY_SECONDS", 0.0)
    return Recorded(
        HostProbe(ProcFs(str(PROC / "first")), Cgroup(10294, ProcFs(str(PROC / "first"))))
    )


def test_the_first_reading_has_levels_but_no_rates(recorded: Recorded) -> None:
    job, machine, _ = recorded.at("first", 100.0)
    assert job.get(m.JOB_PROCESSES) == 3
    assert job.get(m.JOB_CPU) is None
    assert job.unknown[m.JOB_CPU] == FIRST
    assert machine.get(m.HOST_CORES) == 2
    assert machine.get(m.HOST_CPU) is None


def test_the_second_reading_has_the_rates_between_the_two(recorded: Recorded) -> None:
    recorded.at("first", 100.0)
    job, machine, processes = recorded.at("second", 100.0 + APART)
    # Sums over the three processes, taken by hand from the recorded files.
    ticks = {moment: sum(s.cpu_ticks for s in _stats(moment)) for moment in ("first", "second")}
    expected = (ticks["second"] - ticks["first"]) / 100 / APART
    assert job.get(m.JOB_CPU) == pytest.approx(expected)
    assert expected > 0.9
    written = _io("second", "write_bytes") - _io("first", "write_bytes")
    assert written > 1 << 20
    assert job.get(m.JOB_DISK_WRITE) == pytest.approx(written / APART)
    assert 0.4 < (job.get(m.JOB_MAIN_THREAD) or 0) <= 1.01
    faults = [sum(s.minor_faults for s in _stats(moment)) for moment in ("first", "second")]
    assert job.get(m.JOB_MINOR_FAULTS) == pytest.approx((faults[1] - faults[0]) / APART)
    assert (job.get(m.JOB_SWITCHES) or 0) > 1
    assert 0.5 < (machine.get(m.HOST_CPU) or 0) <= 1
    assert (machine.get(m.HOST_DISK_WRITE) or 0) > 1 << 20
    assert sum(r.get(m.PROCESS_CPU) or 0 for r in processes.values()) == pytest.approx(expected)


def _stats(moment: str) -> list[Stat]:
    found = [ProcFs(str(PROC / moment)).stat(pid) for pid in PIDS]
    return [s for s in found if s is not None]


def _io(moment: str, name: str) -> int:
    fs = ProcFs(str(PROC / moment))
    return sum(int(fs.fields(f"{pid}/io")[name]) for pid in PIDS)


def test_every_host_metric_has_a_value_or_a_reason(recorded: Recorded) -> None:
    recorded.at("first", 100.0)
    job, machine, processes = recorded.at("second", 100.0 + APART)
    readings = [(Scope.JOB, job), (Scope.HOST, machine)]
    readings += [(Scope.PROCESS, r) for r in processes.values()]
    for scope, reading in readings:
        for metric in metrics_of(scope):
            assert (metric in reading.values) != (metric in reading.unknown), metric.column


def test_switches_are_read_seldom(monkeypatch: pytest.MonkeyPatch, recorded: Recorded) -> None:
    monkeypatch.setattr(host, "SWITCHES_EVERY_SECONDS", 5.0)
    recorded.at("first", 100.0)
    between, _, _ = recorded.at("second", 101.0)
    assert m.JOB_SWITCHES not in between.values
    assert m.JOB_SWITCHES not in between.unknown
    due, _, _ = recorded.at("second", 105.0)
    assert due.get(m.JOB_SWITCHES) is not None


def test_what_is_not_readable_is_unknown_and_not_zero(tmp_path: Path) -> None:
    probe = HostProbe(ProcFs(str(tmp_path)))
    machine = probe.host(1.0)
    assert machine.values == {}
    assert set(machine.unknown) == set(metrics_of(Scope.HOST))
    stat = Stat(1, "a", "R", 0, 0, 0, 0, 1, 5, 4096)
    job = probe.job(1.0, {ProcessKey(1, 5): stat}, {})
    assert m.JOB_DISK_READ in job.unknown
    assert m.JOB_NET_RX in job.unknown


def test_partitions_and_mappings_are_not_counted_twice() -> None:
    rows = [
        (8, "sda", 10),
        (8, "sda1", 10),
        (259, "nvme0n1", 5),
        (259, "nvme0n1p2", 5),
        (253, "dm-0", 15),
    ]
    text = "\n".join(
        f"{major} 0 {name} 1 0 {sectors} 0 1 0 {sectors} 0 0 0 0" for major, name, sectors in rows
    )
    assert disk_totals(text) == (15 * 512, 15 * 512)


def test_loopback_is_no_network() -> None:
    text = "Inter-|\n face |\n  lo: 100 0 0 0 0 0 0 0 100 0\neth0: 7 0 0 0 0 0 0 0 9 0\n"
    assert network_totals(text) == (7, 9)
    assert network_totals(None) == (None, None)


def test_pressure() -> None:
    assert pressure_total("some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull x\n") == 2.5
    assert pressure_total(None) is None


@pytest.mark.parametrize("version", [1, 2])
def test_limits_of_a_control_group(tmp_path: Path, version: int) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "7").mkdir(parents=True)
    if version == 2:
        (proc / "7" / "cgroup").write_text("0::/job/task\n")
        inner = groups / "job" / "task"
        inner.mkdir(parents=True)
        (inner / "cpu.max").write_text("max 100000\n")
        (groups / "job" / "cpu.max").write_text("150000 100000\n")
        (groups / "job" / "cpu.stat").write_text("usage_usec 5\nthrottled_usec 2500000\n")
        (inner / "memory.max").write_text("max\n")
        (groups / "job" / "memory.max").write_text("1073741824\n")
    else:
        (proc / "7" / "cgroup").write_text("4:memory:/job\n2:cpu,cpuacct:/job\n")
        for controller in ("cpu,cpuacct", "cpu", "cpuacct", "memory"):
            (groups / controller / "job").mkdir(parents=True)
        (groups / "cpu" / "job" / "cpu.cfs_quota_us").write_text("150000\n")
        (groups / "cpu" / "job" / "cpu.cfs_period_us").write_text("100000\n")
        (groups / "cpu" / "job" / "cpu.stat").write_text(
            "nr_throttled 3\nthrottled_time 2500000000\n"
        )
        (groups / "memory" / "job" / "memory.limit_in_bytes").write_text("1073741824\n")
    limits = Cgroup(7, ProcFs(str(proc)), groups).read()
    assert limits.cpu_cores == 1.5
    assert limits.throttled_seconds == 2.5
    assert limits.memory_bytes == 1 << 30


def test_no_limit_is_none(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    limits = Cgroup(7, ProcFs(str(tmp_path)), tmp_path).read()
    assert (limits.cpu_cores, limits.throttled_seconds, limits.memory_bytes) == (None, None, None)

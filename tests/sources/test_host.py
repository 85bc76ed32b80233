from pathlib import Path

import pytest

from tests.conftest import start_job
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Scope, metrics_of
from whyidle.monitor.core.reading import FIRST, UNSUPPORTED, Reading
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs, Stat
from whyidle.monitor.processes.tree import RESCAN_SECONDS, Tree, is_alive
from whyidle.monitor.sources import host
from whyidle.monitor.sources.cgroup import Cgroup, Periods
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
        self.probe.forget_others(stats)
        processes = {key: self.probe.process(now, key, stat) for key, stat in stats.items()}
        return self.probe.job(now, stats), self.probe.host(now), processes


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    monkeypatch.setattr(host, "SELDOM_SECONDS", 0.0)
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
    kernel = [sum(s.kernel_ticks for s in _stats(moment)) for moment in ("first", "second")]
    assert job.get(m.JOB_KERNEL) == pytest.approx((kernel[1] - kernel[0]) / 100 / APART)
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
        for metric in (found for found in metrics_of(scope) if found.source != "agent"):
            assert (metric in reading.values) != (metric in reading.unknown), metric.column


def test_switches_are_read_seldom(monkeypatch: pytest.MonkeyPatch, recorded: Recorded) -> None:
    monkeypatch.setattr(host, "SELDOM_SECONDS", 5.0)
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
    job = probe.job(1.0, {ProcessKey(1, 5): stat})
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
        (groups / "job" / "cpu.stat").write_text("usage_usec 5\nnr_periods 20\nnr_throttled 3\n")
        (inner / "cpu.stat").write_text("usage_usec 5\n")
        (inner / "memory.max").write_text("max\n")
        (groups / "job" / "memory.max").write_text("1073741824\n")
    else:
        (proc / "7" / "cgroup").write_text("4:memory:/job\n2:cpu,cpuacct:/job\n")
        for controller in ("cpu,cpuacct", "cpu", "cpuacct", "memory"):
            (groups / controller / "job").mkdir(parents=True)
        (groups / "cpu" / "job" / "cpu.cfs_quota_us").write_text("150000\n")
        (groups / "cpu" / "job" / "cpu.cfs_period_us").write_text("100000\n")
        (groups / "cpu" / "job" / "cpu.stat").write_text(
            "nr_periods 20\nnr_throttled 3\nthrottled_time 2500000000\n"
        )
        (groups / "memory" / "job" / "memory.limit_in_bytes").write_text("1073741824\n")
    limits = Cgroup(7, ProcFs(str(proc)), groups).read()
    assert limits.cpu_cores == 1.5
    assert list(limits.periods.values()) == [Periods(20, 3)]
    assert limits.memory_bytes == 1 << 30


@pytest.mark.parametrize("version", [1, 2])
def test_memory_of_a_control_group(tmp_path: Path, version: int) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "7").mkdir(parents=True)
    if version == 2:
        (proc / "7" / "cgroup").write_text("0::/job/task\n")
        inner, outer = groups / "job" / "task", groups / "job"
        inner.mkdir(parents=True)
        (outer / "memory.max").write_text("2000\n")
        (outer / "memory.high").write_text("1500\n")
        (outer / "memory.current").write_text("1400\n")
        (outer / "memory.stat").write_text("anon 900\ninactive_file 300\nactive_file 150\n")
        (inner / "memory.max").write_text("max\n")
        (inner / "memory.current").write_text("10\n")
        (inner / "cgroup.events").write_text("populated 1\n")
        (inner / "memory.pressure").write_text(
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=3000000\n"
            "full avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n"
        )
    else:
        (proc / "7" / "cgroup").write_text("4:memory:/job\n")
        outer = groups / "memory" / "job"
        outer.mkdir(parents=True)
        (outer / "memory.limit_in_bytes").write_text("2000\n")
        (outer / "memory.usage_in_bytes").write_text("1400\n")
        (outer / "memory.stat").write_text(
            "inactive_file 1\nactive_file 1\ntotal_inactive_file 300\ntotal_active_file 150\n"
        )
    group = Cgroup(7, ProcFs(str(proc)), groups)
    limits = group.read()
    assert (limits.memory_bytes, limits.memory_used) == (2000, 950)
    assert limits.memory_high == (1500 if version == 2 else None)
    pressure = group.memory_pressure()
    assert pressure_total(pressure) == (3.0 if version == 2 else None)
    assert pressure_total(pressure, "full") == (1.0 if version == 2 else None)


def test_the_topmost_group_is_the_whole_machine(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text("0::/\n")
    (tmp_path / "cpu.stat").write_text("usage_usec 5\n")
    (tmp_path / "memory.pressure").write_text("some avg10=0.00 total=3\n")
    assert Cgroup(7, ProcFs(str(tmp_path)), tmp_path).memory_pressure() is None


@pytest.mark.parametrize("path", ["/../job", "/kubepods/job"])
def test_a_job_in_another_container_has_limits_of_its_own(tmp_path: Path, path: str) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    for who, namespace in (("self", "1"), ("7", "2")):
        (proc / who / "ns").mkdir(parents=True)
        (proc / who / "ns" / "cgroup").symlink_to(f"cgroup:[{namespace}]")
    groups.mkdir()
    (proc / "7" / "cgroup").write_text(f"0::{path}\n")
    (groups / "cpu.max").write_text("100000 100000\n")  # the monitor's own
    fs = ProcFs(str(proc))
    # Its own mount cannot be looked at from here: then its limits are not known.
    assert Cgroup(7, fs, groups).read().cpu_cores is None
    seen = proc / "7" / "root" / groups.relative_to("/")
    seen.mkdir(parents=True)
    (seen / "cpu.max").write_text("400000 100000\n")
    assert Cgroup(7, fs, groups).read().cpu_cores == 4.0


def test_processes_that_were_killed_before_the_run_do_not_count(tmp_path: Path) -> None:
    Written(tmp_path).process(7)
    (tmp_path / "7" / "cgroup").write_text("0::/job\n")
    folder = tmp_path / "groups" / "job"
    folder.mkdir(parents=True)
    (folder / "memory.max").write_text("max\n")
    (folder / "memory.events").write_text("oom 4\noom_kill 3\n")
    fs = ProcFs(str(tmp_path))
    probe = HostProbe(fs, Cgroup(7, fs, tmp_path / "groups"))
    assert probe.job(1.0, live(fs, 7)).get(m.JOB_OOM_KILLS) == 0
    (folder / "memory.events").write_text("oom 5\noom_kill 4\n")
    assert probe.job(2.0, live(fs, 7)).get(m.JOB_OOM_KILLS) == 1


def test_a_job_that_is_moved_to_another_group_has_the_limits_of_that(tmp_path: Path) -> None:
    Written(tmp_path).process(7)

    def group(name: str, cores: int, kills: int, throttled: int) -> None:
        folder = tmp_path / "groups" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpu.max").write_text(f"{cores}00000 100000\n")
        (folder / "cpu.stat").write_text(f"nr_periods 100\nnr_throttled {throttled}\n")
        (folder / "memory.max").write_text("max\n")
        (folder / "memory.events").write_text(f"oom 9\noom_kill {kills}\n")
        (folder / "cgroup.events").write_text("populated 1\n")
        total = f"total={kills}000000"
        (folder / "memory.pressure").write_text(f"some {total}\nfull {total}\n")

    of_process, fs = tmp_path / "7" / "cgroup", ProcFs(str(tmp_path))
    of_process.write_text("0::/login\n")
    group("login", 4, 3, 0)
    group("job", 1, 40, 7)
    probe = HostProbe(fs, Cgroup(7, fs, tmp_path / "groups"))
    stats = live(fs, 7)
    probe.job(1.0, stats)
    group("login", 4, 4, 0)
    assert probe.job(2.0, stats).get(m.JOB_CPU_LIMIT) == 4.0
    of_process.write_text("0::/job\n")
    moved = probe.job(3.0, stats)
    assert moved.get(m.JOB_CPU_LIMIT) == 1.0
    # What the other group counts from before is not this job's.
    assert moved.get(m.JOB_OOM_KILLS) == 1
    assert moved.unknown[m.JOB_THROTTLED] == FIRST
    assert moved.unknown[m.JOB_MEMORY_STALL] == FIRST
    group("job", 1, 42, 8)
    assert probe.job(4.0, stats).get(m.JOB_OOM_KILLS) == 3
    # Once it has ended, the kernel may show it at the top.
    of_process.write_text("0::/\n")
    assert probe.job(5.0, {}).values
    assert Cgroup(7, fs, tmp_path / "groups").read().cpu_cores is None
    of_process.unlink()
    assert probe.job(6.0, stats).get(m.JOB_CPU_LIMIT) == 1.0


def test_a_job_on_one_of_two_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "SELDOM_SECONDS", 0.0)
    Written(tmp_path).process(7)
    task = tmp_path / "7" / "task" / "7"
    task.mkdir(parents=True)
    (task / "status").write_text("Cpus_allowed_list:\t1\n")
    (tmp_path / "7" / "status").write_text("VmSwap:\t  12 kB\n")
    probe, fs = HostProbe(ProcFs(str(tmp_path))), ProcFs(str(tmp_path))

    def at(now: float, ran: int, waited: int) -> Reading:
        (task / "schedstat").write_text(f"{ran * 10**9} {waited * 10**9} 1\n")
        busy = (0, ran * 100)
        rows = [f"cpu{n} {b} 0 0 {int(now * 100) - b} 0 0 0 0 0 0" for n, b in enumerate(busy)]
        whole = f"cpu {sum(busy)} 0 0 {int(now * 200) - sum(busy)} 0 0 0 0 0 0"
        (tmp_path / "stat").write_text("\n".join([whole, *rows]))
        probe.host(now)
        return probe.job(now, live(fs, 7))

    first = at(100.0, 50, 10)
    assert first.unknown[m.JOB_CORES_ALLOWED] == FIRST
    assert first.get(m.JOB_SWAP) == 12 * 1024
    later = at(110.0, 60, 15)
    assert later.get(m.JOB_CORES_ALLOWED) == 1
    assert later.get(m.JOB_CORES_BUSY) == pytest.approx(1.0)
    assert later.get(m.JOB_WAITING_THREADS) == pytest.approx(0.5)
    assert later.get(m.JOB_BUSY_PROCESSES) == 1
    assert probe.host(120.0).get(m.HOST_CPU) == 0.0


def test_no_limit_is_none(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    limits = Cgroup(7, ProcFs(str(tmp_path)), tmp_path).read()
    assert (limits.cpu_cores, limits.periods, limits.memory_bytes) == (None, {}, None)


@pytest.mark.parametrize("version", [1, 2])
def test_throttling_is_the_share_of_periods_of_the_tightest_group(
    tmp_path: Path, version: int
) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    Written(proc).process(7)
    (proc / "7" / "cgroup").write_text("0::/job/task\n" if version == 2 else "2:cpu:/job/task\n")
    outer = groups / ("job" if version == 2 else "cpu/job")
    inner = outer / "task"
    inner.mkdir(parents=True)

    def say(folder: Path, periods: int, throttled: int) -> None:
        # The time is summed over CPUs: more than passes.
        time = "throttled_usec 99000000" if version == 2 else "throttled_time 99000000000"
        (folder / "cpu.stat").write_text(
            f"nr_periods {periods}\nnr_throttled {throttled}\n{time}\n"
        )

    fs = ProcFs(str(proc))
    # The outer group has the larger totals, the inner one is what holds the job back now.
    say(outer, 1000, 900)
    say(inner, 10, 1)
    probe = HostProbe(fs, Cgroup(7, fs, groups))
    stats = live(fs, 7)
    assert probe.job(1.0, stats).unknown[m.JOB_THROTTLED] == FIRST
    say(outer, 1010, 901)
    say(inner, 20, 6)
    assert probe.job(2.0, stats).get(m.JOB_THROTTLED) == 0.5
    # A job that sleeps has no periods, and is not throttled.
    assert probe.job(3.0, stats).get(m.JOB_THROTTLED) == 0.0


def test_no_group_that_counts_periods_is_unknown(tmp_path: Path) -> None:
    Written(tmp_path).process(7)
    fs = ProcFs(str(tmp_path))
    job = HostProbe(fs, Cgroup(7, fs, tmp_path)).job(1.0, live(fs, 7))
    assert job.unknown[m.JOB_THROTTLED] == UNSUPPORTED


class Written:
    """A /proc with the few files that a test is about."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def process(
        self, pid: int, parent: int = 1, *, start: int = 5, state: str = "S", **use: int
    ) -> None:
        self.gone(pid)
        words = ["0"] * 50
        words[1], words[19] = str(parent), str(start)
        words[11], words[13] = str(use.get("own", 0)), str(use.get("reaped", 0))
        words[7], words[8] = str(use.get("faults", 0)), str(use.get("reaped_faults", 0))
        words[0] = state
        (self.folder / str(pid)).mkdir(parents=True, exist_ok=True)
        (self.folder / str(pid) / "stat").write_text(f"{pid} (a) {' '.join(words)}\n")

    def gone(self, pid: int) -> None:
        (self.folder / str(pid) / "stat").unlink(missing_ok=True)

    def network(self, pid: int, namespace: str, received: int) -> None:
        (self.folder / str(pid) / "ns").mkdir(exist_ok=True)
        (self.folder / str(pid) / "net").mkdir(exist_ok=True)
        link = self.folder / str(pid) / "ns" / "net"
        link.unlink(missing_ok=True)
        link.symlink_to(namespace)
        (self.folder / str(pid) / "net" / "dev").write_text(
            f"eth0: {received} 0 0 0 0 0 0 0 {received} 0\n"
        )


def live(fs: ProcFs, *pids: int) -> dict[ProcessKey, Stat]:
    stats = {ProcessKey(pid, s.start_ticks): s for pid in pids if (s := fs.stat(pid)) is not None}
    return {k: s for k, s in stats.items() if is_alive(k, s)}


SHORT_LIVED = """
import subprocess, sys
code = "import time\\nwhile time.process_time() < 0.4: pass"
print("ready", flush=True)
for line in sys.stdin:
    subprocess.run([sys.executable, "-c", code])
    print("done", flush=True)
"""


def test_the_use_of_children_that_nobody_saw_counts() -> None:
    with start_job(SHORT_LIVED) as job:
        assert job.stdin is not None
        assert job.stdout is not None
        fs = ProcFs()
        stat = fs.stat(job.pid)
        assert stat is not None
        key = ProcessKey(job.pid, stat.start_ticks)
        tree, probe = Tree(key, fs), HostProbe(fs)
        probe.job(0.0, tree.refresh(0.0))
        job.stdin.write("go\n")
        job.stdin.flush()
        assert job.stdout.readline() == "done\n"
        stats = tree.refresh(RESCAN_SECONDS / 2)
        assert set(stats) == {key}
        reading = probe.job(1.0, stats)
        job.kill()
    assert (reading.get(m.JOB_CPU) or 0) > 0.35
    # It is a Python of its own: to start one takes more pages than that.
    assert (reading.get(m.JOB_MINOR_FAULTS) or 0) > 200


def test_a_dead_child_counts_once_whether_it_is_reaped_soon_or_late(tmp_path: Path) -> None:
    proc, fs = Written(tmp_path), ProcFs(str(tmp_path))
    probe = HostProbe(fs)
    proc.process(10)
    proc.process(11, 10, own=100_000)
    probe.job(0.0, live(fs, 10, 11))
    proc.process(11, 10, own=100_050, state="Z")
    assert probe.job(1.0, live(fs, 10, 11)).get(m.JOB_CPU) == 0.5
    assert probe.job(2.0, live(fs, 10, 11)).get(m.JOB_CPU) == 0
    proc.gone(11)
    proc.process(10, reaped=100_050)
    assert probe.job(3.0, live(fs, 10)).get(m.JOB_CPU) == 0


def test_who_was_dead_before_the_recording_began_does_not_count(tmp_path: Path) -> None:
    proc, fs = Written(tmp_path), ProcFs(str(tmp_path))
    probe = HostProbe(fs)
    proc.process(10)
    proc.process(11, 10, own=100_000, state="Z")
    probe.job(0.0, live(fs, 10))
    proc.gone(11)
    proc.process(10, reaped=100_000)
    assert probe.job(1.0, live(fs, 10)).get(m.JOB_CPU) == 0


def test_a_child_that_was_reaped_after_it_was_read_does_not_count_twice(tmp_path: Path) -> None:
    proc, fs = Written(tmp_path), ProcFs(str(tmp_path))
    probe = HostProbe(fs)
    proc.process(10)
    proc.process(11, 10, own=10)
    proc.process(12, 11, own=100_000)
    probe.job(0.0, live(fs, 10, 11, 12))
    read_early = live(fs, 11, 12)
    proc.gone(12)
    proc.gone(11)
    proc.process(10, reaped=100_060)
    assert probe.job(1.0, read_early | live(fs, 10)).get(m.JOB_CPU) == 0.5


def test_of_a_late_comer_only_what_it_used_since_the_recording_began(tmp_path: Path) -> None:
    proc, fs = Written(tmp_path), ProcFs(str(tmp_path))
    probe = HostProbe(fs)
    proc.process(10)
    proc.process(11, 1, own=100_000, start=9)
    probe.job(0.0, live(fs, 10))
    # An old stranger that the job adopts, and a child of its own.
    proc.process(11, 10, own=100_000, start=9)
    proc.process(12, 10, own=50, start=30)
    assert probe.job(1.0, live(fs, 10, 11, 12)).get(m.JOB_CPU) == 0.5


def test_the_network_is_that_of_the_oldest_process_and_another_one_is_no_growth(
    tmp_path: Path,
) -> None:
    proc, fs = Written(tmp_path), ProcFs(str(tmp_path))
    probe = HostProbe(fs)
    proc.process(20, start=5)
    proc.process(10, 20, start=6)
    proc.network(20, "net:[1]", 100)
    proc.network(10, "net:[2]", 9000)
    probe.job(0.0, live(fs, 10, 20))
    proc.network(20, "net:[1]", 150)
    assert probe.job(1.0, live(fs, 10, 20)).get(m.JOB_NET_RX) == 50
    alone = probe.job(2.0, live(fs, 10))
    assert alone.unknown[m.JOB_NET_RX] == FIRST
    proc.network(10, "net:[2]", 9007)
    assert probe.job(3.0, live(fs, 10)).get(m.JOB_NET_TX) == 7


def test_a_child_in_the_same_network_goes_on_when_the_first_process_ends(tmp_path: Path) -> None:
    proc, fs = Written(tmp_path), ProcFs(str(tmp_path))
    probe = HostProbe(fs)
    for pid in (20, 21):
        proc.process(pid, start=pid)
        proc.network(pid, "net:[1]", 100)
    probe.job(0.0, live(fs, 20, 21))
    proc.network(21, "net:[1]", 130)
    assert probe.job(1.0, live(fs, 21)).get(m.JOB_NET_RX) == 30


def test_a_reaped_childs_disk_use_counts_once(tmp_path: Path) -> None:
    """The parent's file holds a child's bytes from the moment it is reaped."""

    class Disk(ProcFs):
        used: dict[int, int]

        def disk(self, pid: int) -> tuple[int, int, int] | None:
            return (self.used[pid], 0, 0) if pid in self.used else None

    parent, child = ProcessKey(10, 1), ProcessKey(11, 2)
    stats = {
        parent: Stat(10, "p", "S", 1, 0, 0, 0, 1, 1, 0),
        child: Stat(11, "c", "S", 10, 0, 0, 0, 1, 2, 0),
    }
    fs = Disk(str(tmp_path))
    probe = HostProbe(fs)
    rates = []
    for now, used in enumerate(
        [{10: 0, 11: 0}, {10: 0, 11: 100}, {10: 0, 11: 200}, {10: 250}, {10: 250}]
    ):
        fs.used = used
        live = {k: s for k, s in stats.items() if k.pid in used}
        rates.append(probe.job(float(now), live).get(m.JOB_DISK_READ))
    assert rates == [None, 100, 100, 50, 0]

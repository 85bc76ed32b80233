"""The job's processes and the machine, read from /proc alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.rates import Rates, TreeRate, Used
from whyidle.monitor.core.reading import FIRST, NO_LIMIT, NO_PERMISSION, UNSUPPORTED, Reading
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import PAGE, TICKS_PER_SECOND, ProcFs, Stat
from whyidle.monitor.sources.cgroup import Cgroup
from whyidle.monitor.sources.family import Family
from whyidle.monitor.sources.threads import Threads

SECTOR = 512
# Why a number may be missing.
MANY_THREADS = "the job has more threads than are followed"
NO_SUCH_CORE = "nothing of the job ran, or its cores are not among those that are seen here"
ONE_NODE = "all cores and GPUs are at one NUMA node, as far as is known"
_MEMORY = {m.HOST_MEMORY_TOTAL: "MemTotal", m.HOST_MEMORY_AVAILABLE: "MemAvailable"}
_PRESSURES = (
    (m.HOST_CPU_PRESSURE, "cpu"),
    (m.HOST_IO_PRESSURE, "io"),
    (m.HOST_MEMORY_PRESSURE, "memory"),
)
# The kernel needs long to write /proc/PID/status, and a job may have a hundred processes, and
# thousands of threads.
SELDOM_SECONDS = 5.0
# What the kernel adds to the parent when it reaps a process: its use, and its reaped children's.
_HANDED_ON: tuple[tuple[Metric, Callable[[Stat], float], Callable[[Stat], float]], ...] = (
    (
        m.JOB_CPU,
        lambda s: s.cpu_ticks / TICKS_PER_SECOND,
        lambda s: s.reaped_ticks / TICKS_PER_SECOND,
    ),
    (
        m.JOB_KERNEL,
        lambda s: s.kernel_ticks / TICKS_PER_SECOND,
        lambda s: s.reaped_kernel_ticks / TICKS_PER_SECOND,
    ),
    (m.JOB_MINOR_FAULTS, lambda s: s.minor_faults, lambda s: s.reaped_minor_faults),
    (m.JOB_MAJOR_FAULTS, lambda s: s.major_faults, lambda s: s.reaped_major_faults),
)
# What no job has more of than there are cores.
_OF_CORES = (m.JOB_CPU, m.JOB_KERNEL)
_OF_IO = (m.JOB_DISK_READ, m.JOB_DISK_WRITE, m.JOB_READ)
_WHOLE_TREE = (*(entry[0] for entry in _HANDED_ON), *_OF_IO)
_OF_MEMORY = (m.JOB_MEMORY_STALL, m.JOB_MEMORY_STALL_ALL)
# Places in a line of /proc/stat.
_IDLE, _IOWAIT = 3, 4
_PARTIAL_DEVICES = ("loop", "ram", "zram", "dm-", "md")


class HostProbe:
    """Reads the job and the machine once per tick."""

    def __init__(self, fs: ProcFs | None = None, cgroup: Cgroup | None = None) -> None:
        self.fs = fs or ProcFs()
        self._cgroup = cgroup
        self._rates = Rates()
        self._family = Family()
        self._trees = {metric: TreeRate() for metric in _WHOLE_TREE}
        # By its number, how busy each core was.
        self._busy: dict[int, float | None] = {}
        self._threads = Threads()
        # The cores that those may use which ran.
        self._allowed: frozenset[int] | None = None
        self._oom_before = None if cgroup is None else cgroup.oom_kills()
        self._oom_kills = 0
        self._network_of: Hashable = None
        self._known: set[ProcessKey] = set()
        self._seldom_at = float("-inf")

    def forget_others(self, live: Collection[ProcessKey]) -> None:
        """Forget the processes that have ended."""
        for ended in self._known.difference(live):
            for series in ("cpu", "vol", "invol", "run", "delay"):
                self._rates.forget((ended, series))
        self._known = set(live)

    def process(self, now: float, key: ProcessKey, stat: Stat) -> Reading:
        """Return the reading of one live process of the job."""
        reading = Reading({m.PROCESS_RSS: stat.rss, m.PROCESS_THREADS: stat.threads})
        cpu = self._rates.per_second((key, "cpu"), now, stat.cpu_ticks / TICKS_PER_SECOND)
        reading.put(m.PROCESS_CPU, cpu, FIRST)
        return reading

    def job(
        self,
        now: float,
        stats: Mapping[ProcessKey, Stat],
    ) -> Reading:
        """Return the whole tree's reading; sums cover the readable processes."""
        reading = Reading({m.JOB_PROCESSES: len(stats)}, {m.JOB_FAR_FROM_GPU: ONE_NODE})
        if not stats:
            return reading
        reading.values[m.JOB_THREADS] = sum(s.threads for s in stats.values())
        reading.values[m.JOB_RSS] = sum(s.rss for s in stats.values())
        self._handed_on(reading, now, stats)
        self._disk(reading, now)
        if now - self._seldom_at >= SELDOM_SECONDS:
            self._seldom_at = now
            self._statuses(reading, now, stats)
            self._wanted(reading, now, stats)
        self._where_it_may_run(reading)
        self._main_thread(reading, now, stats)
        self._network(reading, now, min(stats, key=lambda key: (key.start_ticks, key.pid)))
        self._follow_group(stats)
        self._limits(reading, now)
        return reading

    def _handed_on(self, reading: Reading, now: float, stats: Mapping[ProcessKey, Stat]) -> None:
        """Add the tree's use, including processes that came and went between two ticks."""
        family = self._family
        family.look(self.fs, stats)
        by_pid = {key.pid: key for key in family.stats}
        for metric, own, reaped in _HANDED_ON:
            used: dict[Hashable, Used] = {
                key: Used(own(stat), reaped(stat), by_pid.get(stat.parent))
                for key, stat in family.stats.items()
            }
            most = len(self._busy) or None if metric in _OF_CORES else None
            rate = self._trees[metric].per_second(now, used, family.new, most)
            reading.put(metric, rate, FIRST)

    def _sum(
        self,
        reading: Reading,
        metric: Metric,
        now: float,
        series: str,
        totals: Mapping[ProcessKey, float],
    ) -> None:
        rates = [self._rates.per_second((key, series), now, total) for key, total in totals.items()]
        known = [rate for rate in rates if rate is not None]
        reading.put(metric, sum(known) if known else None, FIRST if totals else NO_PERMISSION)

    def _disk(self, reading: Reading, now: float) -> None:
        """Add disk I/O; a parent's totals include its reaped children's, inseparably."""
        family = self._family.stats
        by_pid = {key.pid: key for key in family}
        totals = {key: self.fs.disk(key.pid) for key in family}
        known = {key: t for key, t in totals.items() if t is not None}
        for which, metric in enumerate(_OF_IO):
            used: dict[Hashable, Used] = {
                key: Used(0.0, t[which], by_pid.get(family[key].parent)) for key, t in known.items()
            }
            rate = self._trees[metric].per_second(now, used, self._family.new) if used else None
            reading.put(metric, rate, FIRST if used else NO_PERMISSION)

    def _statuses(self, reading: Reading, now: float, stats: Mapping[ProcessKey, Stat]) -> None:
        status = {key: self.fs.fields(f"{key.pid}/status") for key in stats}
        for metric, series, name in (
            (m.JOB_SWITCHES, "vol", "voluntary_ctxt_switches"),
            (m.JOB_PREEMPTIONS, "invol", "nonvoluntary_ctxt_switches"),
        ):
            totals = {key: float(fields[name]) for key, fields in status.items() if name in fields}
            self._sum(reading, metric, now, series, totals)
        swapped = [f["VmSwap"].split()[0] for f in status.values() if f.get("VmSwap")]
        kilobytes = sum(map(int, swapped)) if swapped else None
        reading.put(m.JOB_SWAP, None if kilobytes is None else kilobytes * 1024, UNSUPPORTED)

    def _wanted(self, reading: Reading, now: float, stats: Mapping[ProcessKey, Stat]) -> None:
        """Add how many threads want a core; where they may run is known until the next look."""
        found = self._threads.look(self.fs, now, stats, frozenset(self._busy))
        self._allowed = None if found is None else found.cores
        is_known = found is not None and not self._threads.too_many
        reason = MANY_THREADS if self._threads.too_many else FIRST
        waiting, processes = (
            (found.waiting, found.processes) if found and is_known else (None, None)
        )
        reading.put(m.JOB_WAITING_THREADS, waiting, reason)
        reading.put(m.JOB_BUSY_PROCESSES, processes, reason)

    def _where_it_may_run(self, reading: Reading) -> None:
        allowed = self._allowed or ()
        reason = FIRST if self._allowed is None else NO_SUCH_CORE
        reading.put(m.JOB_CORES_ALLOWED, len(allowed) or None, reason)
        known = [busy for core in allowed if (busy := self._busy.get(core)) is not None]
        reading.put(m.JOB_CORES_BUSY, sum(known) / len(known) if known else None, reason)

    def _main_thread(self, reading: Reading, now: float, stats: Mapping[ProcessKey, Stat]) -> None:
        """Add the busiest main thread, where a Python job that starves its GPU shows first."""
        busiest: tuple[float, float] | None = None
        reason = UNSUPPORTED
        for key in stats:
            times = self.fs.schedule(key.pid)
            if times is None:
                continue
            run = self._rates.per_second((key, "run"), now, times[0] / 1e9)
            delay = self._rates.per_second((key, "delay"), now, times[1] / 1e9)
            reason = FIRST
            if run is not None and delay is not None:
                busiest = max(busiest or (0.0, 0.0), (run, delay))
        reading.put(m.JOB_MAIN_THREAD, busiest[0] if busiest else None, reason)
        reading.put(m.JOB_MAIN_THREAD_WAIT, min(1.0, busiest[1]) if busiest else None, reason)

    def _network(self, reading: Reading, now: float, oldest: ProcessKey) -> None:
        """Add the network of the oldest process: the job's first one, as long as it lives."""
        namespace: Hashable = self.fs.link(f"{oldest.pid}/ns/net") or oldest
        if namespace != self._network_of:
            # Another network has other totals, not comparable with the last ones.
            self._rates.forget(m.JOB_NET_RX)
            self._rates.forget(m.JOB_NET_TX)
            self._network_of = namespace
        received, sent = network_totals(self.fs.text(f"{oldest.pid}/net/dev"))
        self._rate(reading, m.JOB_NET_RX, now, received)
        self._rate(reading, m.JOB_NET_TX, now, sent)

    def _follow_group(self, stats: Mapping[ProcessKey, Stat]) -> None:
        """Look whether a batch system has moved the job to another group."""
        group = self._cgroup
        if group is None or not any(key.pid == group.pid for key in stats) or not group.follow():
            return
        # What happened in the old one is no growth of the new one's.
        for metric in _OF_MEMORY:
            self._rates.forget(metric)
        kills = group.oom_kills()
        self._oom_before = None if kills is None else kills - self._oom_kills

    def _limits(self, reading: Reading, now: float) -> None:
        if self._cgroup is None:
            return
        pressure = self._cgroup.memory_pressure()
        for metric, kind in zip(_OF_MEMORY, ("some", "full"), strict=True):
            self._rate(reading, metric, now, pressure_total(pressure, kind))
        kills = self._cgroup.oom_kills()
        since = None if kills is None or self._oom_before is None else kills - self._oom_before
        self._oom_kills = since or 0
        reading.put(m.JOB_OOM_KILLS, since, UNSUPPORTED)
        limits = self._cgroup.read()
        shares = [
            self._rates.share(folder, periods.throttled, periods.all)
            for folder, periods in limits.periods.items()
        ]
        # A limit further up throttles the job just as well: the tightest counts.
        known = [share for share in shares if share is not None]
        reason = FIRST if shares else UNSUPPORTED
        reading.put(m.JOB_THROTTLED, max(known, default=None), reason)
        reading.put(m.JOB_CPU_LIMIT, limits.cpu_cores, NO_LIMIT)
        reading.put(m.JOB_MEMORY_LIMIT, limits.memory_bytes, NO_LIMIT)
        reading.put(m.JOB_MEMORY_HIGH, limits.memory_high, NO_LIMIT)
        reading.put(m.JOB_MEMORY_USED, limits.memory_used, NO_LIMIT)

    def _rate(self, reading: Reading, metric: Metric, now: float, total: float | None) -> None:
        if total is None:
            reading.unknown[metric] = UNSUPPORTED
        else:
            reading.put(metric, self._rates.per_second(metric, now, total), FIRST)

    def host(self, now: float) -> Reading:
        """Return the machine's reading."""
        reading = Reading()
        self._cores(reading, now)
        memory = self.fs.fields("meminfo", *_MEMORY.values())
        for metric, name in _MEMORY.items():
            words = memory.get(name, "").split()
            reading.put(metric, int(words[0]) * 1024 if words else None, UNSUPPORTED)
        for metric, name in _PRESSURES:
            self._rate(reading, metric, now, pressure_total(self.fs.text(f"pressure/{name}")))
        pages = self.fs.fields("vmstat", "pswpin").get("pswpin")
        self._rate(reading, m.HOST_SWAPPED_IN, now, None if pages is None else int(pages) * PAGE)
        read, written = disk_totals(self.fs.text("diskstats"))
        self._rate(reading, m.HOST_DISK_READ, now, read)
        self._rate(reading, m.HOST_DISK_WRITE, now, written)
        received, sent = network_totals(self.fs.text("net/dev"))
        self._rate(reading, m.HOST_NET_RX, now, received)
        self._rate(reading, m.HOST_NET_TX, now, sent)
        return reading

    def _cores(self, reading: Reading, now: float) -> None:
        text = self.fs.text("stat") or ""
        # user nice system idle iowait irq softirq steal; guest time is already in user.
        rows = (line.split() for line in text.splitlines() if line.startswith("cpu"))
        ticks = {row[0][3:]: [int(word) for word in row[1:9]] for row in rows}
        self._busy = {
            int(core): self._works(f"busy {core}", now, used)
            for core, used in ticks.items()
            if core.isdigit()
        }
        cores = len(self._busy)
        if not cores:
            for metric in (m.HOST_CORES, m.HOST_CPU, m.HOST_IOWAIT):
                reading.unknown[metric] = UNSUPPORTED
            return
        reading.values[m.HOST_CORES] = cores
        reading.put(m.HOST_CPU, self._works("busy", now, ticks[""], cores), FIRST)
        wait = self._rates.per_second("iowait", now, ticks[""][_IOWAIT])
        whole = cores * TICKS_PER_SECOND
        reading.put(m.HOST_IOWAIT, None if wait is None else min(1.0, wait / whole), FIRST)

    def _works(self, series: str, now: float, ticks: list[int], cores: int = 1) -> float | None:
        """Return the share of the time in which a core, or all, were neither idle nor waiting."""
        used = sum(ticks) - ticks[_IDLE] - ticks[_IOWAIT]
        busy = self._rates.per_second(series, now, used)
        return None if busy is None else min(1.0, busy / cores / TICKS_PER_SECOND)


def network_totals(text: str | None) -> tuple[float | None, float | None]:
    """Return bytes received and sent by all interfaces except loopback."""
    if text is None:
        return None, None
    rows = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    counts = [c.split() for name, c in rows if name.strip() != "lo"]
    return float(sum(int(c[0]) for c in counts)), float(sum(int(c[8]) for c in counts))


def disk_totals(text: str | None) -> tuple[float | None, float | None]:
    """Return bytes read and written on whole disks: partitions and mappings would count twice."""
    if text is None:
        return None, None
    rows = [line.split() for line in text.splitlines()]
    names = {row[2] for row in rows}
    whole = [
        r for r in rows if not r[2].startswith(_PARTIAL_DEVICES) and not _is_partition(r[2], names)
    ]
    return (
        float(sum(int(r[5]) for r in whole) * SECTOR),
        float(sum(int(r[9]) for r in whole) * SECTOR),
    )


def _is_partition(name: str, names: set[str]) -> bool:
    """Tell whether it is a partition, such as sda1 (of sda) or nvme0n1p2 (of nvme0n1)."""
    disk = name.rstrip("0123456789")
    return disk != name and (disk in names or (disk.endswith("p") and disk[:-1] in names))


def pressure_total(text: str | None, kind: str = "some") -> float | None:
    """Return the seconds in which some or all ("full") tasks were stalled, from a PSI file."""
    for line in (text or "").splitlines():
        if line.startswith(f"{kind} "):
            return int(line.rpartition("total=")[2]) / 1e6
    return None

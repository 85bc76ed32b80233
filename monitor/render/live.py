"""The live view: the job, its GPUs with a short history, the host, and what the monitor costs."""

from __future__ import annotations

from collections import deque

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from whyidle.monitor.attach.answers import OUTSIDE
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.reading import Reading, by_reason
from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.render import (
    finding_lines,
    inside,
    live_budget,
    model,
    numbers,
    plain,
    process_panel,
)
from whyidle.monitor.sources.gpu import GpuFacts

HISTORY = 120
WIDE = 110
EVENTS_SHOWN = 5
# Columns taken by the frame of a panel.
FRAME = 4
# (title, metric, only on a wide terminal)
_COLUMNS: tuple[tuple[str, Metric, bool], ...] = (
    ("SM", m.GPU_SM_ACTIVITY, False),
    ("tensor", m.GPU_TENSOR_ACTIVITY, False),
    ("DRAM", m.GPU_DRAM_ACTIVITY, True),
    ("PCIe in", m.GPU_PCIE_RX, True),
    ("PCIe out", m.GPU_PCIE_TX, True),
    ("power", m.GPU_POWER, False),
    ("clock", m.GPU_SM_CLOCK, True),
    ("temp", m.GPU_TEMPERATURE, False),
)


class LiveView:
    """A screen that is redrawn at each tick."""

    def __init__(self, *, everything: bool, console: Console | None = None) -> None:
        self._everything = everything
        # A line that the caller wants to keep on the screen.
        self.note: str | None = None
        self._console = console or Console()
        self._live = Live(console=self._console, auto_refresh=False, screen=True)
        self._history: dict[tuple[str, Metric], deque[float | None]] = {}
        self._events: deque[tuple[str, plain.NewsLine]] = deque(maxlen=EVENTS_SHOWN)
        self._started = False

    def tick(self, snapshot: Snapshot) -> None:
        """Draw one tick."""
        self._remember(snapshot)
        if not self._started:
            self._live.start()
            self._started = True
        self._live.update(self.page(snapshot), refresh=True)

    def close(self) -> None:
        """Restore the terminal."""
        if self._started:
            self._live.stop()

    def _remember(self, snapshot: Snapshot) -> None:
        clock = numbers.duration(snapshot.elapsed)
        self._events.extend((clock, event) for event in plain.news(snapshot))
        for facts in snapshot.facts:
            reading = snapshot.gpus[facts.index].reading
            self._keep(facts.index, m.GPU_UTILISATION, reading)
        self._keep("", m.JOB_CPU, snapshot.job)
        self._keep("", m.JOB_STEPS, snapshot.job)

    def _keep(self, subject: str, metric: Metric, reading: Reading) -> None:
        kept = self._history.setdefault((subject, metric), deque(maxlen=HISTORY))
        kept.append(reading.get(metric))

    def page(self, snapshot: Snapshot) -> Group:
        """Return the whole screen."""
        parts: list[RenderableType] = [
            _head(snapshot),
            *self._time(snapshot),
            *self._faults(snapshot),
            self._gpus(snapshot),
            self._job(snapshot),
            *(
                [process_panel.panel(snapshot.members, self._console.width)]
                if snapshot.members
                else []
            ),
            *(_event(clock, event) for clock, event in self._events),
        ]
        if snapshot.trouble:
            parts.append(Text(f"! {snapshot.trouble}", style="bold yellow"))
        if self.note:
            parts.append(Text(self.note, overflow="fold"))
        return Group(*parts, _foot(snapshot))

    def _time(self, snapshot: Snapshot) -> list[Panel]:
        """Return the pace of the steps and where the time goes, once anything is known."""
        now = snapshot.estimate()
        inside_it = any(x.method not in {None, OUTSIDE} for x in snapshot.members)
        if not now.slices and not inside_it:
            return []
        history = list(self._history[("", m.JOB_STEPS)])
        lines = [*live_budget.screen(snapshot, now, self._console.width - FRAME, history)]
        if reads := inside.read_line(snapshot):
            lines.append(Text(reads, style="dim"))
        return [Panel(Group(*lines), title=live_budget.title(now), title_align="left")]

    def _faults(self, snapshot: Snapshot) -> list[Panel]:
        """Return what is wrong, once it is certain."""
        lines = finding_lines.lines(
            snapshot.verdict, snapshot.findings, self._console.width - FRAME
        )
        return [Panel(Group(*lines), title="what to change", title_align="left")] if lines else []

    def _gpus(self, snapshot: Snapshot) -> Panel:
        shown = snapshot.shown(everything=self._everything)
        if not shown:
            text = Text(snapshot.gpu_problem or f"None: {snapshot.owned.how}", style="yellow")
            return Panel(text, title="GPU", title_align="left")
        wide = self._console.width >= WIDE
        columns = [c for c in _COLUMNS if wide or not c[2]]
        table = Table(box=None, padding=(0, 1), expand=True, pad_edge=False)
        table.add_column("GPU", no_wrap=True)
        table.add_column("utilisation", no_wrap=True, ratio=1)
        for title, _, _ in columns:
            table.add_column(title, justify="right", no_wrap=True)
        table.add_column("memory", justify="right", no_wrap=True)
        for facts in shown:
            reading = snapshot.gpus[facts.index].reading
            table.add_row(
                facts.index,
                self._use(facts, reading),
                *(numbers.of(reading, metric) for _, metric, _ in columns),
                _memory(reading),
            )
        lines: list[RenderableType] = [table, *_unknown(shown, snapshot)]
        lines += _others(shown, snapshot)
        how = "all" if self._everything else snapshot.owned.how
        name = f"GPU: {shown[0].name}"
        return Panel(Group(*lines), title=name, title_align="left", subtitle=f"shown: {how}")

    def _use(self, facts: GpuFacts, reading: Reading) -> Text:
        history = list(self._history[(facts.index, m.GPU_UTILISATION)])
        width = 40 if self._console.width >= WIDE else 12
        bars = numbers.sparkline(history[-width:], 1.0)
        return Text(f"{numbers.of(reading, m.GPU_UTILISATION):>5} ") + Text(bars, style="cyan")

    def _job(self, snapshot: Snapshot) -> Panel:
        job, host = snapshot.job, snapshot.host
        history = list(self._history[("", m.JOB_CPU)])[-24:]
        cores = host.get(m.HOST_CORES)
        bars = numbers.sparkline(history, max([cores or 1.0, *(h for h in history if h)]))
        rows = [
            Text(f"CPU {numbers.of(job, m.JOB_CPU)} of {numbers.show(cores, 'count')} cores ")
            + Text(bars, style="cyan")
            + f"  main thread {numbers.of(job, m.JOB_MAIN_THREAD)}",
            Text(
                f"memory {numbers.of(job, m.JOB_RSS)}  processes {numbers.of(job, m.JOB_PROCESSES)}"
                f"  threads {numbers.of(job, m.JOB_THREADS)}"
                f"  major faults {numbers.of(job, m.JOB_MAJOR_FAULTS)}"
            ),
            Text(
                f"disk read {numbers.of(job, m.JOB_DISK_READ)}"
                f" write {numbers.of(job, m.JOB_DISK_WRITE)}"
                f"  net in {numbers.of(job, m.JOB_NET_RX)} out {numbers.of(job, m.JOB_NET_TX)}"
            ),
        ]
        if job.get(m.JOB_CPU_LIMIT) is not None:
            rows.append(
                Text(
                    f"CPU limit {numbers.of(job, m.JOB_CPU_LIMIT)} cores,"
                    f" stopped by it {numbers.of(job, m.JOB_THROTTLED)} of the time"
                )
            )
        rows.append(
            Text(
                f"machine: CPU {numbers.of(host, m.HOST_CPU)}"
                f"  I/O wait {numbers.of(host, m.HOST_IOWAIT)}"
                f"  memory free {numbers.of(host, m.HOST_MEMORY_AVAILABLE)}"
                f" of {numbers.of(host, m.HOST_MEMORY_TOTAL)}",
                style="dim",
            )
        )
        return Panel(Group(*rows), title="job", title_align="left")


def _head(snapshot: Snapshot) -> Group:
    name = Text(plain.who(snapshot.identity), style="bold", overflow="ellipsis", no_wrap=True)
    pid = snapshot.identity.key.pid if snapshot.identity else "?"
    stopped = Text(f" {plain.stopped(snapshot)}", style="bold yellow")
    first = name + f"  pid {pid}  {numbers.duration(snapshot.elapsed)}" + stopped
    how = Text(inside.how(snapshot), style="dim", overflow="ellipsis", no_wrap=True)
    what = model.model(snapshot)
    return Group(first, how, *([Text(what, style="dim")] if what else []))


def _event(clock: str, event: plain.NewsLine) -> Text:
    return Text(f"{event.marked[:1]} {clock}  {event.text}", "yellow" if event.alarming else "dim")


def _memory(reading: Reading) -> str:
    used, total = reading.get(m.GPU_MEMORY_USED), reading.get(m.GPU_MEMORY_TOTAL)
    share = numbers.show(used / total if used is not None and total else None, "ratio")
    return f"{numbers.show(used, 'bytes')} of {numbers.show(total, 'bytes')} ({share})"


def _unknown(shown: list[GpuFacts], snapshot: Snapshot) -> list[Text]:
    """Say why the table has dashes, grouped by reason."""
    wanted = {m.GPU_UTILISATION, m.GPU_MEMORY_USED, *(c[1] for c in _COLUMNS)}
    unknown = (
        (metric, reason)
        for facts in shown
        for metric, reason in snapshot.gpus[facts.index].reading.unknown.items()
        if metric in wanted
    )
    return [Text(f"{numbers.DASH} {line}", style="dim") for line in by_reason(unknown)]


def _others(shown: list[GpuFacts], snapshot: Snapshot) -> list[Text]:
    """Return the other processes on these GPUs."""
    found = {
        (facts.index, pid)
        for facts in shown
        for pid in snapshot.gpus[facts.index].processes
        if pid not in snapshot.job_pids
    }
    if not snapshot.owned.sure or not found:
        return []
    said = ", ".join(f"pid {pid} on GPU {index}" for index, pid in sorted(found)[:4])
    return [Text(f"! not this job: {said}", style="yellow")]


def _foot(snapshot: Snapshot) -> Text:
    own = snapshot.monitor
    return Text(
        f"run {snapshot.run}  every {snapshot.period:g} s  monitor: "
        f"{numbers.of(own, m.SELF_CPU)} cores, {numbers.of(own, m.SELF_RSS)},"
        f" NVML {numbers.of(own, m.SELF_NVML)}  Ctrl-C ends",
        style="dim",
    )

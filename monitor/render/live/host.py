"""What the job takes of its machine, and what the machine does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.render import inside, numbers
from whyidle.monitor.render.live.history import History, Values
from whyidle.monitor.render.live.lines import LABEL, joined

BARS: Final = 12
# Traffic that is worth a word.
_TRAFFIC: Final[tuple[tuple[str, Metric], ...]] = (
    ("read", m.JOB_DISK_READ),
    ("write", m.JOB_DISK_WRITE),
    ("net in", m.JOB_NET_RX),
    ("net out", m.JOB_NET_TX),
)
LEAST_TRAFFIC: Final = 1e5


@dataclass(frozen=True, slots=True)
class Host:
    """The job on its machine."""

    job: Reading
    host: Reading
    cores: Values
    # Where the main thread is, where nothing above names that line.
    at: str | None


def of(snapshot: Snapshot, history: History, *, named: str) -> Host:
    """Return it; ``named`` is the line that the advice is about."""
    line = inside.top_line(snapshot)
    is_news = line is not None and line.split()[0] != named.split(" ", maxsplit=1)[0]
    return Host(snapshot.job, snapshot.host, history.of(m.JOB_CPU), line if is_news else None)


def lines(host: Host, width: int) -> list[Text]:
    """Return a line for the job, one for the machine, and one for where the main thread is."""
    shown = [
        joined([_label("job"), *_job(host)], width),
        joined([_label("machine"), *_machine(host.host)], width),
    ]
    if host.at is not None:
        shown.append(joined([_label("at"), host.at], width))
    return shown


def _label(name: str) -> Text:
    return Text(f"{name:<{LABEL - 2}}", "dim")


def _job(host: Host) -> Iterator[Text | str]:
    job = host.job
    cores = numbers.show(host.host.get(m.HOST_CORES), "count")
    cpu = Text(f"CPU {numbers.of(job, m.JOB_CPU)} of {cores} cores ")
    yield cpu.append(numbers.changes(host.cores, BARS), "cyan")
    yield f"memory {numbers.of(job, m.JOB_RSS)}"
    if throttled := job.get(m.JOB_THROTTLED):
        yield Text(f"stopped by its CPU limit {throttled:.0%} of the time", "yellow")
    if (processes := job.get(m.JOB_PROCESSES)) and processes > 1:
        yield f"{processes:.0f} processes"
    for name, metric in _TRAFFIC:
        if (job.get(metric) or 0.0) >= LEAST_TRAFFIC:
            yield f"{name} {numbers.of(job, metric)}"
    yield f"{numbers.of(job, m.JOB_THREADS)} threads"


def _machine(host: Reading) -> Iterator[str]:
    yield f"CPU {numbers.of(host, m.HOST_CPU)}"
    free, total = (host.get(x) for x in (m.HOST_MEMORY_AVAILABLE, m.HOST_MEMORY_TOTAL))
    yield f"memory {numbers.out_of(free, total)} free"
    if host.get(m.HOST_IOWAIT):
        yield f"I/O wait {numbers.of(host, m.HOST_IOWAIT)}"

"""What the exporter knows, pushed by OTLP: hw.* by the semantic conventions, and whyidle.*.

Each job is a resource of its own, beside the one of the host. Names keep their units, so that what
Prometheus or VictoriaMetrics make of them is what a scrape gives.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final, Literal, NamedTuple

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.errors import Problem, UsageProblem
from whyidle.monitor.core.installed import to_install
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.export import scrape
from whyidle.monitor.export.collector import OTLP, Collector, Look
from whyidle.monitor.export.exposition import Family, Labels, valid
from whyidle.monitor.export.gpus import GpuTime
from whyidle.monitor.export.jobs import Job
from whyidle.monitor.export.remote_write import shown, web_address
from whyidle.monitor.sources.gpu import GpuFacts, GpuReading

EVERY_SECONDS: Final = 15.0
# As the SDK calls its own.
INTERVAL: Final = "OTEL_METRIC_EXPORT_INTERVAL"
PATH: Final = "/v1/metrics"
# Of what a name ends with, in UCUM.
UNITS: Final = {
    "_bytes_per_second": "By/s", "_per_second": "1/s", "_seconds": "s", "_bytes": "By",
    "_joules": "J", "_watts": "W", "_celsius": "Cel", "_hertz": "Hz", "_ratio": "1",
}  # fmt: skip
STATES: Final = ("ok", "degraded", "predicted_failure", "failed")
# In what the SDK logs of an attempt that it makes again.
_CAUSE: Final = re.compile(r"\[Errno -?\d+\] (\w[\w ,-]*)")
Kind = Literal["gauge", "counter", "updown"]


class Point(NamedTuple):
    """One value of a GPU's, under a name of the conventions."""

    name: str
    kind: Kind
    unit: str
    help: str
    value: float
    attributes: Mapping[str, str]


class Pusher:
    """Sends them every few seconds on a thread of its own; whatever fails costs a sentence."""

    def __init__(self, collector: Collector, host: str, url: str) -> None:
        self._collector = collector
        self._host = host
        self._sdk = _Sdk()
        self._began_ns = time.time_ns()
        parts = web_address(url)
        if parts is None:
            raise UsageProblem(
                f"'{url.rpartition('@')[2].partition('?')[0]}' is no URL of a receiver.",
                "For instance: --otlp http://localhost:4318",
            )
        self._url = url if parts.path.strip("/") else url.rstrip("/") + PATH
        with _heard():
            self._exporter = self._sdk.exporter(endpoint=self._url)
        self._closing = threading.Event()

    def start(self) -> None:
        """Send from now on, until closed."""
        threading.Thread(target=self._loop, name="whyidle-otlp", daemon=True).start()

    def close(self) -> None:
        """Send no more; one that waits for an answer is let go."""
        self._closing.set()
        with _heard():
            self._exporter.shutdown()

    def push(self) -> None:
        """Send what was seen last; raises a sentence where nobody takes it."""
        with _heard() as said:
            result = self._exporter.export(self.data())
        if result.name != "SUCCESS" and not self._closing.is_set():
            raise Problem(
                f"The metrics could not be sent to {shown(self._url)}{_why(said, self._url)}.",
                "Is it the URL of an OTLP receiver over HTTP? A collector's is"
                " http://HOST:4318, VictoriaMetrics' http://HOST:8428/opentelemetry/v1/metrics",
            )

    def data(self) -> Any:
        """Return all of this moment, as the SDK has it."""
        look, now_ns = self._collector.last, time.time_ns()
        make = _Maker(self._sdk, self._began_ns, now_ns)
        host = {"host.name": self._host, "service.version": scrape.version_here()}
        if "OTEL_SERVICE_NAME" not in os.environ:
            host["service.name"] = "whyidle"
        # The SDK's own is a new one each time, and each series would be.
        if "service.instance.id" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
            host["service.instance.id"] = self._host
        resource = self._sdk.resource.create(host)
        of_host, of_jobs = _by_job(scrape.families(self._collector))
        points = list(hardware(look, self._collector.gpu_times))
        found = [make.of(resource, [*make.of_points(points), *map(make.of_family, of_host)])]
        for job in look.jobs:
            if families := of_jobs.get(job.name):
                mine = resource.merge(self._sdk.resource(attributes_of(job)))
                found.append(make.of(mine, map(make.of_family, families)))
        return self._sdk.metrics.MetricsData(found)

    def _loop(self) -> None:
        every = _interval()
        while not self._closing.wait(every):
            self._collector.attempt(OTLP, self.push)


class _Sdk:
    """OpenTelemetry's SDK, which is heavy, and loaded only here."""

    def __init__(self) -> None:
        try:
            self.metrics = import_module("opentelemetry.sdk.metrics.export")
            self.resource = import_module("opentelemetry.sdk.resources").Resource
            self.scope = import_module("opentelemetry.sdk.util.instrumentation")
            name = "opentelemetry.exporter.otlp.proto.http.metric_exporter"
            self.exporter = import_module(name).OTLPMetricExporter
        except ImportError:
            raise UsageProblem(
                "OTLP needs the OpenTelemetry SDK, which is not installed.",
                f"Install it: {to_install('otlp')}",
            ) from None


class _Maker:
    """Makes metrics of the SDK's from families and points."""

    def __init__(self, sdk: _Sdk, began_ns: int, now_ns: int) -> None:
        self._sdk, self._began, self._now = sdk, began_ns, now_ns
        self._total = sdk.metrics.AggregationTemporality.CUMULATIVE

    def of(self, resource: Any, metrics: Iterable[Any]) -> Any:
        scope = self._sdk.scope.InstrumentationScope("whyidle", scrape.version_here())
        scoped = self._sdk.metrics.ScopeMetrics(scope, list(metrics), "")
        return self._sdk.metrics.ResourceMetrics(resource, [scoped], "")

    def of_points(self, points: Iterable[Point]) -> Iterator[Any]:
        named: dict[str, list[Point]] = {}
        for each in points:
            named.setdefault(each.name, []).append(each)
        for name, some in named.items():
            numbers = [self._number(each.attributes, each.value) for each in some]
            first = some[0]
            data = self._data(first.kind, numbers)
            yield self._sdk.metrics.Metric(name, first.help, first.unit, data)

    def of_family(self, family: Family) -> Any:
        if family.kind == "histogram":
            data = self._histogram(family)
        else:
            numbers = [self._number(_clean(labels), value) for _, labels, value in family.samples]
            data = self._data(family.kind, numbers)
        name = name_of(family)
        return self._sdk.metrics.Metric(name, family.help, unit_of(family.name), data)

    def _number(self, attributes: Mapping[str, str], value: float) -> Any:
        point = self._sdk.metrics.NumberDataPoint
        return point(dict(attributes), self._began, self._now, float(value))

    def _data(self, kind: str, numbers: list[Any]) -> Any:
        if kind == "gauge":
            return self._sdk.metrics.Gauge(numbers)
        return self._sdk.metrics.Sum(numbers, self._total, kind == "counter")

    def _histogram(self, family: Family) -> Any:
        """Its buckets count what all below them do, too: there, each for itself."""
        series: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
        for suffix, labels, value in family.samples:
            own = tuple((name, text) for name, text in labels.items() if name != "le")
            one = series.setdefault(own, {"_bucket": []})
            if suffix == "_bucket":
                one[suffix].append((float(labels["le"]), int(value)))
            else:
                one[suffix] = value
        points = []
        for own, one in series.items():
            bounds, counts = zip(*one["_bucket"], strict=True)
            each = [count - below for below, count in zip((0, *counts), counts, strict=False)]
            points.append(self._sdk.metrics.HistogramDataPoint(
                dict(own), self._began, self._now, int(one["_count"]), one["_sum"], each,
                [*bounds[:-1]], None, None,
            ))  # fmt: skip
        return self._sdk.metrics.Histogram(points, self._total)


def name_of(family: Family) -> str:
    """Return whyidle.gpu.idle_seconds of whyidle_gpu_idle_seconds_total."""
    name = family.name.removesuffix("_total") if family.kind == "counter" else family.name
    return name.replace("_", ".", 2)


def unit_of(name: str) -> str:
    """Return the unit that a name of ours ends with; empty for what is only counted."""
    name = name.removesuffix("_total")
    return next((unit for suffix, unit in UNITS.items() if name.endswith(suffix)), "")


def attributes_of(job: Job) -> dict[str, str]:
    """Return what the resource of a job is called, as far as it is known."""
    owner, who = job.owner, job.identity
    named = {
        "process.pid": str(job.key.pid),
        "process.owner": who.user if who else "",
        "k8s.namespace.name": owner.namespace,
        "k8s.pod.name": owner.pod,
        "k8s.pod.uid": owner.pod_uid,
        "k8s.container.name": owner.container,
        "container.id": owner.container_id,
        "slurm.job.id": owner.slurm_job,
        "slurm.step.id": owner.slurm_step,
        "whyidle.job.rank": str(who.rank.rank) if who and who.rank else "",
        "whyidle.job.key": job.name,
    }
    return _clean(named)


def hardware(look: Look, times: Mapping[str, GpuTime]) -> Iterator[Point]:
    """Return what the conventions name of each GPU; what is not known is left out."""
    known = {gpu.index: gpu for gpu in look.facts}
    for index, gpu in known.items():
        read = look.readings.get(index)
        if read is not None:
            parent = known.get(gpu.mig_of or "")
            yield from _of_gpu(_device(gpu, parent), read, times.get(index))


def _device(gpu: GpuFacts, parent: GpuFacts | None) -> dict[str, str]:
    return _clean({
        "hw.id": gpu.uuid or gpu.index,
        "hw.type": "gpu",
        "hw.name": f"GPU {gpu.index}",
        "hw.model": gpu.name,
        "hw.vendor": "NVIDIA",
        "hw.driver_version": gpu.driver or "",
        "hw.parent": (parent and parent.uuid) or "",
    })  # fmt: skip


def _of_gpu(device: Mapping[str, str], read: GpuReading, spent: GpuTime | None) -> Iterator[Point]:
    for name, kind, unit, help_, value, more in _values(read, spent):
        if value is not None:
            yield Point(name, kind, unit, help_, value, {**device, **more})
    if state := _state(read):
        for each in STATES:
            yield Point("hw.status", "updown", "1", "1: it is in this state.",
                        float(each == state), {**device, "hw.state": each})  # fmt: skip


_Row = tuple[str, Kind, str, str, float | None, Mapping[str, str]]


def _values(read: GpuReading, spent: GpuTime | None) -> Iterator[_Row]:
    def of(metric: Metric) -> float | None:
        return read.reading.values.get(metric)

    use, life = "hw.gpu.utilization", read.lifetime
    busy = "Share of time in which it was in use."
    used, total = of(m.GPU_MEMORY_USED), of(m.GPU_MEMORY_TOTAL)
    yield use, "gauge", "1", busy, of(m.GPU_UTILISATION), {"hw.gpu.task": "general"}
    for task in ("encoder", "decoder"):
        percent = None if life is None else getattr(life, task)
        share = None if percent is None else percent / 100
        yield use, "gauge", "1", busy, share, {"hw.gpu.task": task}
    yield "hw.gpu.memory.usage", "updown", "By", "Device memory in use.", used, {}
    yield "hw.gpu.memory.limit", "updown", "By", "Device memory present.", total, {}
    share = used / total if total and used is not None else None
    yield "hw.gpu.memory.utilization", "gauge", "1", "Share of it in use.", share, {}
    yield "hw.power", "gauge", "W", "Power that is drawn.", of(m.GPU_POWER), {}
    yield "hw.energy", "counter", "J", "Energy since we watch.", of(m.GPU_ENERGY), {}
    for place, metric in (("gpu", m.GPU_TEMPERATURE), ("memory", m.GPU_MEMORY_TEMPERATURE)):
        where = {"hw.sensor_location": place}
        yield "hw.temperature", "gauge", "Cel", "Temperature.", of(metric), where
    if spent is not None:
        xids = {"error.type": "xid"}
        yield "hw.errors", "counter", "{error}", "Errors since we watch.", spent.xids, xids
        for way, sent in spent.pcie.items():
            moved = {"network.io.direction": way}
            yield "hw.gpu.io", "counter", "By", "Moved over PCIe since we watch.", sent, moved


def _state(read: GpuReading) -> str | None:
    if read.lost:
        return "failed"
    if not read.reading.values:
        return None
    if read.lifetime is not None and read.lifetime.rows_failed:
        return "predicted_failure"
    slowed = (m.GPU_THROTTLED_HEAT, m.GPU_THROTTLED_HARDWARE_HEAT, m.GPU_THROTTLED_BRAKE)
    return "degraded" if any(read.reading.values.get(each) for each in slowed) else "ok"


def _by_job(families: Iterable[Family]) -> tuple[list[Family], dict[str, list[Family]]]:
    """Part the series of jobs from the rest."""
    rest: list[Family] = []
    jobs: dict[str, list[Family]] = {}
    for family in families:
        parts: dict[str, Family] = {}
        for suffix, labels, value in family.samples:
            name = labels.get("job_key", "")
            part = parts.setdefault(name, Family(family.name, family.kind, family.help))
            part.samples.append((suffix, labels, value))
        for name, part in parts.items():
            (jobs.setdefault(name, []) if name else rest).append(part)
    return rest, jobs


def _clean(labels: Labels) -> dict[str, str]:
    return {name: valid(value) for name, value in labels.items() if value}


def _interval() -> float:
    given = os.environ.get(INTERVAL, "")
    return max(1.0, int(given) / 1000) if given.isdecimal() else EVERY_SECONDS


def _why(said: list[str], url: str) -> str:
    """Return what the system said, or else the last that the SDK did: that it gave up."""
    causes = [found[1] for text in said if (found := _CAUSE.search(text))]
    last = (causes or said)[-1:]
    return "".join(f": {text.rstrip('.')}" for text in last).replace(url, shown(url))


@contextmanager
def _heard() -> Iterator[list[str]]:
    """Take what the SDK logs: it may not go to standard error each few seconds."""
    said: list[str] = []
    logger = logging.getLogger("opentelemetry")
    handler = _Ear(said)
    logger.addHandler(handler)
    before, logger.propagate = logger.propagate, False
    try:
        yield said
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


class _Ear(logging.Handler):
    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it as one line."""
        self._said.append(" ".join(record.getMessage().split())[:300])

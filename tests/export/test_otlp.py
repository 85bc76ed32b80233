"""What goes out by OTLP, as the protocol's own classes read it; and a real receiver."""

from __future__ import annotations

import gzip
import os
import re
import time
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Monitor, start_job
from tests.export.exporter import exporter, free_port, samples, values
from tests.export.receiver import CUT, receiver
from tests.export.servers import OTLP_RECEIVER, victoria_metrics
from tests.export.test_scrape import key_of, record
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.errors import Exit
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.export import families, otlp
from whyidle.monitor.export.collector import Collector, Look
from whyidle.monitor.export.exposition import Family
from whyidle.monitor.export.gpus import GpuTime
from whyidle.monitor.export.jobs import Job, Owner
from whyidle.monitor.export.otlp import Pusher, hardware, name_of, unit_of
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.sources.gpu import GpuFacts, GpuReading
from whyidle.monitor.sources.lifetime import Lifetime
from whyidle.monitor.store import Writer

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
SERVICE: Any = import_module("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
Tape = Callable[..., dict[str, str]]
# How Prometheus and VictoriaMetrics (with names by its rules) write a unit behind a name.
WORDS = {"s": "seconds", "By": "bytes", "J": "joules", "W": "watts", "Cel": "celsius",
         "Hz": "hertz", "1": "ratio", "By/s": "bytes_per_second", "1/s": "per_second",
         "": ""}  # fmt: skip


def decoded(body: bytes) -> list[Any]:
    request = SERVICE.ExportMetricsServiceRequest()
    request.ParseFromString(body)
    return list(request.resource_metrics)


def attributes(of: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in of.attributes}


def points(resources: list[Any], name: str, **wanted: str) -> list[tuple[dict[str, str], float]]:
    found = []
    for resource in resources:
        for metric in (x for scope in resource.scope_metrics for x in scope.metrics):
            if metric.name == name:
                data = getattr(metric, metric.WhichOneof("data"))
                found += [(attributes(x), x.as_double) for x in data.data_points]
    wanted = {key.replace("__", "."): value for key, value in wanted.items()}
    return [(named, value) for named, value in found if wanted.items() <= named.items()]


def test_one_push_has_the_gpu_by_the_conventions_and_ours(monitor: Monitor, tape: Tape) -> None:
    with receiver() as got:
        env = tape("one_gpu", TRAINER=os.getpid())
        env |= {"OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=research",
                "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
                "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=lab"}  # fmt: skip
        done = monitor("export", "--once", "--otlp", got.url, "--host", "node7", env=env)
        assert (done.returncode, done.stderr) == (0, "")
        # It is sent beside the page, not instead of it.
        assert values(done.stdout, "whyidle_exporter_problem", part="otlp") == [0]
    assert got.paths == ["/v1/metrics"]
    assert got.headers[0]["x-tenant"] == "research"
    resources = decoded(gzip.decompress(got.bodies[0]))
    assert attributes(resources[0].resource)["host.name"] == "node7"
    assert attributes(resources[0].resource)["service.name"] == "whyidle"
    assert attributes(resources[0].resource)["deployment.environment.name"] == "lab"
    ((device, use),) = points(resources, "hw.gpu.utilization", hw__gpu__task="general")
    assert use == pytest.approx(0.97, abs=0.05)
    assert device == {
        "hw.id": "GPU-00000000-0000-4000-8000-000000000000", "hw.type": "gpu", "hw.name": "GPU 0",
        "hw.model": "NVIDIA H200", "hw.vendor": "NVIDIA", "hw.driver_version": "580.82.07",
        "hw.gpu.task": "general",
    }  # fmt: skip
    for name, more, value in (
        ("hw.power", {}, 612), ("hw.temperature", {"hw__sensor_location": "gpu"}, 58),
        ("hw.temperature", {"hw__sensor_location": "memory"}, 61),
        ("hw.status", {"hw__state": "ok"}, 1), ("hw.status", {"hw__state": "failed"}, 0),
        ("hw.gpu.memory.usage", {}, 58368 * 2**20), ("hw.errors", {"error__type": "xid"}, 0),
        ("whyidle.gpu.power_limit_watts", {}, 700), ("whyidle.gpu.processes", {}, 1),
    ):  # fmt: skip
        ((_, found),) = points(resources, name, **more)
        assert found == pytest.approx(value, rel=0.05), name
    # One of the host, one of the job on it, which is this test.
    assert len(resources) == 2
    assert attributes(resources[1].resource)["process.pid"] == str(os.getpid())


def test_names_become_those_of_a_scrape() -> None:
    ours = [each.family() for each in vars(families).values() if isinstance(each, families.Name)]
    known = (*families.OF_GPU, *families.OF_JOB, *families.OF_MONITOR)
    ours += [families.of_metric(metric) for metric in known]
    for family in ours:
        name, word = name_of(family).replace(".", "_"), WORDS[unit_of(family.name)]
        written = name if not word or name.endswith(word) else f"{name}_{word}"
        written += "_total" if family.kind == "counter" else ""
        assert written == family.name


def test_each_job_is_a_resource(state: Path) -> None:
    collector = Collector(state / DATABASE, print)
    owner = Owner("41", "0", "train-0", "research", "main", "c" * 64, "uid-1", is_in_pod=True)
    in_pod, plain = Job(ProcessKey(7, 70), {"0": 1e9}, owner=owner), Job(ProcessKey(8, 80))
    collector.last = Look(0.0, jobs=(in_pod, plain))
    with receiver() as got:
        pusher = Pusher(collector, "node7", got.url)
        pusher.push()
        pusher.close()
    host, first, second = decoded(got.bodies[0])
    assert not any("job" in x.name for scope in host.scope_metrics for x in scope.metrics
                   if x.name != "whyidle.exporter.jobs_left_out")  # fmt: skip
    named = attributes(first.resource)
    assert named.items() >= {
        "host.name": "node7", "k8s.pod.name": "train-0", "k8s.namespace.name": "research",
        "k8s.container.name": "main", "k8s.pod.uid": "uid-1", "container.id": "c" * 64,
        "slurm.job.id": "41", "slurm.step.id": "0", "whyidle.job.key": "7-70",
    }.items()  # fmt: skip
    # What is not known is left out.
    assert not any(key.startswith(("k8s.", "slurm.")) for key in attributes(second.resource))
    assert [labels["job_key"] for labels, _ in points([first], "whyidle.job.info")] == ["7-70"]


def test_a_histogram_counts_each_bucket_for_itself(state: Path) -> None:
    pusher = Pusher(Collector(state / DATABASE, print), "node7", "http://127.0.0.1:9")
    family = Family("whyidle_job_step_seconds", "histogram", "Steps.")
    for bound, count in (("0.1", 2), ("0.5", 7), ("+Inf", 10)):
        family.add(count, {"job_key": "1-2", "le": bound}, "_bucket")
    family.add(4.5, {"job_key": "1-2"}, "_sum")
    family.add(10, {"job_key": "1-2"}, "_count")
    metric = otlp._Maker(pusher._sdk, 1, 2).of_family(family)
    (point,) = metric.data.data_points
    assert (point.bucket_counts, point.explicit_bounds) == ([2, 5, 3], [0.1, 0.5])
    assert (point.count, point.sum, point.attributes) == (10, 4.5, {"job_key": "1-2"})
    pusher.close()


def test_the_state_of_a_gpu() -> None:
    def state(read: GpuReading) -> set[str]:
        look = Look(0.0, facts=(GpuFacts("0", "H200", uuid="GPU-0"),), readings={"0": read})
        found = [x for x in hardware(look, {}) if x.name == "hw.status"]
        assert len(found) in {0, 4}
        return {x.attributes["hw.state"] for x in found if x.value}

    well = {m.GPU_UTILISATION: 0.5}
    assert state(GpuReading(Reading({**well, m.GPU_THROTTLED_HEAT: 0.0}))) == {"ok"}
    assert state(GpuReading(Reading({**well, m.GPU_THROTTLED_HEAT: 0.2}))) == {"degraded"}
    failing = GpuReading(Reading(well), lifetime=Lifetime(rows_failed=1.0))
    assert state(failing) == {"predicted_failure"}
    assert state(GpuReading(lost=True)) == {"failed"}
    assert state(GpuReading()) == set()


def test_bytes_over_pcie_add_up() -> None:
    time, read = GpuTime(), GpuReading(Reading({m.GPU_PCIE_TX: 100.0}))
    time.take(read, 2.0)
    time.take(read, 3.0)
    assert time.pcie == {"transmit": 500.0, "receive": 0.0}


def test_a_receiver_that_is_down_costs_a_sentence_and_no_scrape(tape: Tape, state: Path) -> None:
    port = free_port()
    env = tape("one_gpu", TRAINER=os.getpid())
    env |= {"OTEL_METRIC_EXPORT_INTERVAL": "1000", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    options = ("--otlp", f"http://user:secret@127.0.0.1:{port}/v1/metrics")
    with exporter(env, state, *options) as running:
        running.until(lambda page: values(page, "whyidle_exporter_problem", part="otlp") == [1])
        with receiver(CUT, 503, port=port) as got:
            running.until(lambda page: values(page, "whyidle_exporter_problem", part="otlp") == [0])
            assert points(decoded(got.bodies[-1]), "hw.power")
        running.process.terminate()
        assert running.process.stderr is not None
        said = running.process.stderr.read()
    assert 1 <= said.count("could not be sent to") <= 4
    assert "secret" not in said
    assert "otlp: works again." in said
    assert "Traceback" not in said


def test_a_wrong_url_is_said(monitor: Monitor, tape: Tape) -> None:
    with receiver(404, 404, 404) as got:
        done = monitor("export", "--once", "--otlp", f"{got.url}/nothing", env=tape("no_driver"))
    assert done.returncode == Exit.GONE
    assert "could not be sent" in done.stderr
    assert "404" in done.stderr


@pytest.mark.parametrize("url", ["http://[::1", "http://u:s3cret@h:abc", "ftp://u:s3cret@h?s3cret"])
def test_what_is_no_url_is_said_without_its_password(monitor: Monitor, url: str) -> None:
    done = monitor("export", "--once", "--otlp", url)
    assert done.returncode == Exit.USAGE
    assert "is no URL of a receiver.\n  For instance: --otlp http://" in done.stderr
    assert "s3cret" not in done.stderr


def test_one_scrape_is_printed_whatever_becomes_of_the_receiver(
    monitor: Monitor, tape: Tape
) -> None:
    env = tape("one_gpu", TRAINER=os.getpid()) | {"OTEL_EXPORTER_OTLP_TIMEOUT": "2"}
    url = f"http://127.0.0.1:{free_port()}"
    done = monitor("export", "--once", "--otlp", url, env=env)
    assert done.returncode == Exit.GONE
    # The reason, and not that the SDK gave up.
    assert f"could not be sent to {url}/v1/metrics: Connection refused." in done.stderr
    assert values(done.stdout, "whyidle_gpu_answers") == [1]
    assert values(done.stdout, "whyidle_exporter_problem", part="otlp") == [1]


# What a receiver makes of resources; the rest of a series is as a scrape has it.
OF_RESOURCES = re.compile(
    r"__name__|(host|service|telemetry|process|slurm)_.+|whyidle_job_(key|rank)"
)


def as_scraped(labels: dict[str, str]) -> dict[str, str]:
    """Return what a scrape has of it, too; a bound is a number, however it is written."""
    kept = {k: v for k, v in labels.items() if v and not OF_RESOURCES.fullmatch(k)}
    return kept | ({"le": str(float(kept["le"]))} if "le" in kept else {})


def test_a_real_receiver_has_what_a_scrape_gives(tape: Tape, state: Path, tmp_path: Path) -> None:
    """VictoriaMetrics' own endpoint has each series of the page, and whose a job is."""
    ours = '{__name__=~"whyidle_.+"}'
    slurm = {**os.environ, "SLURM_JOB_ID": "41", "SLURM_STEP_ID": "0"}
    naming = "-opentelemetry.usePrometheusNaming"
    with (
        victoria_metrics(tmp_path / "vm", naming, program=OTLP_RECEIVER) as server,
        start_job(env=slurm) as job,
        closing(Writer.open(state / DATABASE)) as writer,
    ):
        record(writer, key_of(job.pid))
        env = tape("eight_gpus", TRAINER=job.pid) | {otlp.INTERVAL: "1000"}
        sends = ("--otlp", f"{server.url}/opentelemetry/v1/metrics", "--host", "node7")
        with exporter(env, state, *sends) as running:
            # Rates and shares need two looks.
            server.until("whyidle_gpu_fp16_activity_ratio", 8)
            text = running.until(lambda page: "whyidle_job_step_seconds_count" in page)
            page = [each for each in samples(text) if each.name.startswith("whyidle_")]
            server.until(f"timestamp(whyidle_build_info) > {time.time() + 2}", 1, 60)
            stored = [(one["metric"], float(one["value"][1])) for one in server.ask(ours)]
            (power,) = server.ask('hw_power_watts{hw_name="GPU 0"}')
        job.kill()
    found = {(x["__name__"], *sorted(as_scraped(x).items())): value for x, value in stored}
    assert len(found) == len(stored)
    scraped = {(x.name, *sorted(as_scraped(x.labels).items())): x.value for x in page}
    assert scraped.keys() == found.keys()
    assert all(found[each] >= scraped[each] for each in found if each[0].endswith("_total"))
    for name in ("whyidle_gpu_memory_total_bytes", "whyidle_job_step_seconds_bucket"):
        same = [each for each in found if each[0] == name]
        assert len(same) >= 8
        assert [found[each] for each in same] == [scraped[each] for each in same]
    (info,) = (labels for labels, _ in stored if labels["__name__"] == "whyidle_job_info")
    assert info.items() >= {
        "host_name": "node7", "service_instance_id": "node7", "slurm_job_id": "41",
        "slurm_step_id": "0", "process_pid": str(job.pid),
    }.items()  # fmt: skip
    assert power["metric"]["hw_id"] == "GPU-00000000-0000-4000-8000-000000000000"

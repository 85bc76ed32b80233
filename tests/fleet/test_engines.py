"""Real servers: they scrape the exporter, run the rules, alert, and say the same of a fleet."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from tests.conftest import Monitor, start_job
from tests.export.exporter import exporter
from tests.export.servers import (
    MetricsServer,
    alertmanager,
    prometheus,
    tool,
    victoria_metrics,
    vmalert,
)  # fmt: skip
from tests.export.test_scrape import key_of, record
from tests.fleet.history import PRICE, WATTS, Fleet, Stored
from whyidle.monitor.core.contracts.fleet import FleetJson
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.export import families as f
from whyidle.monitor.export.fleet_files import CONFIG, RULES, TARGETS
from whyidle.monitor.fleet import answer, grafana
from whyidle.monitor.fleet.prometheus import URL, Prometheus
from whyidle.monitor.fleet.queries import RULES_RUN, Source, filled
from whyidle.monitor.store import Writer

Tape = Callable[..., dict[str, str]]
HOURS = 2
# A sum of what was kept each five minutes has one more or one less at its ends.
ALIKE = 0.05


def ask(server: MetricsServer, seconds: int, source: Source | None = None) -> FleetJson:
    return answer.ask(Prometheus.here(server.url), seconds, source=source)


def assert_alike(one: object, other: object, within: float, path: str = "") -> None:
    """Two answers have the same rows, and figures that differ by less than that."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        assert one.keys() == other.keys(), path
        for key in one:
            assert_alike(one[key], other[key], within, f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list):
        assert len(one) == len(other), path
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_alike(a, b, within, f"{path}[{i}]")
    elif isinstance(one, float) and isinstance(other, float):
        assert one == pytest.approx(other, rel=within, abs=0.01), path
    else:
        assert one == other, path


def figures(found: FleetJson) -> dict[str, Any]:
    """Return all that two servers must agree on."""
    but = {"server", "now_ms", "clock_ahead_s", "trend"}
    return {key: value for key, value in to_builtins(found).items() if key not in but}


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return Fleet(hosts=6, gpus=2, end=int(time.time()), seconds=3 * 3600, counters=True)


def more(fleet: Fleet) -> Iterator[Stored]:
    """An alert, and a host that vanished an hour ago."""
    start = fleet.end - 600
    firing = {"alertname": "WhyidleGpuLost", "severity": "critical", "alertstate": "firing",
              "instance": "node1:9400", "gpu": "1"}  # fmt: skip
    yield Stored("ALERTS", firing, start, 15, [1.0] * 41)
    gone = {"instance": "node77:9400", "job": "whyidle", "version": "1"}
    yield Stored(f.BUILD.name, gone, fleet.end - 7200, 15, [1.0] * 240)


@pytest.fixture(scope="module")
def engines(
    fleet: Fleet, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, MetricsServer]]:
    """Both, with the same three hours of a fleet."""
    folder = tmp_path_factory.mktemp("engines")
    stored = sorted([*fleet.series(), *more(fleet)], key=lambda one: one.name)
    with (folder / "history").open("w") as out:
        for series in stored:
            out.writelines(series.openmetrics())
        out.write("# EOF\n")
    blocks = ("tsdb", "create-blocks-from", "openmetrics", folder / "history", folder / "prom")
    subprocess.run([tool("promtool"), *map(str, blocks)], check=True, capture_output=True)
    (folder / "empty.yml").write_text("{}\n")
    with ExitStack() as running:
        vm = running.enter_context(victoria_metrics(folder / "vm"))
        body = "".join(series.victoria() for series in stored).encode()
        urllib.request.urlopen(f"{vm.url}/api/v1/import", data=body, timeout=60).close()
        urllib.request.urlopen(f"{vm.url}/internal/force_flush", timeout=60).close()
        prom = running.enter_context(prometheus(folder / "empty.yml", folder / "prom"))
        for server in (vm, prom):
            server.until(f"count({f.BUILD.name})", 1)
        yield {"prometheus": prom, "victoria-metrics": vm}


@pytest.mark.parametrize("source", ["rules", "counters"])
def test_both_servers_say_the_same_and_it_is_so(
    engines: dict[str, MetricsServer], fleet: Fleet, source: Source
) -> None:
    found = {name: ask(server, HOURS * 3600, source) for name, server in engines.items()}
    one, other = found["prometheus"], found["victoria-metrics"]
    assert one.unknown == other.unknown == {}
    assert_alike(figures(one), figures(other), ALIKE)
    hosts = range(fleet.hosts)
    lost = {f"node{i}:9400": fleet.lost(i) * fleet.gpus * HOURS for i in hosts}
    for each in found.values():
        rows = {row.labels["instance"]: row for row in each.lost["host"]}
        assert {host: row.gpu_hours for host, row in rows.items()} == pytest.approx(lost, rel=ALIKE)
        for i in hosts:
            assert rows[f"node{i}:9400"].share == pytest.approx(fleet.lost(i), rel=ALIKE)
        assert each.lost_gpu_hours == pytest.approx(sum(lost.values()), rel=ALIKE)
        worst = each.lost["job"][0]
        assert worst.causes
        assert worst.causes["input"] == pytest.approx(0.8 * worst.gpu_hours, rel=0.01)
        assert (worst.run, worst.framework) == ("7", "torch")
        assert (each.hosts, each.gpus, each.gpus_held_idle) == (6, 12, 2)
        assert [x.host for x in each.gone] == ["node77:9400"]
        assert each.gone[0].last_seen_ms / 1000 == pytest.approx(fleet.end - 3600, abs=700)
        assert [x.labels["instance"] for x in each.held_idle] == ["node3:9400"]
        assert [x.alert for x in each.alerts] == ["WhyidleGpuLost"]
        if source == "rules":
            held = each.held["true"]
            assert held.kwh == pytest.approx(sum(lost.values()) * WATTS / 1000, rel=ALIKE)
            assert held.money == {"EUR": pytest.approx(sum(lost.values()) * PRICE, rel=ALIKE)}
            known = [x for x in each.trend.idle_share if x is not None]
            mean = sum(fleet.lost(i) for i in hosts) / fleet.hosts
            assert known == pytest.approx([mean] * len(known), rel=0.01)
            assert len(known) > 0.9 * len(each.trend.times_ms)


_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def test_the_page_is_the_same_from_both(
    engines: dict[str, MetricsServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = pytest.importorskip("tests.dashboard.pages.test_fleet")
    shown = []
    for server in engines.values():
        monkeypatch.setenv(URL, server.url)
        words = app.page(tmp_path, since="6h").words.replace(server.url, "")
        for said in ("answer now; 1 no longer", "node77:9400", "critical GpuLost", "By host"):
            assert said in words, words
        shown.append(re.sub(r"\d\d:\d\d", "", words))
    one, other = shown
    assert _NUMBER.sub("", one) == _NUMBER.sub("", other)
    figures = [[float(x.replace(",", "")) for x in _NUMBER.findall(words)] for words in shown]
    assert figures[0] == pytest.approx(figures[1], rel=ALIKE, abs=1.0)


def expressions(board: str) -> list[str]:
    return [t["expr"] for panel in json.loads(board)["panels"] for t in panel["targets"]]


def test_each_panel_of_the_fleet_has_series(engines: dict[str, MetricsServer]) -> None:
    for name, server in engines.items():
        for text in expressions(grafana.files()[grafana.FLEET]):
            assert server.ask(filled(text, HOURS * 3600, 300)), (name, text)


def faster(folder: Path, *ports: int) -> None:
    """Scrape each second, and let rules look seconds back where they look minutes back."""
    (folder / TARGETS).write_text(json.dumps(
        [{"targets": [f"127.0.0.1:{port}" for port in ports], "labels": {"team": "vision"}}]
    ))  # fmt: skip
    text = (folder / CONFIG).read_text().replace("interval: 15s", "interval: 1s")
    text = text.replace("evaluation_interval: 30s", "evaluation_interval: 1s")
    (folder / CONFIG).write_text(text)
    rules = (
        (folder / RULES).read_text().replace("[5m]", "[6s]").replace("interval: 5m", "interval: 3s")
    )
    (folder / RULES).write_text(rules.replace("for: 1m", "for: 2s").replace("for: 5m", "for: 2s"))


def firing(manager: MetricsServer) -> set[tuple[str, str]]:
    """Return the alerts that a server has sent, by host."""
    return {
        (one["labels"]["alertname"], one["labels"].get("instance", ""))
        for one in manager.get("/api/v2/alerts")
    }


def until(is_so: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.3)


@dataclass
class Live:
    """Two hosts that are scraped by both servers, whose alerts go to a manager each."""

    run: int
    up: str
    vanishes: str
    # Ends the host that vanishes.
    end: Callable[[], None]
    servers: tuple[tuple[MetricsServer, MetricsServer], ...]

    def until_it_fires(self, alert: str) -> None:
        for _, manager in self.servers:
            until(lambda manager=manager: (alert, self.vanishes) in firing(manager))

    def ask(self) -> list[FleetJson]:
        return [ask(server, 300) for server, _ in self.servers]


@pytest.fixture
def live(tape: Tape, state: Path, tmp_path: Path, monitor: Monitor) -> Iterator[Live]:
    folder = tmp_path / "fleet"
    price = {"WHYIDLE_GPU_HOUR_PRICE": "2.5", "WHYIDLE_CURRENCY": "EUR"}
    with ExitStack() as running, ExitStack() as vanishing:
        enter = running.enter_context
        job = enter(start_job())
        writer = Writer.open(state / DATABASE)
        run = record(writer, key_of(job.pid))
        whole = enter(exporter({**tape("eight_gpus", TRAINER=job.pid), **price}, state))
        other = vanishing.enter_context(
            exporter(tape("lost", TRAINER=os.getpid()), tmp_path / "other")
        )
        managers = [enter(alertmanager(tmp_path / name)) for name in ("am-p", "am-v")]
        notified = ("--alertmanager", managers[0].url.removeprefix("http://"))
        assert monitor("fleet", "init", folder, *notified).returncode == 0
        faster(folder, whole.port, other.port)
        config = folder / CONFIG
        prom = enter(prometheus(config, tmp_path / "prom"))
        scrapes = (f"-promscrape.config={config}", "-promscrape.config.strictParse=false")
        vm = enter(victoria_metrics(tmp_path / "vm", *scrapes))
        enter(vmalert(folder / RULES, vm, managers[1]))
        yield Live(run, f"127.0.0.1:{whole.port}", f"127.0.0.1:{other.port}", vanishing.close,
                   ((prom, managers[0]), (vm, managers[1])))  # fmt: skip
        writer.end_run(run, "over")
        writer.close()
        job.kill()


def test_a_host_is_scraped_alerts_are_sent_and_one_vanishes(live: Live) -> None:
    live.until_it_fires("WhyidleGpuLost")
    for server, _ in live.servers:
        server.until(f.BUILD.name, 2)
        server.until(RULES_RUN.text, 1)
        server.until(f'{f.JOB_IDLE.name}{{cause="input"}} > 1', 1)
        # Who evaluates rules for VictoriaMetrics sends an alert sooner than it writes its series.
        server.until('ALERTS{alertname="WhyidleGpuLost", alertstate="firing"}', 1)
    for each in live.ask():
        assert each.unknown == {}
        assert (each.hosts, each.gone, each.gpus) == (2, [], 10)
        (row,) = [x for x in each.lost["job"] if x.labels["instance"] == live.up]
        assert row.labels["team"] == "vision"
        # As it was recorded: 60% of the time is the loader's.
        assert row.causes
        part = row.causes["input"] / row.gpu_hours
        assert part * (row.share or 0.0) == pytest.approx(0.6, abs=0.1), row
        assert row.run == str(live.run)
        assert "WhyidleGpuLost" in {x.alert for x in each.alerts}
    for server, _ in live.servers:
        for text in expressions(grafana.files()[grafana.HOST]):
            asked, now = filled(text.replace("$instance", ".*"), 300, 30), time.time()
            assert Prometheus.here(server.url).over(asked, now - 300, now, 3).rows, asked
    # It goes away while it is watched.
    live.end()
    live.until_it_fires("WhyidleExporterDown")
    for each in live.ask():
        assert each.unknown == {}
        assert each.hosts == 1
        assert [x.host for x in each.gone] == [live.vanishes]
        # The other one goes on.
        assert live.up in {x.labels["instance"] for x in each.lost["job"]}

"""Real servers of Debian on loopback: Prometheus, VictoriaMetrics with vmalert, Alertmanager."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.export.exporter import free_port

PROGRAMS = ROOT / ".venv" / "prometheus" / "usr" / "bin"


def tool(name: str) -> str:
    """Return a program of Debian's; the test is left out where it could not be had."""
    found = PROGRAMS / name
    if not found.exists():
        pytest.skip(f"no {name} (Debian gets one): .ci/prometheus")
    return str(found)


# One that receives OTLP; what the older Debian has does not.
OTLP_RECEIVER = "victoria-metrics-otlp"


class MetricsServer:
    """One that answers PromQL at its URL."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str, **parameters: object) -> Any:
        asked = f"{self.url}{path}?{urllib.parse.urlencode(parameters, doseq=True)}"
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return json.load(answer)

    def ask(self, query: str, **parameters: object) -> list[Any]:
        """Return the series of a query, of now or of the time that is given."""
        found: list[Any] = self.get("/api/v1/query", query=query, **parameters)["data"]["result"]
        return found

    def until(self, query: str, number: int, seconds: float = 40.0) -> list[Any]:
        """Ask until there are as many series as are waited for."""
        end, found = time.monotonic() + seconds, None
        while time.monotonic() < end:
            try:
                found = self.ask(query)
                if len(found) == number:
                    return found
            except OSError:
                pass
            time.sleep(0.3)
        raise AssertionError(f"{query}: {found}")


@contextmanager
def prometheus(config: Path, data: Path, *options: str) -> Iterator[MetricsServer]:
    """Run Prometheus with a configuration."""
    port = free_port()
    command = (
        tool("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={data}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error", *options,
    )  # fmt: skip
    with _running(MetricsServer("prometheus", port), command, "/-/ready") as server:
        yield server


@contextmanager
def victoria_metrics(
    data: Path, *options: str, program: str = "victoria-metrics"
) -> Iterator[MetricsServer]:
    """Run VictoriaMetrics; with ``-promscrape.config=FILE`` it scrapes."""
    port = free_port()
    command = (
        tool(program), f"-storageDataPath={data}", f"-httpListenAddr=127.0.0.1:{port}",
        "-retentionPeriod=10y", "-loggerLevel=ERROR", "-search.latencyOffset=0s",
        # It takes what the machine has.
        "-memory.allowedBytes=128MiB", *options,
    )  # fmt: skip
    with _running(MetricsServer("victoria-metrics", port), command, "/health") as server:
        yield server


@contextmanager
def alertmanager(folder: Path) -> Iterator[MetricsServer]:
    """Run Alertmanager, which tells nobody."""
    port = free_port()
    folder.mkdir()
    (folder / "config.yml").write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
    # Debian's reads its templates where a package is installed, and nowhere else.
    share = PROGRAMS.parent / "share"
    if subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no mounts of one's own are permitted here: Alertmanager cannot be started")
    command = (
        "unshare", "-rm", "sh", "-c", 'mount --bind "$0" /usr/share && exec "$@"', str(share),
        tool("prometheus-alertmanager"), f"--config.file={folder / 'config.yml'}",
        f"--storage.path={folder}", f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=", "--log.level=error",
    )  # fmt: skip
    with _running(MetricsServer("alertmanager", port), command, "/-/ready") as server:
        yield server


@contextmanager
def vmalert(rules: Path, engine: MetricsServer, notified: MetricsServer) -> Iterator[MetricsServer]:
    """Run what evaluates rules for VictoriaMetrics."""
    port = free_port()
    command = (
        tool("vmalert"), f"-rule={rules}", f"-datasource.url={engine.url}",
        f"-remoteWrite.url={engine.url}", f"-remoteRead.url={engine.url}",
        f"-notifier.url={notified.url}", f"-httpListenAddr=127.0.0.1:{port}",
        "-evaluationInterval=1s", "-loggerLevel=ERROR", "-remoteWrite.flushInterval=500ms",
    )  # fmt: skip
    with _running(MetricsServer("vmalert", port), command, "/health") as server:
        yield server


@contextmanager
def _running(
    server: MetricsServer, command: tuple[str, ...], ready: str
) -> Iterator[MetricsServer]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            end = time.monotonic() + 40
            while True:
                assert process.poll() is None, command
                try:
                    urllib.request.urlopen(server.url + ready, timeout=5).close()
                    break
                except OSError:
                    assert time.monotonic() < end, server.name
                    time.sleep(0.1)
            yield server
        finally:
            process.terminate()

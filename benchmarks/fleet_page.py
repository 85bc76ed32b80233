"""How long the fleet page waits for its server: 512 hosts of 8 GPUs, the last 24 hours.

A day of a fleet that never was (tests/fleet/history.py) is imported into Debian's VictoriaMetrics
and Prometheus: all that the queries of the page and of `monitor fleet top` read, one job on each
host, what the rules keep at their pace. Series that no query reads are left out. Then all queries
are asked, as the page does, the first time and again. `.ci/prometheus` brings the servers.

Run: .venv/bin/python benchmarks/fleet_page.py [--hosts 512] [--folder KEPT] [--prepare] [--json]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from results import Result, print_results

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.export.servers import PROGRAMS, MetricsServer, prometheus, victoria_metrics  # noqa: E402  found by the line above
from tests.fleet.history import Fleet  # noqa: E402
from whyidle.monitor.fleet import answer  # noqa: E402
from whyidle.monitor.fleet.prometheus import Prometheus  # noqa: E402

GPUS, DAY = 8, 86_400
BAR_MS = 1000.0
TIMES = 5
# Written ahead, so that values are of now while it is measured.
AHEAD = 2700
PIECE = 20_000


def prepare(folder: Path, hosts: int) -> int:
    """Import the same day into both; return how many series it has."""
    fleet = Fleet(hosts, GPUS, int(time.time()) + AHEAD, DAY + AHEAD, 2400 + AHEAD)
    stored = sorted(fleet.series(), key=lambda one: one.name)
    with victoria_metrics(folder / "vm") as server:
        for start in range(0, len(stored), PIECE):
            body = "".join(x.victoria() for x in stored[start : start + PIECE]).encode()
            urllib.request.urlopen(f"{server.url}/api/v1/import", data=body, timeout=300).close()
        urllib.request.urlopen(f"{server.url}/internal/force_flush", timeout=300).close()
    with (folder / "history").open("w") as out:
        for series in stored:
            out.writelines(series.openmetrics())
        out.write("# EOF\n")
    blocks = ["tsdb", "create-blocks-from", "--max-block-duration=48h", "openmetrics"]
    subprocess.run(
        [str(PROGRAMS / "promtool"), *blocks, folder / "history", folder / "prom"],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    (folder / "history").unlink()
    (folder / "empty.yml").write_text("{}\n")
    (folder / "series").write_text(str(len(stored)))
    return len(stored)


def measured(folder: Path, hosts: int) -> Iterator[Result]:
    """Ask both for all that the page shows."""
    yield Result("hosts", hosts, "")
    yield Result("series that are asked", int((folder / "series").read_text()), "")
    with ExitStack() as running:
        vm = running.enter_context(victoria_metrics(folder / "vm"))
        yield from _asked(vm, "VictoriaMetrics", BAR_MS, hosts)
    with ExitStack() as running:
        prom = running.enter_context(prometheus(folder / "empty.yml", folder / "prom"))
        yield from _asked(prom, "Prometheus", None, hosts)


def _asked(server: MetricsServer, name: str, bar: float | None, hosts: int) -> Iterator[Result]:
    client = Prometheus.here(server.url)
    took = []
    for _ in range(TIMES):
        began = time.perf_counter()
        found = answer.ask(client, DAY)
        took.append((time.perf_counter() - began) * 1000)
        # All of it was answered, and nothing is missing in it.
        assert not found.unknown, found.unknown
        assert (found.hosts, found.gpus) == (hosts, hosts * GPUS)
        assert found.source == "rules"
        assert len(found.lost["job"]) == len(found.lost["host"])
    yield Result(f"{name}: all queries, the first time", took[0], "ms")
    yield Result(f"{name}: all queries, median", statistics.median(took), "ms", bar)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=512)
    parser.add_argument("--folder", type=Path, help="where the imported day is kept")
    parser.add_argument("--prepare", action="store_true", help="only import it")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        if not (folder / "series").exists():
            prepare(folder, chosen.hosts)
        if not chosen.prepare:
            print_results(measured(folder, chosen.hosts), as_json=chosen.json)


if __name__ == "__main__":
    main()

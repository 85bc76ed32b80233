"""What an exporter of 8 GPUs costs its host: a scrape, its memory and CPU, its series.

It is fed by the fake NVML library, with a job on each GPU and one recording in its store; the time
of a scrape is that of a whole request over HTTP, as a Prometheus server sees it. The same page is
kept as --backfill keeps it, and one of as many jobs as are ever shown is built beside it.

Run: .venv/bin/python benchmarks/fleet.py [--seconds 30] [--json]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from results import Result, print_results

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests import fake_nvml  # noqa: E402  found by the line above
from tests.export.exporter import Exporter, exporter, samples  # noqa: E402
from tests.export.test_scrape import key_of, record  # noqa: E402
from whyidle.monitor.core.paths import DATABASE  # noqa: E402
from whyidle.monitor.export.collector import Collector, Look  # noqa: E402
from whyidle.monitor.export.exposition import Family  # noqa: E402
from whyidle.monitor.export.job_time import JobTime  # noqa: E402
from whyidle.monitor.export.jobs import Job  # noqa: E402
from whyidle.monitor.export.recordings import read  # noqa: E402
from whyidle.monitor.export.scrape import MOST_JOBS, Shown, scrape  # noqa: E402
from whyidle.monitor.export.unscraped import FILE, Kept, Unscraped, packed  # noqa: E402
from whyidle.monitor.processes.process import ProcessKey  # noqa: E402
from whyidle.monitor.store import Writer  # noqa: E402

TAPE = ROOT / "tests" / "data" / "tapes" / "eight_gpus.tape"
SCRAPE_MS, MB = 10.0, 60.0
SCRAPES = 200
TICKS = os.sysconf("SC_CLK_TCK")


def measured(seconds: float, folder: Path) -> Iterator[Result]:
    """Run one, scrape it, and meter it from outside."""
    library = fake_nvml.build(folder)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]) as job:
        writer = Writer.open(folder / DATABASE)
        record(writer, key_of(job.pid))
        env = fake_nvml.environment(library, TAPE, trainer=job.pid)
        with exporter(env, folder) as running:
            running.until(lambda page: "whyidle_job_step_seconds_count" in page
                          and "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE" in page)  # fmt: skip
            yield from _scrapes(running)
            yield from _costs(running, seconds)
            yield from _kept(running, folder)
        yield from _many(folder / DATABASE)
        writer.close()
        job.kill()


def _scrapes(running: Exporter) -> Iterator[Result]:
    took = []
    for _ in range(SCRAPES):
        began = time.perf_counter()
        page = running.scrape()
        took.append((time.perf_counter() - began) * 1000)
    yield Result("scrape of 8 GPUs, median", statistics.median(took), "ms", SCRAPE_MS)
    yield Result("scrape of 8 GPUs, 99% within", sorted(took)[int(0.99 * SCRAPES)], "ms")
    found = samples(page)
    yield Result("series: 8 GPUs, one recorded job", len(found), "")
    theirs = sum(each.name.startswith("DCGM_") for each in found)
    yield Result("of these, dcgm-exporter's names", theirs, "")
    yield Result("page", len(page) / 1024, "KiB")


def _costs(running: Exporter, seconds: float) -> Iterator[Result]:
    def spent() -> float:
        fields = Path(f"/proc/{running.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    before = spent()
    time.sleep(seconds)
    yield Result("CPU between scrapes", (spent() - before) / seconds * 100, "% of a core")
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    (most,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    yield Result("memory, at most", int(most) / 1024, "MiB", MB)


def _kept(running: Exporter, folder: Path) -> Iterator[Result]:
    """Keep the page of a scrape that nobody fetched, as with --backfill."""
    families = [
        Family(each.name, "gauge", "", [("", each.labels, each.value)])
        for each in samples(running.scrape())
    ]
    took = []
    with closing(Unscraped(folder / FILE)) as store:
        for n in range(SCRAPES):
            began = time.perf_counter()
            content = packed(families)
            store.add([Kept(n + 1, content)])
            took.append((time.perf_counter() - began) * 1000)
    yield Result("a page that was not scraped, kept", len(content) / 1024, "KiB")
    yield Result("keeping it, median", statistics.median(took), "ms")


def _many(store: Path) -> Iterator[Result]:
    """Build the page of as many recorded jobs as are ever shown."""
    collector = Collector(store, print)
    (one,) = read(store, print)
    jobs = tuple(Job(ProcessKey(n, n), {"0": 1.0}) for n in range(1, 2 * MOST_JOBS))
    collector.last = Look(time.monotonic(), jobs=jobs)
    collector.recordings = {job.key: one for job in jobs}
    collector.job_times = {job.key: JobTime() for job in jobs}
    began = time.perf_counter()
    page = scrape(collector, Shown("host"))
    yield Result(f"page of {MOST_JOBS} recorded jobs", (time.perf_counter() - began) * 1000, "ms")
    yield Result(f"series of {MOST_JOBS} recorded jobs", len(samples(page.decode())), "")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print_results(measured(chosen.seconds, Path(folder)), as_json=chosen.json)


if __name__ == "__main__":
    main()

"""A trace file -> where the time went: ours beside HolisticTraceAnalysis and xprof, file by file.

Every measurement is a fresh process, interleaved with the others; imports are not counted. "ours"
is reading and the account of each device, which is what the peers do; "all" is what `monitor trace`
computes. The floor is what no reader can avoid: decompressing the Kineto file, reading the XPlane
file. xprof leaves what it found beside the file and only reads that the next time: it is measured
on a file it has not seen, as a person meets it, and "xprof again" on one it has.

Run: .venv/bin/python benchmarks/traces.py [--rounds 7] [--json] [--kineto FILE] [--xplane FILE]
HTA asks for other versions of what others here need: it gets an environment of its own, made where
--hta says. xprof comes with: pip install -e '.[xprof]'
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

HERE = Path(__file__).resolve().parent
# Whole rounds of the steps that are repeated.
KINETO_EVENTS = 297_113
LONG_EVENTS, LONG_MB = 20_000_000, 600
HTA = HERE.parent / ".venv" / "hta"
XPLANE_MB, XPLANE_SEED = 60, 1
# times faster than the peer, share of its memory
BARS = {"kineto": (25.0, 1 / 2), "xplane": (8.0, 1 / 5)}
PEERS = {"kineto": ["hta"], "xplane": ["xprof", "xprof again"]}
# The bar is against xprof's second look, which reads what the first one left.
COMPARED_WITH = {"kineto": "hta", "xplane": "xprof again"}

Work = Callable[[], object]


def everything(path: Path) -> Work:
    """All that `monitor trace` computes: steps, kernels and lines of code too."""
    from whyidle.monitor.traces import answer, kineto, nsys, xplane  # noqa: F401
    from whyidle.monitor.traces.analysis import analyse

    return lambda: answer.contract(analyse(path))


def breakdown(path: Path) -> Work:
    """The part of it that the peers do: reading, and where the time of each device went."""
    from whyidle.monitor.traces import analysis, kineto, xplane  # noqa: F401

    # Neither what ran nor whose code it was.
    mock.patch.multiple(analysis, Adding=mock.MagicMock(), Places=mock.MagicMock()).start()
    return lambda: analysis.analyse(path)


def hta(path: Path) -> Work:
    """HolisticTraceAnalysis: reading, and its breakdown of the time."""
    import logging

    from hta.trace_analysis import TraceAnalysis

    logging.disable(logging.CRITICAL)

    def work() -> object:
        analysis = TraceAnalysis(trace_files={0: str(path)}, trace_dir=str(path.parent))
        return analysis.get_temporal_breakdown(visualize=False)

    return work


def xprof(path: Path) -> Work:
    """xprof: the overview page, which breaks the step time down."""
    from xprof.convert import raw_to_tool_data

    return lambda: raw_to_tool_data.xspace_to_tool_data([str(path)], "overview_page", {})


def ranks(folder: Path) -> Work:
    """A folder of ranks: `monitor trace DIR`, a process for each core."""
    from whyidle.monitor.traces.ranks.answer import job_answer

    def work() -> object:
        answer = job_answer([str(folder)])
        found = answer["ranks"]
        return {
            "straggler": found and found["straggler"] and found["straggler"]["rank"],
            "each": [
                {
                    "rank": device["rank"],
                    "idle_us": device["idle_ns"] / 1000,
                    "compute_us": device["compute_ns"] / 1000,
                    "rest_us": (device["busy_ns"] - device["compute_ns"]) / 1000,
                    "overlap": 1 - device["exposed_comm_ns"] / max(1, device["comm_ns"]),
                }
                for device in answer["devices"]
            ],
        }

    return work


def ranks_on_one_core(folder: Path) -> Work:
    """The same, held to one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    return ranks(folder)


def hta_ranks(folder: Path) -> Work:
    """HTA's analyses of all ranks: time and idle time, overlap, stragglers."""
    import logging

    from hta.trace_analysis import TraceAnalysis

    logging.disable(logging.CRITICAL)

    def work() -> object:
        analysis = TraceAnalysis(trace_dir=str(folder))
        times = analysis.get_temporal_breakdown(visualize=False)
        overlap = analysis.get_comm_comp_overlap(visualize=False)
        of_rank = dict(zip(overlap["rank"], overlap["comp_comm_overlap_pctg"], strict=True))
        analysis.get_idle_time_breakdown(ranks=list(of_rank), visualize=False)
        return {
            "straggler": analysis.get_potential_stragglers(num_candidates=1),
            "each": [
                {
                    "rank": row["rank"],
                    "idle_us": row["idle_time(us)"],
                    "compute_us": row["compute_time(us)"],
                    "rest_us": row["non_compute_time(us)"],
                    "overlap": of_rank[row["rank"]] / 100,
                }
                for _, row in times.iterrows()
            ],
        }

    return work


def floor(path: Path) -> Work:
    """Only the bytes."""
    import gzip

    opened: Any = gzip.open if path.suffix == ".gz" else open

    def work() -> object:
        with opened(path, "rb") as file:
            while file.read(4 << 20):
                pass
        return None

    return work


CONTESTANTS = {
    "ours": breakdown,
    "all": everything,
    "hta": hta,
    "xprof": xprof,
    "xprof again": xprof,
    "floor": floor,
    "ranks": ranks,
    "ranks, one core": ranks_on_one_core,
    "hta ranks": hta_ranks,
}


def peak_kb() -> int:
    """The most memory this process had; getrusage would begin with that of the parent."""
    status = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in status if line.startswith("VmHWM")))


def child(name: str, path: Path) -> None:
    """One measurement, as JSON."""
    work = CONTESTANTS[name](path)
    before = peak_kb()
    started = time.perf_counter()
    found = work()
    seconds = time.perf_counter() - started
    peak = peak_kb()
    got = {"seconds": seconds, "peak_mb": peak / 1024, "work_mb": (peak - before) / 1024}
    print(json.dumps(got if "ranks" not in name else {**got, "found": found}))


def hta_python(folder: Path) -> str:
    """Return a Python that has HTA: this one, or that of an environment made for it."""
    if find_spec("hta") is not None:
        return sys.executable
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "HolisticTraceAnalysis>=0.5"]
        subprocess.run(pip, check=True)
    return str(python)


def measured(name: str, path: Path, python: str) -> dict[str, float]:
    """One measurement in a fresh process, of a file in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        # xprof leaves files beside a trace.
        own = Path(folder) / path.name
        own.symlink_to(path.absolute())
        command = [python, __file__, "--child", name, str(own)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        if name.endswith("again"):
            done = subprocess.run(command, check=True, capture_output=True, text=True)
    got: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return got


def command_seconds(path: Path) -> float:
    """The whole command, from the shell's point of view."""
    monitor = str(Path(sys.executable).parent / "monitor")
    started = time.perf_counter()
    subprocess.run([monitor, "trace", str(path), "--json"], check=True, capture_output=True)
    return time.perf_counter() - started


def compared(kind: str, path: Path, rounds: int, environment: Path) -> dict[str, Any]:
    """Interleave the contestants; the first round fills the caches and does not count."""
    peer = COMPARED_WITH[kind]
    pythons = dict.fromkeys(CONTESTANTS, sys.executable)
    installed = peer == "hta" or find_spec("xprof") is not None
    if peer == "hta":
        pythons["hta"] = hta_python(environment)
    if not installed:
        print(f"{peer} is not installed here: left out", file=sys.stderr)
    names = ["floor", "ours", "all", *(PEERS[kind] if installed else [])]
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    command = []
    for _ in range(rounds + 1):
        for name in names:
            runs[name].append(measured(name, path, pythons[name]))
        command.append(command_seconds(path))
    medians = {
        name: {key: statistics.median(run[key] for run in got[1:]) for key in got[0]}
        for name, got in runs.items()
    }
    result: dict[str, Any] = {
        "bytes": path.stat().st_size,
        "median": medians,
        "command_seconds": statistics.median(command[1:]),
        "times_the_floor": medians["ours"]["seconds"] / medians["floor"]["seconds"],
    }
    if peer in medians:
        pairs = [p["seconds"] / o["seconds"] for p, o in zip(runs[peer], runs["ours"], strict=True)]
        result |= {
            "peer": peer,
            "times_faster": statistics.median(pairs[1:]),
            "memory_share": medians["ours"]["peak_mb"] / medians[peer]["peak_mb"],
            "bars": {"times_faster": BARS[kind][0], "memory_share": BARS[kind][1]},
        }
    return result


def short_nsys(folder: Path) -> float:
    """Return the microseconds an event of an export that memory has room for."""
    from nsys_file import write

    events = write(folder / "short.sqlite", KINETO_EVENTS)
    return measured("all", folder / "short.sqlite", sys.executable)["seconds"] * 1e6 / events


def long_file(path: Path, small: float) -> dict[str, Any]:
    """A file too long for memory, once; ``small``: microseconds an event of one that is not."""
    got = measured("all", path, sys.executable)
    each = got["seconds"] * 1e6 / LONG_EVENTS
    return {
        "bytes": path.stat().st_size,
        "median": {"all": got},
        "events": LONG_EVENTS,
        "us_an_event": each,
        "us_an_event_short": small,
        "bars": {"peak_mb": LONG_MB},
    }


def folder_of_ranks(folder: Path, rounds: int, environment: Path) -> dict[str, Any]:
    """Eight ranks: on all cores, on one, and HTA's analyses of them; and what each of them says."""
    pythons = {"ranks": sys.executable, "ranks, one core": sys.executable}
    pythons["hta ranks"] = hta_python(environment)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in pythons}
    for _ in range(rounds + 1):
        for name, python in pythons.items():
            runs[name].append(measured(name, folder, python))
    found = {name: got[0].pop("found") for name, got in runs.items()}
    medians = {
        name: {key: statistics.median(run[key] for run in got[1:]) for key in got[0]}
        for name, got in runs.items()
    }
    seconds = {name: one["seconds"] for name, one in medians.items()}
    return {
        "bytes": sum(file.stat().st_size for file in folder.iterdir()),
        "median": medians,
        "cores_gain": seconds["ranks, one core"] / seconds["ranks"],
        "times_faster_than_hta": seconds["hta ranks"] / seconds["ranks"],
        "found": found,
    }


def print_ranks(got: dict[str, Any]) -> None:
    """Print what both say of the same ranks."""
    print(
        f"  {got['cores_gain']:.2f} times faster than on one core,"
        f" {got['times_faster_than_hta']:.1f} times faster than HTA"
    )
    for name in ("ranks", "hta ranks"):
        said = got["found"][name]
        print(f"  {name}: late: {said['straggler']}")
        for rank in said["each"][:2]:
            print(
                f"    rank {rank['rank']:.0f}: idle {rank['idle_us']:.0f} us, compute"
                f" {rank['compute_us']:.0f} us, other work {rank['rest_us']:.0f} us,"
                f" {rank['overlap']:.1%} of communication covered"
            )


def print_result(kind: str, got: dict[str, Any]) -> None:
    """Print one comparison for a person."""
    print(f"{kind}: {got['bytes'] / 1e6:.1f} MB on disk")
    for name, m in got["median"].items():
        print(
            f"  {name:<15} {m['seconds'] * 1000:8.0f} ms   peak {m['peak_mb']:6.0f} MB"
            f"   of it for the work {m['work_mb']:6.0f} MB"
        )
    if "found" in got:
        print_ranks(got)
    if "us_an_event" in got:
        print(
            f"  {got['us_an_event']:.2f} us an event, {got['us_an_event_short']:.2f} in the short"
            f" file; bar: {LONG_MB} MB"
        )
    if "command_seconds" not in got:
        return
    print(f"  the whole command {got['command_seconds'] * 1000:.0f} ms")
    print(f"  {got['times_the_floor']:.1f} times the floor")
    if "peer" in got:
        bars = got["bars"]
        print(
            f"  {got['times_faster']:.1f} times faster than {got['peer']} (bar"
            f" {bars['times_faster']:g}), {got['memory_share']:.2f} of its memory (bar"
            f" {bars['memory_share']:g})"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--kineto", type=Path, help="this file, instead of a generated one")
    parser.add_argument("--xplane", type=Path, help="this file, instead of a generated one")
    parser.add_argument("--long", type=Path, help="this file of 20 M events")
    parser.add_argument("--hta", type=Path, default=HTA, help="its environment")
    parser.add_argument("--only", nargs="+", choices=GENERATED, default=list(GENERATED))
    parser.add_argument("--child", nargs=2, metavar=("NAME", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], Path(options.child[1]))
        return
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.only:
            path = getattr(options, kind, None) or GENERATED[kind](Path(folder))
            if kind == "long":
                median = results.get("kineto", {}).get("median", {})
                short = median["all"]["seconds"] * 1e6 / KINETO_EVENTS if median else 0.0
                results[kind] = long_file(path, short)
            elif kind == "long nsys":
                results[kind] = long_file(path, short_nsys(Path(folder)))
            elif kind == "ranks":
                results[kind] = folder_of_ranks(path, options.rounds, options.hta)
            else:
                results[kind] = compared(kind, path, options.rounds, options.hta)
    if options.json:
        print(json.dumps({"schema": 1, "results": results}))
        return
    for kind, got in results.items():
        print_result(kind, got)


def generated_kineto(folder: Path) -> Path:
    """Write the real job of two ranks, repeated."""
    from kineto_file import write

    path = folder / "rank1.json.gz"
    write(path, KINETO_EVENTS)
    return path


def generated_xplane(folder: Path) -> Path:
    """Write the seeded XPlane file, under the name that xprof expects."""
    from xplane_file import write

    path = folder / "host.xplane.pb"
    write(path, XPLANE_SEED, XPLANE_MB)
    return path


def generated_long(folder: Path) -> Path:
    """Write the real job, repeated till memory has no room for it."""
    from kineto_file import write

    path = folder / "long.json.gz"
    write(path, LONG_EVENTS)
    return path


def generated_long_nsys(folder: Path) -> Path:
    """Write the real job as Nsight Systems exports it, as often."""
    from nsys_file import write

    path = folder / "long.sqlite"
    write(path, LONG_EVENTS)
    return path


def generated_ranks(folder: Path) -> Path:
    """Write the real job for each of eight ranks."""
    from kineto_file import RANKS, write

    inside = folder / "ranks"
    inside.mkdir()
    for rank in range(RANKS):
        write(inside / f"rank{rank}.json.gz", KINETO_EVENTS, rank)
    return inside


GENERATED = {
    "kineto": generated_kineto,
    "xplane": generated_xplane,
    "long": generated_long,
    "long nsys": generated_long_nsys,
    "ranks": generated_ranks,
}


if __name__ == "__main__":
    main()

"""A trace file -> where the time went: ours beside HolisticTraceAnalysis and xprof, file by file.

Every measurement is a fresh process, interleaved with the others; imports are not counted. "ours"
is reading and the account of each device, which is what the peers do; "all" is what `monitor trace`
computes. The floor is what no reader can avoid: decompressing the Kineto file, reading the XPlane
file. xprof leaves what it found beside the file and only reads that the next time: it is measured
on a file it has not seen, as a person meets it, and "xprof again" on one it has.

Run: .venv/bin/python benchmarks/traces.py [--rounds 7] [--json] [--kineto FILE] [--xplane FILE]
The peers come with: pip install -e '.[bench,xprof]'
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
KINETO_EVENTS = 216_000
XPLANE_MB, XPLANE_SEED = 60, 1
# times faster than the peer, share of its memory
BARS = {"kineto": (10.0, 1 / 2), "xplane": (8.0, 1 / 5)}
PEERS = {"kineto": ["hta"], "xplane": ["xprof", "xprof again"]}

Work = Callable[[], object]


def everything(path: Path) -> Work:
    """All that `monitor trace` computes: steps, kernels and lines of code too."""
    from whyidle.monitor.traces import answer, kineto, xplane  # noqa: F401
    from whyidle.monitor.traces.analysis import analyse

    return lambda: answer.contract(analyse(path))


def breakdown(path: Path) -> Work:
    """The part of it that the peers do: reading, and where the time of each device went."""
    from whyidle.monitor.traces import kineto, xplane  # noqa: F401
    from whyidle.monitor.traces.analysis import breakdown
    from whyidle.monitor.traces.loading import load

    return lambda: breakdown(load(path))


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
    work()
    seconds = time.perf_counter() - started
    peak = peak_kb()
    print(
        json.dumps({"seconds": seconds, "peak_mb": peak / 1024, "work_mb": (peak - before) / 1024})
    )


def measured(name: str, path: Path) -> dict[str, float]:
    """One measurement in a fresh process, of a file in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / path.name
        own.symlink_to(path.absolute())
        command = [sys.executable, __file__, "--child", name, str(own)]
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


def compared(kind: str, path: Path, rounds: int) -> dict[str, Any]:
    """Interleave the contestants; the first round fills the caches and does not count."""
    peer = PEERS[kind][0]
    installed = find_spec(peer) is not None
    if not installed:
        print(f"{peer} is not installed here: left out", file=sys.stderr)
    names = ["floor", "ours", "all", *(PEERS[kind] if installed else [])]
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    command = []
    for _ in range(rounds + 1):
        for name in names:
            runs[name].append(measured(name, path))
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


def print_result(kind: str, got: dict[str, Any]) -> None:
    """Print one comparison for a person."""
    print(f"{kind}: {got['bytes'] / 1e6:.1f} MB on disk")
    for name, m in got["median"].items():
        print(
            f"  {name:<11} {m['seconds'] * 1000:8.0f} ms   peak {m['peak_mb']:6.0f} MB"
            f"   of it for the work {m['work_mb']:6.0f} MB"
        )
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
    parser.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--child", nargs=2, metavar=("NAME", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], Path(options.child[1]))
        return
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.only:
            path = getattr(options, kind) or GENERATED[kind](Path(folder))
            results[kind] = compared(kind, path, options.rounds)
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


GENERATED = {"kineto": generated_kineto, "xplane": generated_xplane}


if __name__ == "__main__":
    main()

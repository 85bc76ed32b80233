"""Entering jobs that check themselves, again and again: no death, no wrong result, short stops.

Each cycle is what `monitor attach` does: up the ladder, hello of the agent, and out again. Then the
tracer, and the monitor with it, is killed at random moments. At the end the peers that enter
running jobs do it to jobs like these, side by side with us: how long was the longest gap that the
job itself saw, and was it well afterwards?

Run: .venv/bin/python benchmarks/attach_stress.py [--quick] [--only NAME] [--json]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.results import Result, print_results  # noqa: E402  found by the line above
from tests.attach import victims  # noqa: E402
from tests.attach.victims import Victim, running  # noqa: E402
from whyidle.monitor.attach import ladder  # noqa: E402
from whyidle.monitor.demo.pairs import runner  # noqa: E402
from whyidle.monitor.link.link import Link  # noqa: E402
from whyidle.monitor.processes.process import ProcessKey  # noqa: E402
from whyidle.monitor.processes.procfs import ProcFs  # noqa: E402
from whyidle.monitor.processes.target import Target  # noqa: E402

BAR_MEDIAN_MS, BAR_P99_MS = 2.0, 5.0
CYCLES = {
    "busy": (victims.BUSY, 1000),
    "numpy": (victims.NUMPY, 600),
    "threads": (victims.THREADS, 300),
    "torch": (victims.TORCH, 300),
    "jax": (victims.JAX, 300),
    "tensorflow": (victims.TENSORFLOW, 300),
}
KILLS = 200
QUICK = 25
PEER_SECONDS = 20.0
LEAVE_SECONDS = 5.0
STOPPED_SECONDS = 3.0
# The monitor's whole way in and out, for ever; killed at any moment.
MONITOR = """
import sys
from benchmarks.attach_stress import cycle
from whyidle.monitor.processes.process import ProcessKey
print("ready", flush=True)
while True:
    cycle(ProcessKey(int(sys.argv[1]), int(sys.argv[2])))
"""


@dataclass
class Tally:
    """What many cycles came to."""

    cycles: int = 0
    deaths: int = 0
    wrong: int = 0
    not_entered: int = 0
    why: set[str] = field(default_factory=set)
    stops: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def end(self, victim: Victim) -> None:
        """Ask a job how it fared."""
        try:
            self.wrong += int(victim.end()["wrong"])
        except (AssertionError, subprocess.TimeoutExpired, ValueError, IndexError):
            self.deaths += 1


def cycle(key: ProcessKey, tally: Tally | None = None) -> None:
    """Go in, as `monitor attach` does, and out again."""
    tally = tally or Tally()
    target = Target(key, ProcFs())
    outcome = ladder.enter(target)
    tally.cycles += 1
    tally.stops += outcome.stops_ms
    tally.seconds.append(outcome.seconds)
    if not outcome.inside:
        tally.not_entered += 1
        tally.why.add(str(outcome.refusal))
    leave(key)


def leave(key: ProcessKey) -> None:
    """Send the agent out of a job."""
    link = Link.open(key, ProcFs())
    if link is not None:
        link.leave(LEAVE_SECONDS)
        link.close()


def cycles(name: str, share: float) -> Tally:
    """Cycle on one job."""
    source, count = CYCLES[name]
    tally = Tally()
    with running(source, python=runner(name) or sys.executable) as victim:
        for _ in range(max(1, round(count * share))):
            if victim.process.poll() is not None:
                break
            cycle(victim.key, tally)
        tally.end(victim)
    return tally


def kills(name: str, count: int, command: str) -> Tally:
    """Kill -9 who enters a job, at random moments, and see how the job fares."""
    tally = Tally()
    with running(CYCLES[name][0]) as victim:
        arguments = [sys.executable, "-c", command, *map(str, victim.key)]
        for _ in range(count):
            with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT) as one:
                assert one.stdout is not None
                one.stdout.readline()
                time.sleep(random.random() * 0.3)
                one.kill()
            tally.cycles += 1
            if not goes_on(victim.process.pid):
                break
        cycle(victim.key, tally)
        tally.end(victim)
    return tally


def goes_on(pid: int) -> bool:
    """Tell whether a job is there and runs; a tracer that lives on may stop it once more."""
    deadline = time.monotonic() + STOPPED_SECONDS
    while time.monotonic() < deadline:
        stat = ProcFs().stat(pid)
        if stat is None or stat.state == "Z":
            return False
        if stat.state not in "tT":
            return True
        time.sleep(0.001)
    return False


def memray(pid: int, folder: str) -> list[str]:
    """Return what memray is called with."""
    file = f"{folder}/{pid}.bin"
    return [sys.executable, "-m", "memray", "attach", "--duration", "1", "-f", "-o", file, str(pid)]


def debugpy(pid: int, _folder: str) -> list[str]:
    """Return what debugpy is called with; the system chooses the port."""
    return [sys.executable, "-m", "debugpy", "--listen", "127.0.0.1:0", "--pid", str(pid)]


PEERS: dict[str, Callable[[int, str], list[str]]] = {"memray": memray, "debugpy": debugpy}


def side_by_side(name: str, times: int) -> dict[str, list[dict[str, object]]]:
    """Enter fresh jobs, by us and by each peer in turn; return what the jobs saw."""
    found: dict[str, list[dict[str, object]]] = {}
    for _ in range(times):
        found.setdefault("nothing", []).append(_seen(name, None))
        found.setdefault("monitor", []).append(_seen(name, lambda v: cycle(v.key)))
        for peer in (p for p in PEERS if importlib.util.find_spec(p)):
            found.setdefault(peer, []).append(_seen(name, _entering(peer)))
    return found


def _entering(peer: str) -> Callable[[Victim], None]:
    def enter(victim: Victim) -> None:
        with tempfile.TemporaryDirectory() as folder:
            command = PEERS[peer](victim.process.pid, folder)
            subprocess.run(command, capture_output=True, timeout=PEER_SECONDS, check=True)

    return enter


def _seen(name: str, enter: Callable[[Victim], None] | None) -> dict[str, object]:
    with running(CYCLES[name][0], stderr=subprocess.DEVNULL) as victim:
        time.sleep(0.5)
        said = "ok"
        try:
            if enter is not None:
                enter(victim)
        except subprocess.TimeoutExpired:
            said = f"hung for {PEER_SECONDS:g} s"
        except subprocess.CalledProcessError as error:
            said = f"failed: {error.stderr.decode(errors='replace').strip()[-80:]}"
        time.sleep(0.5)
        try:
            job_end = victim.end()
        except (AssertionError, subprocess.TimeoutExpired, ValueError, IndexError):
            return {"said": said, "job": "dead or hanging", "gap_ms": None}
        job = "well" if not job_end["wrong"] else f"{job_end['wrong']} wrong results"
        return {"said": said, "job": job, "gap_ms": job_end["gap_ms"]}


def results(tallies: dict[str, Tally], killed: dict[str, Tally]) -> list[Result]:
    """Return the table."""
    every = [*tallies.values(), *killed.values()]
    stops = sorted(ms for t in tallies.values() for ms in t.stops)
    rows = []
    for name, t in tallies.items():
        rows.append(Result(f"{name}: cycles", t.cycles, "cycles"))
        rows.append(Result(f"{name}: not entered", t.not_entered, "cycles", 0))
        rows.append(
            Result(
                f"{name}: stop, median", statistics.median(t.stops or [0.0]), "ms", BAR_MEDIAN_MS
            )
        )
        rows.append(Result(f"{name}: a cycle, median", statistics.median(t.seconds), "s"))
    rows += [Result(f"killed: {name}", t.cycles, "kills") for name, t in killed.items()]
    rows += [
        Result("jobs that died or hung", sum(t.deaths for t in every), "jobs", 0),
        Result("wrong results", sum(t.wrong for t in every), "results", 0),
        Result("stops", len(stops), "stops"),
        Result("stop, median", statistics.median(stops or [0.0]), "ms", BAR_MEDIAN_MS),
        Result("stop, p99", (stops or [0.0])[int(len(stops) * 0.99)], "ms", BAR_P99_MS),
        Result("stop, the longest", max(stops, default=0.0), "ms"),
    ]
    return rows


def print_peers(jobs: dict[str, dict[str, list[dict[str, object]]]]) -> None:
    """Print what the jobs of each injector saw."""
    for name, seen in jobs.items():
        print(f"\nthe longest gap that the job itself saw ({name}), and what became of it")
        for injector, times in seen.items():
            for one in times:
                gap = one["gap_ms"]
                shown = f"{gap:10.1f} ms" if isinstance(gap, float) else f"{'-':>13}"
                print(f"  {injector:<10} {shown}   {one['job']}; {one['said']}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a 25th of everything")
    parser.add_argument("--only", choices=CYCLES, help="one job's cycles and nothing else")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    share = 1 / QUICK if options.quick else 1.0
    tallies = {n: cycles(n, share) for n in CYCLES if options.only in {None, n}}
    killed, peers = {}, {}
    if options.only is None:
        part = max(1, round(KILLS * share / 4))
        for name in ("busy", "threads"):
            killed[f"tracer, {name}"] = kills(name, part, victims.FOREVER)
            killed[f"monitor, {name}"] = kills(name, part, MONITOR)
            peers[name] = side_by_side(name, 1 if options.quick else 3)
    for name, t in tallies.items():
        for why in t.why:
            print(f"{name}: not entered: {why}", file=sys.stderr)
    rows = results(tallies, killed)
    if options.json:
        table = [{"what": r.what, "value": r.value, "unit": r.unit, "bar": r.bar} for r in rows]
        print(json.dumps({"schema": 1, "results": table, "peers": peers}))
        return
    print_results(rows, as_json=False)
    print_peers(peers)


if __name__ == "__main__":
    main()

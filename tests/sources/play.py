"""Run in a subprocess: read the probe so many times against the fake library, print what it gave.

Usage: play.py READS SECONDS_BETWEEN [LIMIT]
"""

import json
import sys
import time

from whyidle.monitor.core.errors import NoGpu
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.sources.gpus import GpuProbe


def plain(reading: Reading) -> dict[str, object]:
    return {
        "values": {m.column: v for m, v in reading.values.items()},
        "unknown": {m.column: r for m, r in reading.unknown.items()},
    }


def main() -> None:
    reads, between = int(sys.argv[1]), float(sys.argv[2])
    limit = float(sys.argv[3]) if len(sys.argv) > 3 else 2.0
    probe = GpuProbe()
    try:
        probe.open(3.0)
    except NoGpu as problem:
        print(json.dumps({"problem": problem.what, "next": problem.next_step}))
        return
    ticks = []
    for _ in range(reads):
        started = time.monotonic()
        results = probe.read(limit)
        ticks.append(
            {
                "took": time.monotonic() - started,
                "gpus": {
                    index: {
                        **plain(r.reading),
                        "lost": r.lost,
                        "processes": {pid: plain(p) for pid, p in r.processes.items()},
                        "processes_unknown": r.processes_unknown,
                    }
                    for index, r in results.items()
                },
                "events": [[e.kind, e.index, e.text] for e in probe.events()],
            }
        )
        time.sleep(max(0.0, between - (time.monotonic() - started)))
    names = {g.facts.index: g.facts.name for g in probe.gpus}
    probe.close()
    print(json.dumps({"ticks": ticks, "names": names}))


main()

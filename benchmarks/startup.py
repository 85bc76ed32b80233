"""How long `monitor --help` takes, interleaved with the bare interpreter and the peers.

Run: .venv/bin/python benchmarks/startup.py [--rounds 15] [--json]
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

BAR_MS = 150.0
BIN = Path(sys.executable).parent


def contestants() -> dict[str, list[str]]:
    """Return what is there to measure."""
    found = {"python -c pass": [sys.executable, "-c", "pass"]}
    for name in ("monitor", "nvitop", "gpustat"):
        path = shutil.which(name, path=str(BIN))
        if path is None:
            print(f"{name} is not installed here: left out", file=sys.stderr)
        else:
            found[f"{name} --help"] = [path, "--help"]
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    commands = contestants()
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(options.rounds + 1):
        for name, command in commands.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            times[name].append((time.perf_counter() - started) * 1000)
    # The first round fills the file cache.
    medians = {name: statistics.median(t[1:]) for name, t in times.items()}
    if options.json:
        print(json.dumps({"schema": 1, "median_ms": medians, "bar_ms": BAR_MS}))
        return
    for name, median in medians.items():
        bar = f"   bar {BAR_MS:.0f} ms" if name.startswith("monitor") else ""
        print(f"{name:<18} {median:6.0f} ms{bar}")


if __name__ == "__main__":
    main()

"""How long `monitor --help` takes, interleaved with the bare interpreter and the peers.

And what `monitor run` costs each Python that a job starts: processor time, in pairs with and
without, with the file's bytecode kept and, as with PYTHONDONTWRITEBYTECODE, compiled each time.

Run: .venv/bin/python benchmarks/startup.py [--rounds 15] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from whyidle.monitor.app.launch import with_boot
from whyidle.monitor.attach import bootdir

BAR_MS = 150.0
BOOT_BAR_MS = 1.0
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


def processor_ms(environment: dict[str, str]) -> float:
    """Return the processor time of one Python that does nothing."""
    child = subprocess.Popen([sys.executable, "-c", "pass"], env=environment)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return (used.ru_utime + used.ru_stime) * 1000


def boot_cost(rounds: int) -> dict[str, list[float]]:
    """Return the medians of the differences with their 95% confidence intervals, in ms."""
    found = {}
    with tempfile.TemporaryDirectory() as state:
        os.environ["WHYIDLE_STATE_DIR"] = state
        boot = bootdir.make()
        assert boot is not None
        for name, more in (("kept", {}), ("compiled", {"PYTHONDONTWRITEBYTECODE": "1"})):
            plain = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | more
            ours = with_boot(boot, plain)
            # The first two fill the file cache, and write the bytecode.
            pairs = [_pair(plain, ours, first=n % 2 == 0) for n in range(rounds + 2)][2:]
            found[name] = _median_of(sorted(b - a for a, b in pairs))
    return found


def _pair(plain: dict[str, str], ours: dict[str, str], *, first: bool) -> tuple[float, float]:
    if first:
        before = processor_ms(plain)
        return before, processor_ms(ours)
    after = processor_ms(ours)
    return processor_ms(plain), after


def _median_of(ordered: list[float]) -> list[float]:
    """Return the low end, the median and the high end, by order statistics."""
    middle, reach = len(ordered) / 2, 0.98 * len(ordered) ** 0.5
    low, high = max(0, int(middle - reach)), min(len(ordered) - 1, int(middle + reach))
    return [round(x, 3) for x in (ordered[low], statistics.median(ordered), ordered[high])]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--boots", type=int, default=200)
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
    boots = boot_cost(options.boots)
    if options.json:
        result = {"schema": 1, "median_ms": medians, "bar_ms": BAR_MS}
        print(json.dumps({**result, "boot_ms": boots, "boot_bar_ms": BOOT_BAR_MS}))
        return
    for name, median in medians.items():
        bar = f"   bar {BAR_MS:.0f} ms" if name.startswith("monitor") else ""
        print(f"{name:<18} {median:6.0f} ms{bar}")
    print("processor time that `monitor run` adds to each Python: median, 95% confidence")
    for name, (low, median, high) in boots.items():
        print(f"bytecode {name:<9} {median:6.2f} ms [{low:.2f}, {high:.2f}]   bar {BOOT_BAR_MS} ms")


if __name__ == "__main__":
    main()

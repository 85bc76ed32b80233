"""What recording 8 GPUs at 1 Hz costs, beside nvitop's API and gpustat doing the same reads.

All three run at once, each on the same fake NVML library with the same tape, so that they meet the
same machine; each is metered from outside by /proc after its start-up. The fake answers at once, so
what is measured is the reading program, not the driver. The monitor's first minute has four looks
for faults, and the rules are loaded for the first; later there is one a minute, so that what comes
after is printed by itself.

Run: .venv/bin/python benchmarks/record_cost.py [--seconds 60] [--steady 60] [--json]
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests import fake_nvml  # noqa: E402  found by the line above

BAR_SHARE, BAR_MB = 0.005, 80.0
TAPE = ROOT / "tests" / "data" / "tapes" / "eight_gpus.tape"
SETTLE_SECONDS = 5.0
TICKS = os.sysconf("SC_CLK_TCK")

NVITOP = """
import time, nvitop
devices = nvitop.Device.all()
assert len(devices) == 8, devices
while True:
    for device in devices:
        device.as_snapshot()
        device.processes()
    time.sleep(1)
"""
GPUSTAT = """
import time, gpustat
while True:
    assert len(gpustat.new_query()) == 8
    time.sleep(1)
"""


def watched() -> subprocess.Popen[bytes]:
    """Start a job to watch; it sleeps, so that it does not disturb.

    It is no Python, whose stacks would be sampled: `stack_sampling.py` measures what that costs.
    """
    return subprocess.Popen(["sleep", "3600"])


def contestants(pid: int) -> dict[str, list[str]]:
    """Return the command of each that is installed."""
    monitor = [sys.executable, "-m", "whyidle.monitor", "attach", str(pid), "--quiet"]
    found = {"monitor (stored)": monitor}
    for name, source in (("nvitop", NVITOP), ("gpustat", GPUSTAT)):
        probe = subprocess.run(
            [sys.executable, "-c", f"import {name}"], capture_output=True, check=False
        )
        if probe.returncode == 0:
            found[name] = [sys.executable, "-c", source]
        else:
            print(f"{name} is not installed here: left out", file=sys.stderr)
    return found


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has taken."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS


def rss_mb(pid: int) -> float:
    """Return the largest resident memory so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    line = next(x for x in lines if x.startswith("VmHWM"))
    return int(line.split()[1]) / 1000


def cpu_of(running: dict[str, subprocess.Popen[bytes]]) -> dict[str, float]:
    """Return the CPU time of each; one that has ended has no cost that means anything."""
    for name, process in running.items():
        if process.poll() is not None:
            raise SystemExit(f"{name} ended by itself: its figures would mean nothing")
    return {name: cpu_seconds(process.pid) for name, process in running.items()}


def shares(running: dict[str, subprocess.Popen[bytes]], seconds: float) -> dict[str, float]:
    """Return which share of a core each takes from now on."""
    began, before = time.monotonic(), cpu_of(running)
    time.sleep(seconds)
    after, took = cpu_of(running), time.monotonic() - began
    return {name: (after[name] - before[name]) / took for name in running}


def measure(seconds: float, steady: float) -> dict[str, dict[str, float]]:
    """Run all of them side by side and meter them."""
    # As pip leaves what it installs: the others are.
    compileall.compile_dir(ROOT / "monitor", quiet=2)
    with tempfile.TemporaryDirectory() as folder:
        library = fake_nvml.build(Path(folder))
        job = watched()
        env = {**os.environ, **fake_nvml.environment(library, TAPE, trainer=job.pid)}
        env["WHYIDLE_STATE_DIR"] = f"{folder}/state"
        running = {
            name: subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
            for name, command in contestants(job.pid).items()
        }
        try:
            time.sleep(SETTLE_SECONDS)
            first, later = shares(running, seconds), shares(running, steady)
            return {
                name: {
                    "core_share": first[name],
                    "steady_core_share": later[name],
                    "peak_rss_mb": rss_mb(p.pid),
                }
                for name, p in running.items()
            }
        finally:
            for process in [*running.values(), job]:
                process.terminate()
                process.wait()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--steady", type=float, default=60.0, help="so long after these")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    measured = measure(options.seconds, options.steady)
    if options.json:
        bars = {"core_share": BAR_SHARE, "peak_rss_mb": BAR_MB}
        print(json.dumps({"schema": 1, "gpus": 8, "hz": 1, "measured": measured, "bars": bars}))
        return
    first, later = f"first {options.seconds:g} s", f"next {options.steady:g} s"
    print(f"{'8 fake GPUs, 1 Hz: CPU of one core':<36}{first:>12}{later:>12}   peak memory")
    for name, figures in measured.items():
        bar = f"   bar {BAR_SHARE:.1%}, {BAR_MB:.0f} MB" if name.startswith("monitor") else ""
        cpu = f"{figures['core_share']:>12.2%}{figures['steady_core_share']:>12.2%}"
        print(f"{name:<36}{cpu}{figures['peak_rss_mb']:>11.0f} MB{bar}")


if __name__ == "__main__":
    main()

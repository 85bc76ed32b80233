"""Run demos under ``monitor run`` and keep what the monitor saw, for the tests of the rules.

Each side of a pair runs once, long enough for a trace. Its whole window goes, as JSON, to
``tests/data/windows/<fault>/<side>_<framework>.json.gz``, with the time of a step as the program
itself printed it ("12.3 ms a step") when both sides ran alone, in turns: what else the machine does
then slows both alike. The rules are tested against these without running anything.

Run: .venv/bin/python benchmarks/record_pairs.py [FAULT ...] [--framework NAME] [--seconds S]
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DEMOS = ROOT / "demo_workloads"
WINDOWS = ROOT / "tests" / "data" / "windows"
SIDES = ("before", "after")
# Stands in a recording for the folder of the project.
FOLDER = "/job/"
# The first trace comes ten seconds after the agent has gone in.
SECONDS = 18.0
# How often each side runs alone, and for how long.
TURNS, TURN_S = 3, 5.0
STEP = re.compile(r"([\d.,]+) ms a step")
PACE = re.compile(r"([\d.,]+) samples/s")
Printed = dict[str, float | None]
_PROGRAM = """
import json, sys
from pathlib import Path
from whyidle.monitor import diagnose
from whyidle.monitor.signals import opening, portable
window = opening.of_run(Path(sys.argv[1]) / "whyidle.db", "last")
found = diagnose.as_json(diagnose.diagnose(window))
json.dump({"window": portable.dump(window), "findings": found["findings"]}, sys.stdout)
"""


def pairs(faults: list[str], framework: str | None) -> list[tuple[str, str]]:
    """Return the pairs that there are: fault and framework."""
    found = sorted(DEMOS.glob(f"*/before_{framework or '*'}.py"))
    named = [(path.parent.name, path.stem.removeprefix("before_")) for path in found]
    return [pair for pair in named if not faults or pair[0] in faults]


def ran(script: Path, seconds: float) -> dict[str, Any]:
    """Run one program watched, and return its window and the time of its step."""
    with tempfile.TemporaryDirectory(prefix="whyidle-pair-") as state:
        environment = {**os.environ, "WHYIDLE_STATE_DIR": state}
        named = script.relative_to(ROOT) if script.is_relative_to(ROOT) else script
        program = [sys.executable, str(named), "--seconds", str(seconds)]
        done = subprocess.run(
            [sys.executable, "-m", "whyidle.monitor", "run", "-q", "--", *program],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"{script} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        told = subprocess.run(
            [sys.executable, "-c", _PROGRAM, state],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if told.returncode:
        sys.exit(f"{script} could not be diagnosed:\n{told.stderr}")
    found: dict[str, Any] = json.loads(told.stdout)
    return {**found, **_printed(done.stdout)}


def in_turns(before: Path, after: Path, turns: int = TURNS) -> tuple[Printed, Printed]:
    """Run two programs alone, one after the other and again; return what they printed, as means."""
    told: dict[Path, list[Printed]] = {before: [], after: []}
    for script in (before, after) * turns:
        done = subprocess.run(
            [sys.executable, str(script), "--seconds", str(TURN_S)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"{script} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        told[script].append(_printed(done.stdout))
    return _mean(told[before]), _mean(told[after])


def _printed(text: str) -> Printed:
    return {"step_ms": _last(STEP, text), "samples_per_s": _last(PACE, text)}


def _mean(some: list[Printed]) -> Printed:
    """Return the geometric means: what is asked for is a ratio."""
    means: Printed = {}
    for name in some[0]:
        known = [value for each in some if (value := each[name])]
        means[name] = math.exp(sum(map(math.log, known)) / len(known)) if known else None
    return means


def _last(like: re.Pattern[str], text: str) -> float | None:
    """Return the last number of that kind that a program printed."""
    found = like.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def keep(path: Path, told: dict[str, Any]) -> None:
    """Write one side of a pair, without the name of the folder that the project lies in."""
    text = json.dumps(told).replace(f"{ROOT}/", FOLDER)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def kept(path: Path) -> dict[str, Any]:
    """Read it again: rules look at the source of the demos, wherever these lie now."""
    text = gzip.decompress(path.read_bytes()).decode()
    told: dict[str, Any] = json.loads(text.replace(FOLDER, f"{ROOT}/"))
    return told


def faster(before: dict[str, Any], after: dict[str, Any]) -> float | None:
    """Return the speed-up: by samples, where both told, because a fix may change the batch."""
    if before.get("samples_per_s") and after.get("samples_per_s"):
        return float(after["samples_per_s"] / before["samples_per_s"])
    if before.get("step_ms") and after.get("step_ms"):
        return float(before["step_ms"] / after["step_ms"])
    return None


def main() -> None:
    """Record what was asked for, and print what was found."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    asked.add_argument("fault", nargs="*")
    asked.add_argument("--framework")
    asked.add_argument("--seconds", type=float, default=SECONDS)
    given = asked.parse_args()
    for fault, framework in pairs(given.fault, given.framework):
        sides = []
        scripts = [DEMOS / fault / f"{side}_{framework}.py" for side in SIDES]
        alone = in_turns(scripts[0], scripts[1])
        for side, script, printed in zip(SIDES, scripts, alone, strict=True):
            told = ran(script, given.seconds) | printed
            findings = told.pop("findings")
            sides.append(told)
            path = WINDOWS / fault / f"{side}_{framework}.json.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            keep(path, told)
            found = [f"{f['rule']} {f['severity']} {f['speedup']}" for f in findings[:4]]
            size = path.stat().st_size
            print(f"{fault} {side} {framework}: {told['step_ms']} ms a step, {size:,} B: {found}")
        gain = faster(*sides)
        print(f"{fault} {framework}: {'not told' if gain is None else f'{gain:.2f}x'}", flush=True)


if __name__ == "__main__":
    main()

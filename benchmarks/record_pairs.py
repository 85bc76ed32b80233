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
from typing import Any, TypedDict

from whyidle.monitor.demo.pairs import SIDES, Pair, all_pairs, interpreter, made, made_in
from whyidle.monitor.demo.printed import faster, printed

ROOT = Path(__file__).resolve().parent.parent
DEMOS = ROOT / "demo_workloads"
WINDOWS = ROOT / "tests" / "data" / "windows"
# Stands in a recording for the folder of the project.
FOLDER = "/job/"
# In it programs after a fix are no files; here they are, or where it may only be read, elsewhere.
_ELSEWHERE = None if os.access(ROOT, os.W_OK) else tempfile.TemporaryDirectory("-whyidle-demos")
MADE = f"{_ELSEWHERE.name if _ELSEWHERE else ROOT / 'build' / 'demos'}/"
_AFTER = re.compile(rf"{FOLDER}([\w/]+/after_\w+\.(?:py|jl))")
# The first trace comes ten seconds after the agent has gone in.
SECONDS = 18.0
# How often each side runs alone, and for how long.
TURNS, TURN_S = 3, 5.0
# A pair whose name is no rule's says which rule it is about.
ABOUT = {pair.name: pair.faults[0] for pair in all_pairs(DEMOS)}
Printed = dict[str, float | None]


class Recorded(TypedDict, total=False):
    """One side of a pair: the window that rules judge, and what the program printed."""

    window: dict[str, Any]
    findings: list[dict[str, Any]]
    step_ms: float | None
    samples_per_s: float | None


_PROGRAM = """
import json, sys
from pathlib import Path
import msgspec
from whyidle.monitor.diagnosis import diagnose
from whyidle.monitor.signals import opening, portable
window = opening.of_run(Path(sys.argv[1]) / "whyidle.db", "last")
found = diagnose.as_json(diagnose.diagnose(window))
findings = msgspec.to_builtins(found.findings)
json.dump({"window": portable.dump(window), "findings": findings}, sys.stdout)
"""


def pairs(faults: list[str], framework: str | None) -> list[Pair]:
    """Return the pairs that there are, but for stories."""
    found = [pair for pair in all_pairs(DEMOS) if not pair.is_story]
    mine = [pair for pair in found if framework in {None, pair.framework}]
    return [pair for pair in mine if not faults or pair.name in faults]


def ran(script: Path, seconds: float) -> Recorded:
    """Run one program watched, and return its window and the time of its step."""
    with tempfile.TemporaryDirectory(prefix="whyidle-pair-") as state:
        environment = {**os.environ, "WHYIDLE_STATE_DIR": state}
        # Where its path is short, and says nothing of this machine.
        folder = made_in() if script.is_relative_to(made_in()) else ROOT
        named = script.relative_to(folder) if script.is_relative_to(folder) else script
        program = [interpreter(script), str(named), "--seconds", str(seconds)]
        done = subprocess.run(
            [sys.executable, "-m", "whyidle.monitor", "run", "-q", "--", *program],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"{script} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        diagnosed = subprocess.run(
            [sys.executable, "-c", _PROGRAM, state],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if diagnosed.returncode:
        sys.exit(f"{script} could not be diagnosed:\n{diagnosed.stderr}")
    found: Recorded = json.loads(diagnosed.stdout)
    pace = printed(done.stdout)
    return {**found, "step_ms": pace["step_ms"], "samples_per_s": pace["samples_per_s"]}


def in_turns(before: Path, after: Path, turns: int = TURNS) -> tuple[Printed, Printed]:
    """Run two programs alone, one after the other and again; return what they printed, as means."""
    by_script: dict[Path, list[Printed]] = {before: [], after: []}
    for script in (before, after) * turns:
        done = subprocess.run(
            [interpreter(script), str(script), "--seconds", str(TURN_S)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"{script} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        by_script[script].append(printed(done.stdout))
    return _mean(by_script[before]), _mean(by_script[after])


def _mean(some: list[Printed]) -> Printed:
    """Return the geometric means: what is asked for is a ratio."""
    means: Printed = {}
    for name in some[0]:
        known = [value for each in some if (value := each[name])]
        means[name] = math.exp(sum(map(math.log, known)) / len(known)) if known else None
    return means


def keep(path: Path, recorded: Recorded) -> None:
    """Write one side of a pair, without the name of the folder that it lies in."""
    text = json.dumps(recorded).replace(f"{made_in()}/", FOLDER).replace(f"{ROOT}/", FOLDER)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def kept(path: Path) -> Recorded:
    """Read it again: rules look at the source of the demos, wherever these lie now."""
    text = gzip.decompress(path.read_bytes()).decode()
    programs = set(_AFTER.findall(text))
    # With all that lies in the folder: in the order of their paths lines stay where they are.
    for program in programs:
        made(ROOT / program, Path(MADE))
    recorded: Recorded = json.loads(text.replace(FOLDER, MADE if programs else f"{ROOT}/"))
    return recorded


def main() -> None:
    """Record what was asked for, and print what was found."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    asked.add_argument("fault", nargs="*")
    asked.add_argument("--framework")
    asked.add_argument("--seconds", type=float, default=SECONDS)
    given = asked.parse_args()
    wanted = pairs(given.fault, given.framework)
    if unknown := set(given.fault) - {pair.name for pair in wanted}:
        sys.exit(f"no before_*.py and fix_*.diff in demo_workloads/ for: {', '.join(unknown)}")
    for pair in wanted:
        fault, framework = pair.name, pair.framework
        sides = []
        alone = in_turns(pair.script("before"), pair.script("after"))
        for side, pace in zip(SIDES, alone, strict=True):
            recorded = ran(pair.script(side), given.seconds)
            recorded["step_ms"], recorded["samples_per_s"] = pace["step_ms"], pace["samples_per_s"]
            findings = recorded.pop("findings")
            sides.append(recorded)
            path = WINDOWS / fault / f"{side}_{framework}.json.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            keep(path, recorded)
            found = [f"{f['rule']} {f['severity']} {f['speedup']}" for f in findings[:4]]
            size = path.stat().st_size
            print(
                f"{fault} {side} {framework}: {recorded['step_ms']} ms a step, {size:,} B: {found}"
            )
        gain = faster(*sides)
        print(f"{fault} {framework}: {'not known' if gain is None else f'{gain:.2f}x'}", flush=True)


if __name__ == "__main__":
    main()

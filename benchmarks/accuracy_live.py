"""How the rules do live: every demo pair run several times, watched as a user would watch it.

First the program with the fault runs alone for a few seconds before ``monitor attach`` goes in as
anybody would call it: what counts is when the right finding is first reported. Then, in each round,
both sides run under ``monitor run`` as ``monitor demo`` runs them, for as long as it does. Pairs
come in random order in each round, the two sides of a pair next to each other in random order, so
that both meet the same machine. The healthy programs run too. The gain is measured by what the
programs print themselves.

The result goes into ``benchmarks/accuracy_live.json``, from which ``docs/accuracy.md`` is made.

All pairs take about 50 minutes; ``--more`` runs those that the kept result lacks.

Run: .venv/bin/python benchmarks/accuracy_live.py [FAULT ...] [--more] [--rounds N] [--seconds S]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from whyidle.monitor import compare
from whyidle.monitor.core.paths import database
from whyidle.monitor.demo import pairs
from whyidle.monitor.demo.outcome import of_runs, promised
from whyidle.monitor.demo.pairs import Pair
from whyidle.monitor.demo.printed import is_inside, printed
from whyidle.monitor.demo.watched import Watched, watch
from whyidle.monitor.diagnosis import diagnose
from whyidle.monitor.signals import opening
from whyidle.monitor.store.reader import Reader

RESULT = Path(__file__).with_name("accuracy_live.json")
# The job is warm when the monitor attaches.
ALONE_SECONDS = 2.0
# An attached monitor looks after 12 s first, and reports what lasts with its next look.
ATTACHED_SECONDS = 23.0
ROUNDS = 1
LOUD = ("high", "medium")


def attached(script: Path, label: str) -> tuple[Watched, float] | None:
    """Run a program, attach to it while it runs, and return that run and when it was attached.

    ``None``: a program whose fault is to be over soon was over before.
    """
    seconds = ALONE_SECONDS + ATTACHED_SECONDS
    job = [pairs.interpreter(script), str(script), "--seconds", f"{seconds:g}"]
    with subprocess.Popen(job, stdout=subprocess.PIPE, text=True) as program:
        started = time.monotonic()
        time.sleep(ALONE_SECONDS)
        if program.poll() is not None:
            return None
        began = time.time()
        line = ["attach", str(program.pid), "--json", "--label", label]
        watching = [sys.executable, "-m", "whyidle.monitor", *line]
        done = subprocess.run(watching, capture_output=True, text=True, check=False)
        out, _ = program.communicate()
        is_soon_over = time.monotonic() - started < seconds and not program.returncode
    if done.returncode and is_soon_over:
        return None
    if done.returncode or program.returncode:
        sys.exit(f"{script} could not be watched:\n{done.stderr}")
    run = int(json.loads(done.stdout.splitlines()[-1])["run"])
    return Watched(run, script, **printed(out)), began


def first_told(store: Path, run: int, rules: tuple[str, ...], began: float) -> float | None:
    """Return after how many seconds the right finding was reported."""
    reader = Reader.open(store)
    events = [event for event in reader.events(run) if event.kind == "finding"]
    right = [e for e in events if e.data and e.data["rule"] in rules and e.severity != "info"]
    return min((event.ts_ms / 1000 - began for event in right), default=None)


def met(pair: Pair, store: Path) -> dict[str, Any] | None:
    """Attach to the running program with the fault, and return what was found and when."""
    seen = attached(pair.script("before"), pair.name)
    if seen is None:
        return None
    watched, began = seen
    waited = first_told(store, watched.run, pair.faults, began)
    answer = diagnose.as_json(diagnose.diagnose(opening.of_run(store, str(watched.run))))
    found = answer.findings
    return {
        "told_after_s": None if waited is None else round(waited, 1),
        "found": [each.rule for each in found],
        "predicted": promised(each for each in found if each.rule in pair.faults),
    }


def once(pair: Pair, store: Path, seconds: float | None) -> dict[str, Any]:
    """Run both sides of a pair as a demo, and return what was found and measured."""
    seen = {
        side: watch(pair.script(side), seconds or pair.seconds, pair.name)
        for side in random.sample(pairs.SIDES, 2)
    }
    outcome = of_runs(store, pair, [(seen["before"], seen["after"])])
    left = [outcome.after.of(rule) for rule in pair.faults]
    return {
        "found": [f.rule for f in outcome.before.findings],
        "timed": [f.rule for f in outcome.before.findings if f.speedup],
        "left": [f and f.severity for f in left],
        "predicted": outcome.predicted,
        "measured": outcome.speedup,
        "as_predicted": outcome.is_as_predicted,
    }


def rounds(
    chosen: list[Pair], store: Path, number: int, seconds: float | None
) -> Iterator[dict[str, Any]]:
    """Yield each time that a pair was run; the first time it is attached to as well."""
    for each in range(number):
        for pair in random.sample(chosen, len(chosen)):
            row: dict[str, Any] = {
                "pair": pair.name,
                "framework": pair.framework,
                "faults": pair.faults,
            }
            if each == 0:
                row["attached"] = met(pair, store)
            row |= {**once(pair, store, seconds), "round": each + 1}
            row["as_told"] = as_told(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
            yield row


def as_told(row: dict[str, Any]) -> bool | None:
    """Return whether the gain is the one that ``attach`` predicted; ``None``: it predicted none."""
    seen = row.get("attached")
    if not seen or seen["predicted"] is None or row["measured"] is None:
        return None
    return is_inside(seen["predicted"], row["measured"])


def healthy(store: Path, seconds: float) -> Iterator[dict[str, Any]]:
    """Yield what was found in the programs with which nothing is wrong."""
    for name, script in pairs.healthy().items():
        side = compare.of_run(store, str(watch(script, seconds, name).run))
        found = diagnose.as_json(diagnose.diagnose(side.window)).findings
        loud = [f.rule for f in found if f.severity in LOUD]
        yield {"program": name, "found": loud}


def main() -> None:
    """Run what was asked for and keep the result."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("fault", nargs="*")
    asked.add_argument("--more", action="store_true", help="only pairs that were not run yet")
    asked.add_argument("--rounds", type=int, default=ROUNDS)
    asked.add_argument("--seconds", type=float, help="in place of what each demo takes")
    given = asked.parse_args()
    random.seed(1)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="whyidle-live-") as state:
        os.environ["WHYIDLE_STATE_DIR"] = state
        chosen = [p for p in pairs.all_pairs() if not given.fault or p.name in given.fault]
        result: dict[str, Any] = json.loads(RESULT.read_text()) if given.more else {}
        known = {(row["pair"], row["framework"]) for row in result.get("pairs", ())}
        chosen = [pair for pair in chosen if (pair.name, pair.framework) not in known]
        if not given.more:
            seconds = given.seconds or pairs.SECONDS
            found = [] if given.fault else list(healthy(database(), seconds))
            result = {"schema": 1, "minutes": 0.0, "pairs": [], "healthy": found}
        result["date"] = time.strftime("%Y-%m-%d")
        result["machine"] = f"{os.cpu_count()} cores, {platform.machine()}"
        before = result["minutes"]
        for row in rounds(chosen, database(), given.rounds, given.seconds):
            result["pairs"].append(row)
            result["minutes"] = round(before + (time.monotonic() - began) / 60, 1)
            # What is there is kept, also of a bench that is cut.
            if given.more or not given.fault:
                RESULT.write_text(json.dumps(result, indent=1) + "\n")
    if given.fault:
        print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

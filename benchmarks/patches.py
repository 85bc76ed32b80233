"""How ``monitor fix`` does: which findings get a patch, and whether it gives what the fix gives.

Run: .venv/bin/python benchmarks/patches.py                    what there is, from the source alone
     .venv/bin/python benchmarks/patches.py --measure [PAIR ...]    gains, too: a quiet machine
     .venv/bin/python benchmarks/patches.py --results [PAIR ...]    whether they compute the same
     .venv/bin/python benchmarks/patches.py --faultbench [FAMILY ...]    patches of programs there
     .venv/bin/python benchmarks/patches.py --faultbench --run [FAMILY ...]    and whether they run
Each goes on where the last one ended (``patches.json``), begins nothing that would end later than
--for S, and measures anew what has changed. ``figures.json`` has the figures under ``patches``.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import figures, patches_cases, patches_pairs  # noqa: E402  found by the line above
from whyidle.monitor.demo.pairs import installed  # noqa: E402

RESULT: Final = Path(__file__).with_name("patches.json")
Known = dict[str, dict[str, dict[str, Any]]]


def summary(known: Known) -> dict[str, Any]:
    """Return the figures."""
    have = [row for row in known["pairs"].values() if row["codemod"]]
    measured = [row for row in have if "reaches" in row]
    logs = [math.log(statistics.median(row["patched"])) for row in measured]
    return {
        "pairs": len(known["pairs"]),
        "pairs with a patch": len(have),
        "measured": len(measured),
        "patched program reaches the gain of the fix": sum(row["reaches"] for row in measured),
        "compared": sum("results" in row for row in have),
        "results kept": sum(row.get("results") == "equal" for row in have),
        "tolerance": patches_pairs.TOLERANCE,
        "gain": round(math.exp(statistics.fmean(logs)), 2) if logs else None,
        "faultbench": patches_cases.summary(known["cases"]),
    }


def _pairs(known: Known, given: argparse.Namespace, until: float) -> None:
    """Measure, or compare, what has no answer yet."""
    longest = 0.0
    for name, pair in patches_pairs.pairs().items():
        row = known["pairs"][name]
        is_asked = pair.name in given.names or not given.names
        is_asked = is_asked and installed(pair.framework)
        asked = {"results", "reaches"} if given.measure else {"results"}
        done = asked <= set(row) and not given.names
        if not row["codemod"] or not is_asked or done or time.monotonic() + longest > until:
            continue
        began = time.monotonic()
        one = patches_pairs.patched(pair)
        try:
            with patches_pairs.forks(one) as run:
                if given.measure and ("reaches" not in row or given.names):
                    row |= patches_pairs.gains(one, run)
                row |= patches_pairs.same(one, run)
        except patches_pairs.Failed as failed:
            print(f"{name}: {failed}", file=sys.stderr, flush=True)
        print(f"{name}: {row}", flush=True)
        keep("pairs", {name: row})
        longest = max(longest, time.monotonic() - began)


def read() -> Known:
    """Return what is known."""
    known = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    return {part: known.get(part, {}) for part in ("pairs", "cases")}


def keep(part: str, rows: Mapping[str, Mapping[str, Any]]) -> Known:
    """Write rows down beside what others write at the same time; return all that is known."""
    with RESULT.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = read()
        for name, row in rows.items():
            old = known[part].get(name, {})
            same = old.get("digest") == row.get("digest") and old.get("stamp") == row.get("stamp")
            known[part][name] = {**(old if same else {}), **row}
        ordered = {name: dict(sorted(found.items())) for name, found in known.items()}
        RESULT.write_text(json.dumps(ordered, indent=1) + "\n")
    return known


def main() -> None:
    """Print what there is; measure what was asked for."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("names", nargs="*", metavar="PAIR or FAMILY")
    asked.add_argument("--measure", action="store_true")
    asked.add_argument("--results", action="store_true")
    asked.add_argument("--faultbench", action="store_true")
    asked.add_argument("--run", action="store_true")
    asked.add_argument("--for", dest="seconds", type=float, default=3600.0, metavar="S")
    asked.add_argument("--json", action="store_true")
    given = asked.parse_args()
    until = time.monotonic() + given.seconds
    known = read()
    patches_pairs.refresh(known["pairs"])
    keep("pairs", known["pairs"])
    if given.faultbench:
        for name, row in patches_cases.rows(known["cases"], given.names, until, run=given.run):
            print(f"{name}: {row}", flush=True)
            keep("cases", {name: row})
    if given.measure or given.results:
        _pairs(known, given, until)
    known = read()
    found = summary(known)
    if given.json:
        print(json.dumps(found))
        return
    figures.keep("patches", found)
    if not (given.measure or given.results or given.faultbench):
        for name, row in known["pairs"].items():
            print(f"{name}: {row['codemod'] or row['why']}")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

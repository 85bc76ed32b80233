"""Faults put into ordinary programs that nobody tuned to, and what is said of each.

Truth, recording and judgement of a case are kept apart, so that a changed rule is judged on all
recordings in minutes. Whatever is there is not made again: a run that was cut goes on.

Run: .venv/bin/python -m benchmarks.faultbench [truth] [record] [own] [judge] [--family F]
     [--fault M] [--sample N] [--side S] [--due N] [--anew] [--report]
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final, get_args

from benchmarks.faultbench.cases import HEALTHY, Case, Side, cases, due, sample
from benchmarks.faultbench.jobs import Failed
from benchmarks.faultbench.judge import judged
from benchmarks.faultbench.recordings import NAME, record
from benchmarks.faultbench.report import each_of, scored, scores_of
from benchmarks.faultbench.truth import is_fault, measured, own

HERE: Final = Path(__file__).parent
TRUTH: Final = HERE / "truth.json"
RESULTS: Final = HERE / "results.json"
# The same cases, judged by the rules of before.
BEFORE: Final = HERE / "before.json"
REASONS: Final = HERE / "reasons.toml"
STAGES: Final = ("truth", "record", "own", "judge")
# So many programs stand still in memory while one runs.
AT_ONCE: Final = 8


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def _write(path: Path, kept: Any) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    new.replace(path)


def _batched(some: list[Case], size: int) -> Iterator[list[Case]]:
    for first in range(0, len(some), size):
        yield some[first : first + size]


def measure(chosen: list[Case], *, anew: bool) -> None:
    """Measure what each fault costs."""
    known = _read(TRUTH)
    missing = [c for c in chosen if c.fault != HEALTHY and (anew or c.id not in known)]
    missing.sort(key=lambda c: (c.family, c.scale))
    for (family, scale), some in itertools.groupby(missing, key=lambda c: (c.family, c.scale)):
        for batch in _batched(list(some), AT_ONCE):
            twin = Case(family, HEALTHY, scale, 0)
            began = time.monotonic()
            found = measured([twin, *batch])
            known = _read(TRUTH) | found
            _write(TRUTH, known)
            for case in batch:
                print(f"{case.id}: {found.get(case.id)}", flush=True)
            print(f"  {time.monotonic() - began:.0f} s for {len(batch)}", flush=True)


def watch(chosen: list[Case], recordings: Path, *, anew: bool) -> None:
    """Record each case that is not recorded yet."""
    known = _read(TRUTH)
    for case in chosen:
        path = recordings / NAME.format(case.id)
        if (path.exists() and not anew) or "failed" in known.get(case.id, {}):
            continue
        began = time.monotonic()
        try:
            seen = record(case, recordings)
        except Failed as error:
            print(f"{case.id}: {error}", flush=True)
            continue
        said = f"exit {seen['exit']} {seen['stderr'][-200:]}" if seen["exit"] else "recorded"
        size = path.stat().st_size / 1e6
        print(f"{case.id}: {said}, {size:.2f} MB, {time.monotonic() - began:.0f} s", flush=True)


def measure_due(chosen: list[Case], most: int) -> list[Case]:
    """Measure so many faults more; return all that are known to cost something."""
    failed = 0
    while most > 0 and (some := due(chosen, _read(TRUTH), min(most, AT_ONCE))):
        measure(some, anew=False)
        most -= len(some)
        # A program that does not start is due again: once more is enough.
        failed = failed + 1 if some[0].id not in _read(TRUTH) else 0
        if failed > 1:
            print(f"{some[0].twin} makes no steps; --family names others", flush=True)
            break
    known = _read(TRUTH)
    return [c for c in chosen if is_fault(known.get(c.id, {}).get("gain", (1.0, 1.0)))]


def measure_own(chosen: list[Case], *, anew: bool) -> None:
    """Measure what curing a fault gives that was found before the one that was put in."""
    ids = {case.id: case for case in chosen}
    rows = _read(RESULTS)["cases"]
    # What only the fault brings with it is no fault of the healthy program's.
    said = {row["case"]: {rule for rule, *_ in row["found"]} for row in rows if row["is_healthy"]}
    for row in rows:
        case = ids.get(row["case"])
        if case is None or not row["is_fault"] or row["right_first"] or not row["found"]:
            continue
        for rule, cured in case.cured:
            if row["found"][0][0] != rule or rule not in said.get(case.twin, ()):
                continue
            if anew or cured.id not in _read(TRUTH):
                found = measured([Case(case.family, HEALTHY, case.scale, 0), cured])
                _write(TRUTH, _read(TRUTH) | found)
                print(f"{cured.id}: {found}", flush=True)


def judge(chosen: list[Case], recordings: Path) -> Iterator[dict[str, Any]]:
    """Yield the row of each recorded case."""
    known = _read(TRUTH)
    there = []
    for case in chosen:
        truth = known.get(case.id, {"gain": [1.0, 1.0, 1.0]} if case.fault == HEALTHY else {})
        path = recordings / NAME.format(case.id)
        if path.exists() and "gain" in truth:
            there.append((case, path, truth, own(case, known)))
    with ProcessPoolExecutor() as pool:
        yield from pool.map(judged, *zip(*there, strict=True)) if there else ()


def asked() -> argparse.Namespace:
    """Return what was asked for on the command line."""
    wanted = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    wanted.add_argument("stage", nargs="*", help="of " + ", ".join(STAGES))
    wanted.add_argument("--family", action="append", default=[])
    wanted.add_argument("--fault", action="append", default=[])
    wanted.add_argument("--sample", type=int, help="so many cases, of each family in turn")
    wanted.add_argument("--side", choices=get_args(Side), help="only families of this side")
    wanted.add_argument(
        "--due",
        type=int,
        metavar="N",
        help="measure N faults more, and record those that cost something",
    )
    wanted.add_argument("--anew", action="store_true", help="also what is there already")
    wanted.add_argument("--recordings", type=Path, default=HERE / "recordings")
    wanted.add_argument("--report", action="store_true", help="only print what was judged last")
    wanted.add_argument("--list", action="store_true", help="only print the cases")
    given = wanted.parse_args()
    given.stage = given.stage or list(STAGES)
    if unknown := set(given.stage) - set(STAGES):
        wanted.error(f"no such stage: {min(unknown)}; there are {', '.join(STAGES)}")
    return given


def report(rows: list[dict[str, Any]], *, whole: bool) -> None:
    """Print the scores; those of all cases are kept."""
    found = {"schema": 1, **scored(rows), "cases": rows}
    if whole:
        _write(RESULTS, found)
    print(json.dumps({side: found[side] for side in ("tune", "heldout")}, indent=1))


def shown(families: Sequence[str] = (), faults: Sequence[str] = ()) -> str:
    """Return the scores of what was judged last, next to those before it, in Markdown."""
    now, before = (_kept(path, families, faults) for path in (RESULTS, BEFORE))
    return scores_of(now, before)


def each_shown(families: Sequence[str] = (), faults: Sequence[str] = ()) -> str:
    """Return each family, fault and miss of what was judged last, in Markdown."""
    reasons = tomllib.loads(REASONS.read_text()) if REASONS.exists() else {}
    return each_of(_kept(RESULTS, families, faults), reasons)


def _kept(path: Path, families: Sequence[str], faults: Sequence[str]) -> list[dict[str, Any]]:
    return [
        row
        for row in _read(path).get("cases", [])
        if (not families or row["family"] in families) and (not faults or row["fault"] in faults)
    ]


def main() -> None:
    """Do what was asked for."""
    given = asked()
    if next(cases(given.family, given.fault), None) is None:
        families, faults = ({getattr(c, name) for c in cases()} for name in ("family", "fault"))
        sys.exit(
            "There is no such case.\n"
            f"Families: {', '.join(sorted(families))}.\nFaults: {', '.join(sorted(faults))}."
        )
    if given.report:
        print(shown(given.family, given.fault), each_shown(given.family, given.fault), sep="\n")
        return
    chosen = [c for c in cases(given.family, given.fault) if given.side in (None, c.side)]
    if given.sample:
        chosen = sample(chosen, given.sample)
    if given.list:
        for case in chosen:
            print(f"{case.id} {case.side} {case.watched_s}")
        print(f"{len(chosen)} cases", file=sys.stderr)
        return
    do(given, chosen)


def do(given: argparse.Namespace, chosen: list[Case]) -> None:
    """Run the stages that were asked for."""
    watched = chosen
    if given.due is not None:
        watched = measure_due(chosen, given.due)
    elif "truth" in given.stage:
        measure(chosen, anew=given.anew)
    if "record" in given.stage:
        watch(watched, given.recordings, anew=given.anew)
    if "own" in given.stage:
        measure_own(chosen, anew=given.anew)
    if "judge" in given.stage:
        whole = not (given.family or given.fault or given.sample or given.side)
        report(list(judge(chosen, given.recordings)), whole=whole)


if __name__ == "__main__":
    main()

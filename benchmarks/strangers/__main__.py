"""Public programs as their authors left them: watched, judged, and the advice followed literally.

Recording, measured gains and judgement of a case are kept apart, so that a changed rule is judged
on all recordings in minutes. Whatever is there is not made again: a run that was cut goes on.

Run: .venv/bin/python -m benchmarks.strangers [record] [gains] [judge] [--mirrors DIR] [--case C]
     [--kind K] [--side S] [--again] [--report] [--list]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final, get_args

from benchmarks.strangers.cases import Case, Side, cases
from benchmarks.strangers.checkout import NotAtHand
from benchmarks.strangers.gains import measured
from benchmarks.strangers.jobs import Failed
from benchmarks.strangers.judge import judged
from benchmarks.strangers.report import at_first_sight, programs, scored, scores_of
from benchmarks.strangers.watch import record

HERE: Final = Path(__file__).parent
GAINS: Final = HERE / "gains.json"
RESULTS: Final = HERE / "results.json"
FIRST_SIGHT: Final = HERE / "first_sight.toml"
STAGES: Final = ("record", "gains", "judge")
NAME: Final = "{}.tar.xz"
# So many programs are held in memory while one runs.
AT_ONCE: Final = 3


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def _write(path: Path, kept: Any) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    new.replace(path)


def watch(chosen: list[Case], given: argparse.Namespace) -> None:
    """Record each case that is not recorded yet."""
    for case in chosen:
        path = given.recordings / NAME.format(case.name)
        if path.exists() and not given.again:
            continue
        began = time.monotonic()
        try:
            seen = record(case, given.mirrors, given.recordings)
        except (Failed, NotAtHand) as error:
            print(f"{case.name}: {error}", flush=True)
            continue
        said = f"exit {seen['exit']} {seen['stderr'][-300:]}" if seen["exit"] else "recorded"
        print(f"{case.name}: {said}, {time.monotonic() - began:.0f} s", flush=True)


def measure(chosen: list[Case], given: argparse.Namespace) -> None:
    """Measure what each change gives."""
    for case in chosen:
        known = _read(GAINS)
        mine = known.get(case.name, {})
        missing = [c for c in case.changes if given.again or c.name not in mine]
        for first in range(0, len(missing), AT_ONCE):
            some = missing[first : first + AT_ONCE]
            try:
                found = measured(case, some, given.mirrors)
            except (Failed, NotAtHand) as error:
                print(f"{case.name}: {error}", flush=True)
                break
            mine |= found
            _write(GAINS, known | {case.name: mine})
            for name, each in found.items():
                print(f"{case.name} {name}: {each}", flush=True)


def _row(case: Case, path: Path, gains: dict[str, Any], mirrors: Path | None) -> dict[str, Any]:
    return judged(case, path, gains, mirrors)


def judge(chosen: list[Case], given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the row of each recorded case."""
    gains = _read(GAINS)
    there = [
        (case, path, gains.get(case.name, {}), given.mirrors)
        for case in chosen
        if case.truth and (path := given.recordings / NAME.format(case.name)).exists()
    ]
    with ProcessPoolExecutor() as pool:
        yield from pool.map(_row, *zip(*there, strict=True)) if there else ()


def asked() -> argparse.Namespace:
    """Return what was asked for on the command line."""
    wanted = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    wanted.add_argument("stage", nargs="*", help="of " + ", ".join(STAGES))
    wanted.add_argument("--mirrors", type=Path, help="clones at hand; others are cloned")
    wanted.add_argument("--case", action="append", default=[])
    wanted.add_argument("--kind", action="append", default=[])
    wanted.add_argument("--side", choices=get_args(Side), help="only repositories of this side")
    wanted.add_argument("--again", action="store_true", help="also what is there already")
    wanted.add_argument("--recordings", type=Path, default=HERE / "recordings")
    wanted.add_argument("--report", action="store_true", help="only print what was judged last")
    wanted.add_argument("--list", action="store_true", help="only print the cases")
    given = wanted.parse_args()
    given.stage = given.stage or list(STAGES)
    if unknown := set(given.stage) - set(STAGES):
        wanted.error(f"no such stage: {min(unknown)}; there are {', '.join(STAGES)}")
    return given


def shown() -> str:
    """Return the scores of what was judged last, in Markdown."""
    seen = tomllib.loads(FIRST_SIGHT.read_text("utf-8"))
    return scores_of(_read(RESULTS).get("cases", [])) + "\n" + at_first_sight(seen)


def each_shown() -> str:
    """Return each program, and what was said of it last, in Markdown."""
    truths = {case.name: case.truth for case in cases()}
    return programs(_read(RESULTS).get("cases", []), truths)


def main() -> None:
    """Do what was asked for."""
    given = asked()
    chosen = [c for c in cases(given.case, given.kind) if given.side in (None, c.side)]
    if not chosen:
        there = sorted(case.name for case in cases())
        sys.exit(f"There is no such case. Cases: {', '.join(there)}.")
    if given.report:
        print(shown(), each_shown(), sep="\n")
        return
    if given.list:
        for case in chosen:
            state = "healthy" if case.healthy else f"{len(case.changes)} changes"
            state = state if case.truth else "not profiled yet"
            print(f"{case.name} {case.kind} {case.side} {case.repository} {state}")
        print(f"{len(chosen)} cases", file=sys.stderr)
        return
    do(chosen, given)


def do(chosen: list[Case], given: argparse.Namespace) -> None:
    """Run the stages that were asked for."""
    if "record" in given.stage:
        watch(chosen, given)
    if "gains" in given.stage:
        measure(chosen, given)
    if "judge" in given.stage:
        rows = list(judge(chosen, given))
        found = {"schema": 1, **scored(rows), "cases": rows}
        if not (given.case or given.kind or given.side):
            _write(RESULTS, found)
        print(json.dumps(found if given.case else {s: found[s] for s in get_args(Side)}, indent=1))


if __name__ == "__main__":
    main()

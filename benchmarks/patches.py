"""How ``monitor fix`` does: which findings get a patch, and whether it gives what the fix gives.

Over the demo pairs: the findings of the recordings (``record_pairs.py``), the patch of each, and
with ``--measure`` the program before, patched, and with the pair's own fix, in turns, and what they
compute. Over faultbench: each family with each fault in it, the lines of the fault as where it
was found; every patch must compile. What was measured stays in ``patches.json``.

Run: .venv/bin/python benchmarks/patches.py [--measure [PAIR ...]] [--json]
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.faultbench.cases import cases  # noqa: E402  found by the line above
from benchmarks.record_pairs import DEMOS, WINDOWS, kept  # noqa: E402
from whyidle.monitor import fixes  # noqa: E402
from whyidle.monitor.demo import results  # noqa: E402
from whyidle.monitor.demo.pairs import all_pairs, interpreter  # noqa: E402
from whyidle.monitor.demo.printed import CLOSE, faster, printed  # noqa: E402
from whyidle.monitor.diagnosis import diagnose  # noqa: E402
from whyidle.monitor.signals.portable import load  # noqa: E402

RESULT = Path(__file__).with_name("patches.json")
TURNS, SECONDS = 3, 2.5
# Within the first epoch of each loader: workers that stay alive shuffle in another order after it.
STEPS, TOLERANCE = 8, 1e-3
# So many programs of faultbench are run, before and after their patch.
SAMPLE = 6
WRITTEN_FOR_CPU = {"JAX_PLATFORMS": "cpu"}


def pairs() -> Iterator[tuple[str, str, fixes.Patch | None, list[str]]]:
    """Yield each recorded pair with the patch of its finding, or why there is none."""
    for pair in all_pairs(DEMOS):
        path = WINDOWS / pair.name / f"before_{pair.framework}.json.gz"
        if pair.is_story or not path.exists():
            continue
        window = load(kept(path)["window"])
        answer = diagnose.as_json(diagnose.diagnose(window))
        answer["findings"] = [f for f in answer["findings"] if f["rule"] == pair.faults[0]]
        cores = window.cores
        count = os.cpu_count() or 1 if cores is None else int(cores.value)
        found = fixes.fix(answer, fixes.by_rule(), count)
        patch = found.patches[0][1] if found.patches else None
        yield pair.name, pair.framework, patch, [r.why for _, why in found.refused for r in why]


# Measured ----------------------------------------------------------------------------------------
def measured(name: str, framework: str, patch: fixes.Patch) -> dict[str, Any]:
    """Run a pair's programs in turns, and compare what they compute."""
    pair = next(p for p in all_pairs(DEMOS) if (p.name, p.framework) == (name, framework))
    with tempfile.TemporaryDirectory(prefix="whyidle-patch-") as folder:
        path = Path(folder) / pair.script("before").name
        path.write_text(patch.after)
        sides = {"before": pair.script("before"), "patched": path, "after": pair.script("after")}
        pace: dict[str, list[dict[str, float | None]]] = collections.defaultdict(list)
        for turn in range(TURNS):
            for side in list(sides) if turn % 2 == 0 else reversed(list(sides)):
                pace[side].append(printed(_ran(sides[side], "--seconds", str(SECONDS))))
        same = compared(sides["before"], path)
    gains = {
        side: [g for a, b in zip(pace["before"], pace[side], strict=True) if (g := faster(a, b))]
        for side in ("patched", "after")
    }
    low = min(gains["after"])
    middle = statistics.median(gains["patched"])
    return {
        "patched": [round(x, 3) for x in gains["patched"]],
        "after": [round(x, 3) for x in gains["after"]],
        "reaches": middle >= (1 - CLOSE) * low,
        "results": same.equal,
        "difference": same.difference,
        "compared": same.compared,
    }


def compared(before: Path, after: Path) -> results.Results:
    """Compare the arrays that both programs end with."""
    wrapper = Path(__file__).with_name("results_of.py")
    said = [
        _ran(script, "--steps", str(STEPS), "--seconds", "1000", wrapper=wrapper)
        for script in (before, before, after)
    ]
    return results.compared(said[:2], said[2:], TOLERANCE)


def _ran(script: Path, *arguments: str, wrapper: Path | None = None) -> str:
    words = [interpreter(script), *([str(wrapper)] if wrapper else []), str(script), *arguments]
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=180,
        env={**os.environ, **WRITTEN_FOR_CPU},
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


# Faultbench --------------------------------------------------------------------------------------
def faults() -> dict[str, Any]:
    """Return how many programs with a fault get a patch, and what stops the others."""
    by_rule = fixes.by_rule()
    done: dict[str, collections.Counter[str]] = {
        side: collections.Counter() for side in ("tune", "heldout")
    }
    why: collections.Counter[str] = collections.Counter()
    seen: set[tuple[str, str]] = set()
    for case in cases():
        if case.mutation is None or (case.family, case.fault) in seen:
            continue
        seen.add((case.family, case.fault))
        count = done[case.side]
        count["programs"] += 1
        mine = [rule for rule in case.mutation.faults if rule in by_rule]
        if not mine:
            count["no codemod"] += 1
            continue
        with tempfile.TemporaryDirectory() as folder:
            lines = case.program().write(Path(folder))
            patch, refused = _patched(Path(folder), lines, mine[:1])
        count["patched" if patch else "refused"] += 1
        if patch:
            compile(patch.after, patch.file, "exec")
        else:
            why.update([refused[0] if refused else "nothing is written as it expects"])
    return {
        "sides": {side: dict(count) for side, count in done.items()},
        "why": dict(why.most_common(12)),
    }


def _patched(
    folder: Path, lines: list[tuple[str, int]], rules: list[str]
) -> tuple[fixes.Patch | None, list[str]]:
    wanted: dict[str, list[int]] = collections.defaultdict(list)
    for file, line in lines:
        wanted[str(folder / file)].append(line)
    for path in sorted(folder.rglob("*.py")):
        wanted.setdefault(str(path), [])
    refused: list[str] = []
    for rule in rules:
        texts = [(file, Path(file).read_text()) for file in wanted if wanted[file]] or [
            (file, Path(file).read_text()) for file in wanted
        ]
        asked = {file: fixes.Wanted(rule, tuple(wanted[file]), 2) for file, _ in texts}
        patch, why = fixes.patches_of(fixes.for_rule(rule), texts, asked)
        refused += [f"{each.codemod}: {each.why}" for each in why]
        if patch is not None:
            return patch, refused
    return None, refused


# The answer --------------------------------------------------------------------------------------
def summary(known: dict[str, Any]) -> dict[str, Any]:
    """Return the figures."""
    every = list(pairs())
    have = [(name, framework) for name, framework, patch, _ in every if patch is not None]
    runs = {key: found for key, found in known.items() if tuple(key.split()) in have}
    gains = [math.log(statistics.median(found["patched"])) for found in runs.values()]
    return {
        "pairs": len(every),
        "pairs with a patch": len(have),
        "measured": len(runs),
        "patched program reaches the gain of the fix": sum(f["reaches"] for f in runs.values()),
        "results kept": sum(f["results"] == "equal" for f in runs.values()),
        "gain": round(math.exp(statistics.fmean(gains)), 2) if gains else None,
        "faultbench": faults(),
    }


def main() -> None:
    """Print what there is; measure what was asked for."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("pair", nargs="*")
    asked.add_argument("--measure", action="store_true")
    asked.add_argument("--json", action="store_true")
    given = asked.parse_args()
    known: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    if given.measure:
        for name, framework, patch, why in pairs():
            if patch is None or (given.pair and name not in given.pair):
                if not given.pair:
                    print(f"{name} {framework}: no patch: {why}")
                continue
            known[f"{name} {framework}"] = measured(name, framework, patch)
            print(f"{name} {framework}: {known[f'{name} {framework}']}", flush=True)
            RESULT.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")
        return
    figures = summary(known)
    if given.json:
        print(json.dumps(figures))
        return
    for name, framework, patch, why in pairs():
        print(f"{name} {framework}: {patch.codemod if patch else why}")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()

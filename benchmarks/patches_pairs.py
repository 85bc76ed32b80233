"""Demo pairs with the patch of their finding: what it gains beside the fix by hand, and computes.

Three programs take turns: before, patched, and with the pair's own fix. A patch reaches the fix
where its middle gain is no lower than the lowest that a turn gave the fix, to a few percent.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import os
import re
import statistics
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from benchmarks.forks import IMPORTS, Forks
from benchmarks.record_pairs import DEMOS, WINDOWS, kept
from benchmarks.results_of import DIGEST
from whyidle.monitor import fixes
from whyidle.monitor.demo import results
from whyidle.monitor.demo.pairs import Pair, all_pairs, interpreter
from whyidle.monitor.demo.printed import CLOSE, faster, printed
from whyidle.monitor.diagnosis import diagnose
from whyidle.monitor.signals.portable import load

ROOT: Final = Path(__file__).resolve().parent.parent
TURNS, SECONDS = 3, 1.5
# Within the first epoch of each loader: workers that stay alive shuffle in another order after it.
STEPS, TOLERANCE = 8, 1e-3
LONGEST_S: Final = 120


class Failed(Exception):  # noqa: N818  what happened to a program
    """A program of a pair did not end well."""


@dataclass(frozen=True, slots=True)
class Patched:
    """A pair with the patch of its finding, or with what stops it."""

    pair: Pair
    patch: fixes.Patch | None
    why: list[str]

    @property
    def row(self) -> dict[str, Any]:
        """What is known of it without running it."""
        found: dict[str, Any] = {"codemod": None, "why": self.why[:2]}
        if self.patch is not None:
            text = f"{self.patch.before}\0{self.patch.after}"
            found |= {"codemod": self.patch.codemod, "digest": digest(text)}
        return found


def digest(*texts: str) -> str:
    """Return texts in a few letters."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


def stamp(rules: Iterable[str]) -> str:
    """Return the codemods of rules in a few letters: what others have found is found anew."""
    return _stamp(tuple(sorted({each.id for rule in rules for each in fixes.for_rule(rule)})))


@functools.cache
def _stamp(codemods: tuple[str, ...]) -> str:
    texts: dict[str, str] = {}
    left = [f"fixes/{name}" for name in ("_patching", "_findings", *codemods)]
    while left:
        name = left.pop()
        if name not in texts:
            texts[name] = (Path(fixes.__file__).parent.parent / f"{name}.py").read_text()
            found = re.findall(r"monitor\.(fixes|code)\.(\w+) import", texts[name])
            left += ["/".join(room) for room in found]
    return digest(*(texts[name] for name in sorted(texts)))


def pairs() -> dict[str, Pair]:
    """Return each recorded pair by its name and framework."""
    return {
        f"{pair.name} {pair.framework}": pair
        for pair in all_pairs(DEMOS)
        if not pair.is_story and _recording(pair).exists()
    }


def patched(pair: Pair) -> Patched:
    """Return the patch of what was found in a pair."""
    window = load(kept(_recording(pair))["window"])
    answer = diagnose.as_json(diagnose.diagnose(window))
    mine = [f for f in answer.findings if f.rule == pair.faults[0]]
    cores = window.cores
    count = os.cpu_count() or 1 if cores is None else int(cores.value)
    found = fixes.fix(replace(answer, findings=mine), fixes.by_rule(), count)
    patch = found.patches[0][1] if found.patches else None
    return Patched(pair, patch, [r.why for _, why in found.refused for r in why])


def refresh(known: dict[str, dict[str, Any]]) -> None:
    """Find the patches of all pairs anew where the codemods have changed."""
    every = pairs()
    for name, pair in every.items():
        now, old = stamp(pair.faults), known.get(name, {})
        if old.get("stamp") == now:
            continue
        new = patched(pair).row
        # What was measured holds for the same patch of the same program.
        same_patch = "digest" in new and new["digest"] == old.get("digest")
        known[name] = {**(old if same_patch else {}), **new, "stamp": now}
    for name in set(known) - set(every):
        del known[name]


def _recording(pair: Pair) -> Path:
    return WINDOWS / pair.name / f"before_{pair.framework}.json.gz"


# Measured ----------------------------------------------------------------------------------------
def gains(one: Patched, run: Forks) -> dict[str, Any]:
    """Run the three programs in turns; return how much faster two of them are than the first."""
    pace: dict[str, list[dict[str, float | None]]] = collections.defaultdict(list)
    with _sides(one) as sides:
        for turn in range(TURNS):
            names = list(sides)
            for side in names[turn % 3 :] + names[: turn % 3]:
                pace[side].append(printed(_said(run, sides[side], "--seconds", str(SECONDS))))
    found = {
        side: [g for a, b in zip(pace["before"], pace[side], strict=True) if (g := faster(a, b))]
        for side in ("patched", "after")
    }
    return {
        "patched": [round(x, 3) for x in found["patched"]],
        "after": [round(x, 3) for x in found["after"]],
        "reaches": statistics.median(found["patched"]) >= (1 - CLOSE) * min(found["after"]),
    }


def same(one: Patched, run: Forks) -> dict[str, Any]:
    """Compare the arrays that the program and the patched one end with: weights and losses."""
    wrapper = Path(__file__).with_name("results_of.py")
    with _sides(one) as sides:
        said = [
            _said(run, wrapper, str(sides[side]), "--steps", str(STEPS), "--seconds", "1000")
            for side in ("before", "before", "patched")
        ]
    # Not what else they print: what is looked at less often shows other values by design.
    said = ["\n".join(x for x in text.splitlines() if x.startswith(DIGEST)) for text in said]
    found = results.compared(said[:2], said[2:], TOLERANCE)
    return {
        "results": found.equal,
        "difference": found.difference,
        "compared": found.compared,
        "result": found.why,
    }


def forks(one: Patched) -> Forks:
    """Return where the programs of a pair run."""
    python = interpreter(one.pair.script("before"))
    return Forks(python, IMPORTS[one.pair.framework])


def _said(run: Forks, script: Path, *arguments: str) -> str:
    """Run a program; return what it printed."""
    status, text = run([str(script), *arguments], ROOT, LONGEST_S)
    if status:
        raise Failed(f"{script} {' '.join(arguments)} ended with {status}:\n{text}")
    return text


class _sides:  # noqa: N801  a function but for its type
    """The three programs as files, while the block runs."""

    def __init__(self, one: Patched) -> None:
        assert one.patch is not None
        self._one, self._patch = one.pair, one.patch
        self._folder = tempfile.TemporaryDirectory(prefix="whyidle-patch-")

    def __enter__(self) -> dict[str, Path]:
        before = self._one.script("before")
        path = Path(self._folder.name) / before.name
        path.write_text(self._patch.after)
        return {"before": before, "patched": path, "after": self._one.script("after")}

    def __exit__(self, *_error: object) -> None:
        self._folder.cleanup()

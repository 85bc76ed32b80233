"""Patches of the programs of faultbench: which there are, and that none breaks its program.

Each fault in each family, with the lines of the fault as what was found; and each recording, with
the findings of its diagnosis. A program with a patch then runs as it was and patched, some steps
each: it must end as well, with the same losses and weights.
"""

from __future__ import annotations

import collections
import difflib
import functools
import json
import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks import patches_pairs
from benchmarks.faultbench.cases import HEALTHY, Case, cases
from benchmarks.faultbench.jobs import JOBS, PYTHON, without_places, written
from benchmarks.faultbench.program import KINDS, Anchor, NotApplicable, Program
from benchmarks.faultbench.recordings import NAME, opened
from benchmarks.forks import IMPORTS, Forks
from benchmarks.patches_pairs import digest
from whyidle.monitor import fixes
from whyidle.monitor.diagnosis import diagnose
from whyidle.monitor.signals.opening import of_run

RECORDINGS: Final = Path(__file__).with_name("faultbench") / "recordings"
STEPS, SECONDS, TIMEOUT_S = 12, 6.0, 45
# Fewer steps than this compare nothing.
FEWEST: Final = 3
TOLERANCE: Final = 1e-3
SEEN: Final = ("ran", "steps", "step_s", "difference", "nudged", "says")
# Runs whose weights move by a ten-millionth after each step, beside a patch that differs by more.
NUDGES: Final = 5
CORES: Final = 2
# Behind the name of a case: by the findings of its recording.
RECORDED: Final = " recorded"
# What a program of the bench calls after each step.
_TOLD: Final = """
import json, os, signal, sys, time
sys.path.append(os.environ["TOLD_FROM"])
from results_of import digests
losses, since, nudges = [], [], []
def nudge(model):
    # Each weight up or down by a ten-millionth, as another order of adding moves it.
    import torch
    nudges.append(1)
    drawn = torch.Generator().manual_seed(int(os.environ["TOLD_NUDGE"]) + 1000 * len(nudges))
    with torch.no_grad():
        for each in model.parameters():
            signs = torch.randint(0, 2, each.shape, generator=drawn) * 2 - 1
            each.mul_(1 + 2**-23 * signs)
def told(loss, of=None):
    if "TOLD_NUDGE" in os.environ:
        # On all ranks alike.
        nudge(of)
    ranks = sys.modules.get("torch.distributed")
    if ranks is not None and ranks.is_initialized() and ranks.get_rank():
        return
    losses.append(loss.detach() if hasattr(loss, "detach") else loss)
    since.append(time.perf_counter())
    if len(losses) < int(os.environ["TOLD_STEPS"]) and since[-1] - since[0] < {seconds}:
        return
    values = [float(x.mean() if hasattr(x, "mean") else x) for x in losses]
    ends = list(digests("of", of).values())
    step_s = (time.perf_counter() - since[0]) / max(1, len(values) - 1)
    print("\\n" + json.dumps(dict(losses=values, ends=ends, step_s=step_s)), flush=True)
    # With its workers, which would wait for it.
    os.killpg(0, signal.SIGKILL)
"""


@dataclass(slots=True)
class Found:
    """What ``monitor fix`` says of one program."""

    before: dict[str, str]
    texts: dict[str, str] = field(default_factory=dict)
    codemods: list[str] = field(default_factory=list)
    why: list[str] = field(default_factory=list)
    outcome: str = "refused"

    @property
    def digest(self) -> str:
        """Its changes in a few letters."""
        return digest(json.dumps([self.before, self.texts], sort_keys=True))


def rows(
    known: Mapping[str, Mapping[str, Any]], families: Sequence[str], until: float, *, run: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows that are new, or of other codemods than there are now."""
    longest = 0.0
    # Drawn by hash: a run that ends early has seen some of all families.
    for key, case in sorted(_every(families), key=lambda each: digest(each[0])):
        old = known.get(key, {})
        stamp = _stamp(key, case)
        is_new = old.get("stamp") != stamp
        wants_run = run and old.get("outcome") == "patched" and "ran" not in old
        if not (is_new or wants_run) or time.monotonic() + longest > until:
            continue
        began = time.monotonic()
        found = _of_findings(case) if key.endswith(RECORDED) else _of_lines(case)
        row = {"stamp": stamp, "side": case.side, "outcome": found.outcome}
        row |= {"codemods": found.codemods, "why": found.why[:2]}
        if found.texts:
            row["digest"] = found.digest
            if row["digest"] == old.get("digest"):
                # What was seen of it holds for the same patch of the same program.
                row |= {name: old[name] for name in SEEN if name in old}
            if run and "ran" not in row:
                row |= _seen(case, found)
                longest = max(longest, time.monotonic() - began)
        yield key, row


def _stamp(key: str, case: Case) -> str:
    rules = (
        case.mutation.faults if case.mutation and not key.endswith(RECORDED) else fixes.by_rule()
    )
    return patches_pairs.stamp(rules)


def summary(known: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return how many programs get a patch, and what became of them, by side."""
    sides: dict[str, collections.Counter[str]] = {
        side: collections.Counter() for side in ("tune", "heldout")
    }
    why: collections.Counter[str] = collections.Counter()
    for row in known.values():
        count = sides[row["side"]]
        count["programs"] += 1
        count[row["outcome"]] += 1
        if "ran" in row:
            count["ran"] += 1
            count[row["ran"]] += 1
        if row["outcome"] == "refused" and row["side"] == "tune":
            why.update(row["why"][:1])
    return {
        "sides": {side: dict(sorted(count.items())) for side, count in sides.items()},
        "tolerance": TOLERANCE,
        "why": dict(why.most_common(12)),
    }


def _every(families: Sequence[str]) -> Iterator[tuple[str, Case]]:
    for case in cases(families):
        if (RECORDINGS / NAME.format(case.id)).exists():
            yield f"{case.id}{RECORDED}", case
        if case.fault != HEALTHY:
            yield case.id, case


# From the source ---------------------------------------------------------------------------------
def _of_findings(case: Case) -> Found:
    """Return the patches of what the diagnosis of a recording finds."""
    folder, _, _ = written(case)
    with opened(RECORDINGS / NAME.format(case.id)) as (store, _):
        answer = diagnose.as_json(diagnose.diagnose(of_run(store, "last")))
    got = fixes.fix(answer, fixes.by_rule(), CORES)
    found = Found(_texts(folder))
    found.texts = {str(Path(file).relative_to(folder)): text for file, text in got.texts.items()}
    found.codemods = [patch.codemod for _, patch in got.patches]
    found.why = [f"{each.codemod}: {each.why}" for _, why in got.refused for each in why
                 if each.codemod]  # fmt: skip
    return _judged(found, known=bool(found.why))


def _of_lines(case: Case) -> Found:
    """Return the patch of the fault that was put in, found at its lines."""
    mutation = case.mutation
    assert mutation is not None
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        lines = case.program().write(folder)
        found = Found(_texts(folder))
    wanted: dict[str, list[int]] = collections.defaultdict(list)
    for file, line in lines:
        wanted[file].append(line)
    # As for a job: where it was found, then anywhere else.
    files = [*wanted, *(name for name in found.before if name not in wanted)]
    mine = [rule for rule in mutation.faults if fixes.for_rule(rule)]
    for rule in mine:
        texts = [(file, found.before[file]) for file in files]
        asked = {file: fixes.Wanted(rule, tuple(wanted[file]), CORES) for file in files}
        patch, why = fixes.patches_of(fixes.for_rule(rule), texts, asked)
        found.why += [f"{each.codemod}: {each.why}" for each in why]
        if patch is not None:
            found.texts[patch.file] = patch.after
            found.codemods.append(patch.codemod)
            break
    return _judged(found, known=bool(mine))


def _judged(found: Found, *, known: bool) -> Found:
    if found.texts:
        found.outcome = "patched"
        for file, text in found.texts.items():
            compile(text, file, "exec")
    elif not known:
        found.outcome = "no codemod"
    elif not found.why:
        found.why = ["nothing is written as it expects"]
    return found


def _texts(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*.py"))}


# Run ---------------------------------------------------------------------------------------------
def _seen(case: Case, found: Found) -> dict[str, Any]:
    try:
        return _compared(case, found)
    except NotApplicable as error:
        return {"ran": "unknown", "says": str(error)}


def _compared(case: Case, found: Found) -> dict[str, Any]:
    """Run it as it was and patched; return what became of the patched one."""
    program = case.program()
    after = {**found.before, **found.texts}
    first = _ran(case, program, found.before, found.before)
    if isinstance(first, str):
        return {"ran": "unknown", "says": f"as it was: {first}"}
    second = _ran(case, program, found.before, after)
    if isinstance(second, str):
        return {"ran": "broken", "says": second}
    steps, apart = _apart(first, second)
    answer = {
        "ran": "equal",
        "steps": steps,
        "difference": apart,
        "step_s": [round(first["step_s"], 5), round(second["step_s"], 5)],
    }
    if steps < FEWEST:
        return {**answer, "ran": "unknown", "says": "too few steps"}
    if apart > TOLERANCE:
        again = _ran(case, program, found.before, found.before)
        repeats = not isinstance(again, str) and _apart(first, again)[1] <= TOLERANCE
        answer["ran"] = "different" if repeats else "unknown"
        answer["says"] = "" if repeats else "the program does not repeat itself"
        if repeats and program.framework == "torch":
            moved = _nudged(case, found.before, first, steps)
            # Among several of its kind it is not the one that stands out.
            answer |= {"nudged": moved} if moved else {}
            if apart <= max(moved, default=0.0):
                answer["ran"] = "rounding"
    return answer


def _nudged(
    case: Case, before: Mapping[str, str], first: Mapping[str, Any], steps: int
) -> list[float]:
    """Return how far rounding takes the program in as many steps, without any patch."""
    runs = [_ran(case, case.program(), before, before, nudge=seed) for seed in range(NUDGES)]
    some = [_apart(first, run, steps) for run in runs if not isinstance(run, str)]
    return [distance for made, distance in some if made == steps]


def _apart(
    one: Mapping[str, Any], other: Mapping[str, Any], most: int | None = None
) -> tuple[int, float]:
    """Return how many steps both made, at most so many, and the largest difference as a share."""
    losses = list(zip(one["losses"], other["losses"], strict=False))[:most]
    values = list(losses)
    if len(one["losses"]) == len(other["losses"]) == len(losses) and len(one["ends"]) == len(
        other["ends"]
    ):
        # The sizes of the weights; their sums are near zero.
        values += [(a[1], b[1]) for a, b in zip(one["ends"], other["ends"], strict=True)]
    return len(losses), max((_share(a, b) for a, b in values), default=math.inf)


def _share(a: float, b: float) -> float:
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    found = abs(a - b) / max(abs(a), abs(b))
    return found if math.isfinite(found) else math.inf


def _ran(
    case: Case,
    program: Program,
    before: Mapping[str, str],
    texts: Mapping[str, str],
    nudge: int | None = None,
) -> dict[str, Any] | str:
    """Run a program for some steps; return what it told, or how it failed."""
    step = program.anchor("step", "loss")
    JOBS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=JOBS, prefix="patched-") as place:
        folder = Path(place)
        for file, text in texts.items():
            told = _telling(program, step, before[file], text) if file == step.file else text
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(told)
        (folder / "_told.py").write_text(_TOLD.replace("{seconds}", str(SECONDS)))
        environment = {
            **program.environment,
            "TOLD_STEPS": str(STEPS),
            "TOLD_FROM": str(Path(__file__).parent),
            **({} if nudge is None else {"TOLD_NUDGE": str(nudge)}),
        }
        words = [str(folder / "main.py"), "--scale", f"{case.scale:g}"]
        status, out = _forks(program.framework)(words, folder, TIMEOUT_S, environment)
    lines = [line for line in out.splitlines() if line.startswith('{"losses"')]
    if not lines:
        return f"ended with {status}: {without_places(out.strip())[-300:]}"
    told_: dict[str, Any] = json.loads(lines[-1])
    return told_


@functools.cache
def _forks(framework: str) -> Forks:
    return Forks(PYTHON, IMPORTS[framework])


def _telling(program: Program, step: Anchor, before: str, text: str) -> str:
    """Return a text with a call after each step, where the mark of the step stood before."""
    # Marks are left out of what is written.
    marks = sum(each.line < step.line for kind in KINDS for each in program.anchors(kind)
                if each.file == step.file)  # fmt: skip
    at = _moved(before.splitlines(), text.splitlines(), step.line - marks)
    lines = text.splitlines()
    of = next((f", {step.names[name]}" for name in ("params", "model") if name in step.names), "")
    lines.insert(at, f"{step.indent}_told.told({step.list('loss')[0]}{of})")
    head = next(
        i for i, line in enumerate(lines)
        if line.startswith(("import ", "from ")) and "__future__" not in line
    )  # fmt: skip
    lines.insert(head, "import _told")
    return "\n".join(lines) + "\n"


def _moved(before: list[str], after: list[str], line: int) -> int:
    """Return where a place between two lines lies after a change: by the line below, or above."""
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    pieces = matcher.get_opcodes()
    for kind, a, _, c, _ in pieces:
        if kind == "equal" and a == line:
            return c
    for kind, a, b, c, d in pieces:
        if kind == "equal" and a < line <= b:
            return c + line - a
        if line == b:
            # All of what was changed stood before it.
            return d
    raise NotApplicable("the step ends in what was changed")

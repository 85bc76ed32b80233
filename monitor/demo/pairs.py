"""Which demos there are: each fault before and after its fix, stories of two faults, healthy jobs.

A demo is found by the name of its file; what it shows is the name of its folder. A story says in
its first lines which faults it has, the largest first: ``Faults: unjitted_step, tiny_work``; what
is not seen at once says so where it says how it is run: ``--seconds 20  # 18 show it``.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

from whyidle.monitor.core.errors import Problem, UsageProblem

Side = Literal["before", "after"]
SIDES: Final[tuple[Side, Side]] = ("before", "after")
PACKAGE: Final = "whyidle.demo_workloads"
STORIES, HEALTHY = "combined", "healthy"
WORDS: Final = {"jax": "JAX", "torch": "PyTorch", "tensorflow": "TensorFlow", "julia": "Julia"}
# Programs in another language than ours: how their files end; what runs them has their name.
ENDINGS: Final = {"julia": ".jl"}
# What runs by default: one of each kind, none of them long.
CURATED: Final = (("retracing", "jax"), ("input_starved", "torch"), ("unjitted_step", "jax"))
INSTALL: Final = "pip install 'whyidle[demo]'"
INSTALL_TENSORFLOW: Final = "pip install tensorflow"
INSTALL_JULIA: Final = "put the command `julia` on the PATH"
_FAULTS: Final = re.compile(r"^Faults: (.+)$", re.MULTILINE)
_SHOWS: Final = re.compile(
    r"^(?:# )?Run: (?:python|julia) .* --seconds \d+  # (\d+) show it$", re.MULTILINE
)
# Enough for a trace and some stretches of steps; three pairs are then through in 90 s.
SECONDS: Final = 7.0
_RUN_LINE: Final = re.compile(r"^(?:# )?Run: \w+ \S+/(?:before|after)_\w+\.(?:py|jl) ")


@dataclass(frozen=True, slots=True)
class Pair:
    """One job before and after its fix."""

    name: str
    framework: str
    folder: Path
    # The rules that are to find it, the largest first.
    faults: tuple[str, ...]
    # How long each side runs by default.
    seconds: float = SECONDS

    def script(self, side: Side) -> Path:
        """Return the program of one side."""
        return self.folder / f"{side}_{self.framework}{ENDINGS.get(self.framework, '.py')}"

    @property
    def about(self) -> str:
        """What it trains, in the words of the program."""
        first = self.script("before").read_text("utf-8").partition("\n")[0]
        return first.strip('"# ')

    @property
    def is_story(self) -> bool:
        """Whether it has several faults at once."""
        return len(self.faults) > 1


@dataclass(frozen=True, slots=True)
class Changed:
    """A line that the fix takes away or adds."""

    line: int
    text: str
    is_new: bool


def folder() -> Path:
    """Return where the demos lie; they are run, never imported."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise Problem("The demos are not installed.", f"Install them: {INSTALL}")
    return Path(next(iter(spec.submodule_search_locations)))


def all_pairs(root: Path | None = None) -> list[Pair]:
    """Return every pair, by name; the stories last."""
    root = root or folder()
    return [*_pairs(root), *_pairs(root / STORIES)]


def healthy(root: Path | None = None) -> dict[str, Path]:
    """Return the jobs with which nothing is wrong, by name."""
    found = sorted(((root or folder()) / HEALTHY).glob("*_*.*"))
    return {path.stem: path for path in found if path.suffix in {".py", *ENDINGS.values()}}


def _pairs(root: Path) -> Iterator[Pair]:
    for before in sorted(root.glob("*/before_*.*")):
        if before.suffix not in {".py", *ENDINGS.values()}:
            continue
        if not before.with_name(before.name.replace("before_", "after_")).exists():
            continue
        text = before.read_text("utf-8")
        faults_line, shows = _FAULTS.search(text), _SHOWS.search(text)
        name = before.parent.name
        faults = tuple(faults_line[1].split(", ")) if faults_line else (name,)
        seconds = float(shows[1]) if shows else SECONDS
        yield Pair(name, before.stem.removeprefix("before_"), before.parent, faults, seconds)


def installed(framework: str) -> bool:
    """Tell whether a demo of this framework can run here."""
    return runner(framework) is not None


def runner(framework: str) -> str | None:
    """Return the command that runs its programs: Python, or one on the PATH or beside ours."""
    if framework not in ENDINGS:
        # Jobs need not share an environment with the monitor: TensorFlow has one of its own here.
        own = Path(sys.prefix) / framework / "bin" / "python"
        if find_spec(framework) is not None:
            return sys.executable
        return str(own) if own.exists() else None
    beside = os.pathsep.join((os.environ.get("PATH", ""), str(Path(sys.executable).parent)))
    return shutil.which(framework, path=beside)


def interpreter(script: Path) -> str:
    """Return the command that runs a program."""
    by_ending = (name for name, end in ENDINGS.items() if script.suffix == end)
    framework = next(by_ending, None)
    if framework is not None:
        return runner(framework) or framework
    return runner(script.stem.rpartition("_")[2]) or sys.executable


def named(name: str, framework: str | None, pairs: Sequence[Pair] | None = None) -> Pair:
    """Return the pair that is meant; of several frameworks one that is installed."""
    pairs = all_pairs() if pairs is None else pairs
    mine = [pair for pair in pairs if pair.name == name]
    if not mine:
        near = difflib.get_close_matches(name, {pair.name for pair in pairs}, 3, 0.5)
        then = " or ".join(f"monitor demo {each}" for each in near)
        hint = f"Did you mean: {then}" if near else "List them: monitor demo --list"
        raise UsageProblem(f"There is no demo of '{name}'.", hint)
    fit = [pair for pair in mine if framework in {None, pair.framework}]
    if not fit:
        raise UsageProblem(
            f"There is no demo of {name} for {WORDS.get(framework or '', framework)}.",
            f"Type: monitor demo {name} --framework {mine[0].framework}",
        )
    return next((pair for pair in fit if installed(pair.framework)), fit[0])


def missing(frameworks: Sequence[str]) -> Problem:
    """Return what to say where a framework is not there."""
    names = " and ".join(WORDS.get(each, each) for each in frameworks)
    is_are = "are" if len(frameworks) > 1 else "is"
    return Problem(f"{names} {is_are} not installed here, and the demo needs it.", how(frameworks))


def how(frameworks: Sequence[str]) -> str:
    """Return how these are installed."""
    other = {"julia": INSTALL_JULIA, "tensorflow": INSTALL_TENSORFLOW}
    ways = {other.get(each, INSTALL) for each in frameworks}
    return "   and: ".join(sorted(ways, reverse=True))


def change(pair: Pair) -> list[Changed]:
    """Return the lines that the fix takes away and adds; the files' own names are no difference."""
    before, after = (pair.script(side).read_text("utf-8").splitlines() for side in SIDES)
    found = []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            continue
        found += [Changed(i + 1, before[i], is_new=False) for i in range(a, b)]
        found += [Changed(i + 1, after[i], is_new=True) for i in range(c, d)]
    return [each for each in found if not _RUN_LINE.match(each.text)]

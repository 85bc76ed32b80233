"""Which demos there are: each fault before and after its fix, stories of two faults, healthy jobs.

A demo is found by the name of its file; what it shows is the name of its folder. A story says in
its first lines which faults it has, the largest first: ``Faults: unjitted_step, tiny_work``; what
is not seen at once says so where it says how it is run: ``--seconds 20  # 18 show it``.

The program after a fix, ``after_torch.py``, is ``before_torch.py`` with ``fix_torch.diff``.
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

from whyidle.monitor.core.errors import Problem, StorageProblem, UsageProblem
from whyidle.monitor.core.installed import to_install
from whyidle.monitor.core.paths import VARIABLE, state_dir
from whyidle.monitor.demo.patch import applied

Side = Literal["before", "after"]
SIDES: Final[tuple[Side, Side]] = ("before", "after")
PACKAGE: Final = "whyidle.demo_workloads"
STORIES, HEALTHY = "combined", "healthy"
WORDS: Final = {"jax": "JAX", "torch": "PyTorch", "tensorflow": "TensorFlow", "julia": "Julia"}
# Programs in another language than ours: how their files end; what runs them has their name.
ENDINGS: Final = {"julia": ".jl"}
# What runs by default: one of each kind, none of them long.
CURATED: Final = (("retracing", "jax"), ("input_starved", "torch"), ("unjitted_step", "jax"))
INSTALL_TENSORFLOW: Final = "pip install tensorflow"
INSTALL_JULIA: Final = "put the command `julia` on the PATH"
_FAULTS: Final = re.compile(r"^Faults: (.+)$", re.MULTILINE)
# Where it lies, and how long it must run.
_RUN: Final = re.compile(
    r"^(?:# )?Run: (?:python|julia) (\S+) --seconds \d+(?:  # (\d+) show it)?$", re.MULTILINE
)
# Enough for a trace and some stretches of steps; three pairs are then through in 90 s.
SECONDS: Final = 7.0


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
        """Return the program of one side, as a file; that of the fix is made beside recordings."""
        name = self._name(side)
        return name if side == "before" else made(name, made_in())

    def text(self, side: Side) -> str:
        """Return the program of one side."""
        return text_of(self._name(side))

    def _name(self, side: Side) -> Path:
        return self.folder / f"{side}_{self.framework}{ENDINGS.get(self.framework, '.py')}"

    @property
    def fix(self) -> str:
        """What is different after the fix, as a patch."""
        return _patch_of(self._name("before")).read_text("utf-8")

    @property
    def about(self) -> str:
        """What it trains, in the words of the program."""
        return self.text("before").partition("\n")[0].strip('"# ')

    @property
    def is_story(self) -> bool:
        """Whether it has several faults at once."""
        return len(self.faults) > 1


def folder() -> Path:
    """Return where the demos lie; they are run, never imported."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise Problem("The demos are not installed.", f"Install them: {to_install('demo')}")
    # In a checkout the package has it as a link, beyond which git applies no patch.
    return Path(next(iter(spec.submodule_search_locations))).resolve()


def text_of(program: Path) -> str:
    """Return a program by its place among the demos, where one after its fix is no file."""
    side, _, rest = program.name.partition("_")
    if side != "after":
        return program.read_text("utf-8")
    before = program.with_name(f"before_{rest}")
    text = applied(before.read_text("utf-8"), _patch_of(program).read_text("utf-8"))
    # Where it says how it is run.
    return text.replace(before.name, program.name)


def _patch_of(program: Path) -> Path:
    return program.with_name(f"fix_{program.name.partition('_')[2]}").with_suffix(".diff")


def made_in() -> Path:
    """Return the folder of the programs that are made: recordings there name lines of theirs."""
    return state_dir() / "demos"


def made(program: Path, into: Path) -> Path:
    """Write a program into a folder, at the place where it says that it is run."""
    text = text_of(program)
    said = _RUN.search(text)
    path = into / (said[1] if said else program.name)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # Another demo may run it.
        if not path.exists() or path.read_text("utf-8") != text:
            into.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(text, "utf-8")
            part.replace(path)
    except OSError as error:
        raise StorageProblem(
            f"{path} cannot be written: {error.strerror}.",
            f"Choose another folder: {VARIABLE}=/path/to/folder",
        ) from None
    return path


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
        if not _patch_of(before).exists():
            continue
        text = before.read_text("utf-8")
        faults_line, run_line = _FAULTS.search(text), _RUN.search(text)
        name = before.parent.name
        faults = tuple(faults_line[1].split(", ")) if faults_line else (name,)
        seconds = float(run_line[2] or SECONDS) if run_line else SECONDS
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
    ways = {other.get(each, to_install("demo")) for each in frameworks}
    return "   and: ".join(sorted(ways, reverse=True))

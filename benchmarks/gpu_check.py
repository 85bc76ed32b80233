"""See on a real GPU what the monitor does there, and bring back what the tests replay without one.

Needs a machine with one NVIDIA GPU, with jax or torch, and what the monitor needs; no network, and
nothing is installed: the checkout is imported as it lies, a package that is missing comes as a
wheel. It ends in nine minutes, whatever happens, and what was done until then is kept. Nothing on
the GPU is changed. Afterwards `benchmarks/gpu_keep.py OUT` puts it among the tests' recordings.

Run: python benchmarks/gpu_check.py --out OUT [--wheels DIR] [--only NAME...]
     python benchmarks/gpu_check.py --list

--quick is a first look in a minute or two, also without a GPU: on the CPU, with the tests' NVML.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from gpu_checks import paths  # noqa: E402  found by the line above

if TYPE_CHECKING:
    from gpu_checks import runner

# What must not be missing comes first; the pairs take all the time that is left.
CHECKS = ("starts", "record", "attach", "totals", "claims", "cost", "pairs")
# Long, and of use once: by name only.
BY_NAME = ("sample",)
MINUTES = 9.0
QUICK_SECONDS = 60.0
NEEDED = ("click", "msgspec", "numpy", "pynvml", "rich")
# Kept for the last check to end and for the archive.
SPARE_SECONDS = 10.0


def main() -> int:
    """Run what is asked for; return the exit code: 1 where a check failed."""
    options = parse()
    if options.list:
        return show_list()
    if options.one:
        return one(options)
    if options.out is None:
        print("Where shall it be written? Name a folder: --out FOLDER", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _stop)
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as work:
        paths.prepare(Path(work), options.wheels)
        sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
        if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
            print(f"Missing here: {', '.join(missing)}.", file=sys.stderr)
            print("Bring their wheels along: --wheels DIR", file=sys.stderr)
            return 2
        return everything(options, Path(work))


def everything(options: argparse.Namespace, work: Path) -> int:
    """Run the checks, one after the other."""
    from gpu_checks import machine, runner  # noqa: PLC0415  on the path now

    facts = machine.facts() | {"quick": options.quick}
    is_real = facts["model"] is not None and not facts["fake"]
    if not is_real and not options.quick:
        print("There is no GPU here. Look whether it would run: --quick", file=sys.stderr)
        return 5
    options.out.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + options.minutes * 60 - SPARE_SECONDS
    words = shlex.join(["gpu_check.py", *said(options)])
    job = runner.Job(options.out, work, facts, words, until)
    more = ["--quick"] if options.quick else []
    more += ["--gpu"] if is_real else []
    more += ["--pairs", *options.pairs] if options.pairs else []
    try:
        names = list(options.only or CHECKS)
        for i, name in enumerate(names):
            job.run(
                name,
                limit_of(names[i:], until, options),
                runner.command_of(Path(__file__), name, work, *more),
            )
    except KeyboardInterrupt:
        print("Interrupted: what was done until now is kept.", file=sys.stderr)
        return 130
    finally:
        job.pack()
        print(f"{options.out}: {', '.join(sorted(p.name for p in options.out.iterdir()))}")
    show(job, options.wheels)
    return int(any(check["verdict"] == "failed" for check in job.checks))


def show(job: runner.Job, wheels: Path | None) -> None:
    """Print what each check came to, and how to go on where there was no time."""
    for line in job.lines():
        print(line)
    if names := job.without_time("pairs"):
        print(f"Without time were {len(names)} pairs. Go on, with another folder, by:")
        more = f" --wheels {wheels}" if wheels else ""
        print(f"  gpu_check.py --out OUT{more} --only pairs --pairs {' '.join(names)}")


def one(options: argparse.Namespace) -> int:
    """Be one check, in a process of its own."""
    from gpu_checks.room import Room  # noqa: PLC0415

    signal.signal(signal.SIGTERM, _stop)
    folder = options.work / options.one
    room = Room(folder, options.until, options.gpu, options.quick, tuple(options.pairs))
    module_of(options.one).run(room)
    return 0


def module_of(name: str) -> Any:
    """Return a check."""
    return importlib.import_module(f"gpu_checks.{name}")


def seconds_of(name: str) -> float:
    """Return what a check may take, as its file says; it needs nothing to be imported for."""
    text = (HERE / "gpu_checks" / f"{name}.py").read_text()
    return float(next(x for x in text.splitlines() if x.startswith("SECONDS = ")).split("=")[1])


def limit_of(names: list[str], until: float, options: argparse.Namespace) -> float:
    """Return what the first of those that are left may take: its own, and what others saved."""
    left = until - time.monotonic()
    if options.quick and len(names) > 1:
        return min(left, QUICK_SECONDS)
    return max(seconds_of(names[0]), left - sum(map(seconds_of, names[1:])))


def show_list() -> int:
    """List the checks, with what they look at and the most that they take."""
    for name in (*CHECKS, *BY_NAME):
        about = (HERE / "gpu_checks" / f"{name}.py").read_text().partition("\n")[0].strip('"')
        also = " (by name only: --only)" if name in BY_NAME else ""
        print(f"{name:<8}{seconds_of(name):>5.0f} s  {about}{also}")
    return 0


def said(options: argparse.Namespace) -> list[str]:
    """Return the options as they belong into a recording: no folder of this machine."""
    words = ["--quick"] if options.quick else []
    words += ["--only", *options.only] if options.only else []
    words += ["--pairs", *options.pairs] if options.pairs else []
    return [*words, "--minutes", f"{options.minutes:g}"] if options.minutes != MINUTES else words


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, help="where the report and the recordings go")
    parser.add_argument("--wheels", type=Path, help="a folder of wheels that are missing here")
    parser.add_argument("--only", nargs="+", choices=(*CHECKS, *BY_NAME), metavar="NAME")
    parser.add_argument("--pairs", nargs="+", default=[], metavar="PAIR", help="instead of all")
    parser.add_argument("--list", action="store_true", help="say which checks there are")
    parser.add_argument("--quick", action="store_true", help="a first look, also without a GPU")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="it ends by then")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--gpu", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

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
import importlib
import importlib.util
import os
import shlex
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.gpu import machine, runner

# The most seconds that each takes, its module, and what it looks at. What must not be missing comes
# first; the pairs take all the time that is left.
CHECKS = {
    "starts": (60, "jobs", "The frameworks come up and see the GPU: a first start, and a second."),
    "record": (100, "recordings", "NVML on tape: what gpu_record.py found beside the notes."),
    "attach": (170, "jobs", "Jobs on the GPU are entered in every way: stops, and what they lose."),
    "totals": (40, "profilers", "Our times beside those of torch's key_averages and JAX's reader."),
    "claims": (10, "profilers", "What the notes claim of a GPU, each beside what is seen here."),
    "cost": (
        90,
        "jobs",
        "What a job pays for the agent, with and without it in turns; and traces.",
    ),
    "pairs": (80, "recordings", "The demo pairs: the first finding, predicted and measured gain."),
    "sample": (330, "recordings", "The runs that `monitor dashboard --sample` shows."),
}
# Long, and of use once: by name only.
BY_NAME = ("sample",)
MINUTES, QUICK_SECONDS = 9.0, 60.0
# Kept for the last check to end and for the archive.
SPARE_SECONDS = 10.0
NEEDED = ("click", "msgspec", "numpy", "pynvml", "rich")


def main() -> int:
    """Run what is asked for; return the exit code: 1 where a check failed."""
    options = parse()
    if options.list:
        for name, (seconds, _, about) in CHECKS.items():
            also = " (by name only: --only)" if name in BY_NAME else ""
            print(f"{name:<8}{seconds:>5.0f} s  {about}{also}")
        return 0
    signal.signal(signal.SIGTERM, _stop)
    if options.one:
        check = runner.Check(
            options.work, options.until, options.gpu, options.quick, tuple(options.pairs)
        )
        module = importlib.import_module(f"benchmarks.gpu.{CHECKS[options.one][1]}")
        getattr(module, options.one)(check)
        return 0
    if options.out is None:
        print("Where shall it be written? Name a folder: --out FOLDER", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as work:
        machine.prepare(Path(work), options.wheels)
        sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
        if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
            print(f"Missing here: {', '.join(missing)}.", file=sys.stderr)
            print("Bring their wheels along: --wheels DIR", file=sys.stderr)
            return 2
        return everything(options, Path(work))


def everything(options: argparse.Namespace, work: Path) -> int:
    """Run the checks, one after the other."""
    facts = machine.facts() | {"quick": options.quick}
    is_real = facts["model"] is not None and not facts["fake"]
    if not is_real and not options.quick:
        print("There is no GPU here. Look whether it would run: --quick", file=sys.stderr)
        return 5
    options.out.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + options.minutes * 60 - SPARE_SECONDS
    # As they belong into a recording: no folder of this machine.
    asked = ["--quick"] if options.quick else []
    pairs = ["--pairs", *options.pairs] if options.pairs else []
    words = ["gpu_check.py", *asked, *(["--only", *options.only] if options.only else []), *pairs]
    words += ["--minutes", f"{options.minutes:g}"] if options.minutes != MINUTES else []
    checkup = runner.Checkup(options.out, work, facts, shlex.join(words), until)
    more = [*asked, *(["--gpu"] if is_real else []), *pairs, "--until"]
    names = options.only or [name for name in CHECKS if name not in BY_NAME]
    try:
        for i, name in enumerate(names):
            command = [sys.executable, __file__, "--one", name, "--work", str(work / name), *more]
            checkup.run(name, limit_of(names[i:], until, options), command)
    except KeyboardInterrupt:
        print("Interrupted: what was done until now is kept.", file=sys.stderr)
        return 130
    finally:
        checkup.pack()
        print(f"{options.out}: {', '.join(sorted(p.name for p in options.out.iterdir()))}")
    print(*map(runner.line, checkup.checks), sep="\n")
    if left := checkup.without_time("pairs"):
        print(f"Without time were {len(left)} pairs. Go on, with another folder, by:")
        wheels = f" --wheels {options.wheels}" if options.wheels else ""
        print(f"  gpu_check.py --out OUT{wheels} --only pairs --pairs {' '.join(left)}")
    return int(any(check["verdict"] == "failed" for check in checkup.checks))


def limit_of(names: list[str], until: float, options: argparse.Namespace) -> float:
    """Return what the first of those that are left may take: its own, and what others saved."""
    left = until - time.monotonic()
    if options.quick and len(names) > 1:
        return min(left, QUICK_SECONDS)
    own, *others = (CHECKS[name][0] for name in names)
    return max(own, left - sum(others))


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, help="where the report and the recordings go")
    parser.add_argument("--wheels", type=Path, help="a folder of wheels that are missing here")
    parser.add_argument("--only", nargs="+", choices=CHECKS, metavar="NAME")
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

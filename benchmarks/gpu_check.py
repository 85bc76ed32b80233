"""See on a real GPU what the monitor does there, and bring back what the tests replay without one.

Needs a machine with one NVIDIA GPU, with jax or torch, and what the monitor needs; no network, and
nothing is installed: the checkout is imported as it lies, a package that is missing comes as a
wheel. It ends in nine minutes, whatever happens, and what was done until then is kept. Nothing on
the GPU is changed. Afterwards `benchmarks/gpu_keep.py OUT` puts it among the tests' recordings.

Run: python benchmarks/gpu_check.py --out OUT [--wheels DIR] [--only NAME...]

--quick is a first look in a minute or two, also without a GPU: on the CPU, with the tests' NVML.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shlex
import signal
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.gpu import runner  # noqa: E402  found by the line above

# The most seconds that each takes, its module, and what it looks at. What must not be missing comes
# first; the pairs take all the time that is left.
CHECKS = {
    "record": (100, "recordings", "NVML on tape: what gpu_record.py found next to the notes."),
    "attach_torch": (130, "jobs", "A PyTorch job is entered in every way: stops, what it loses."),
    "attach_jax": (150, "jobs", "A JAX job is entered in every way: stops, what it loses."),
    "torch_trace": (30, "profilers", "Our times next to torch's key_averages; what notes claim."),
    "jax_trace": (30, "profilers", "Our times next to those of JAX's reader; what notes claim."),
    "beside_torch": (90, "beside", "Our traces in a job that runs torch.profiler itself."),
    "beside_jax": (90, "beside", "Our traces in a job that runs jax.profiler itself."),
    "story": (90, "story", "A Flax job at a few percent: attach, finding, utilisation after."),
    "cost": (150, "jobs", "What a job pays for the agent, with it and without in turns; traces."),
    "pairs": (80, "recordings", "The demo pairs: the first finding, predicted and measured gain."),
}
SECONDS, QUICK_SECONDS = 530.0, 60.0


def main() -> int:
    """Run what is asked for; return the exit code: 1 where a check failed."""
    options = parse()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.one:
        name, work, *more = json.loads(options.one)
        module = importlib.import_module(f"benchmarks.gpu.{CHECKS[name][1]}")
        check = runner.Check(options.out, Path(work), *more)
        getattr(module, name)(check)
        if not check.parts:
            sys.exit(f"{name} has no part of such a name")
        return 0
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as work:
        runner.prepare(Path(work), options.wheels)
        try:
            return everything(options, work)
        except KeyboardInterrupt:
            print("Interrupted: what was done until now is kept.", file=sys.stderr)
            return 130


def everything(options: argparse.Namespace, work: str) -> int:
    """Run the checks, one after the other."""
    # As it belongs into a recording: no folder of this machine.
    words = ["gpu_check.py", *(["--quick"] if options.quick else [])]
    for option in ("only", "parts"):
        words += [f"--{option}", *chosen] if (chosen := getattr(options, option)) else []
    facts = runner.facts() | {"quick": options.quick, "command": shlex.join(words)}
    is_real = facts["model"] is not None and not facts["fake"]
    if not is_real and not options.quick:
        print("There is no GPU here. Look whether it would run: --quick", file=sys.stderr)
        return 5
    options.out.mkdir(parents=True, exist_ok=True)
    names, checks = options.only or [*CHECKS], []
    began = time.monotonic()
    last = began + options.seconds
    for name in names:
        seconds = QUICK_SECONDS if options.quick else CHECKS[name][0]
        # The last one takes what the others left.
        until = last if name == names[-1] else min(last, time.monotonic() + seconds)
        asked = [name, work, until, is_real, options.quick, options.parts]
        checks.append(runner.Result(name))
        try:
            folder = options.out / name
            command = [sys.executable, __file__, "--out", str(folder), "--one", json.dumps(asked)]
            runner.run(checks[-1], folder, until, command)
        finally:
            facts["seconds"] = round(time.monotonic() - began, 1)
            report = {**facts, "checks": [asdict(check) for check in checks]}
            runner.write_json(options.out / runner.REPORT, report)
    print(*checks, sep="\n")
    return int(any(check.verdict == "failed" for check in checks))


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="a folder for all")
    parser.add_argument("--wheels", type=Path, help="a folder of wheels that are missing here")
    parser.add_argument("--only", nargs="+", choices=CHECKS, metavar="NAME")
    parser.add_argument("--parts", nargs="+", default=[], metavar="PART", help="instead of all")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="in all, at most")
    parser.add_argument("--quick", action="store_true", help="a first look, also without a GPU")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

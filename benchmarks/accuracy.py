"""How the rules do: on real traces with a known fault, and on the demo pairs that were recorded.

For each case: what stands first, what should, what is found though nothing is wrong, and for the
pairs the predicted speed-up beside the measured one; and how the constants that several pairs share
do when they are chosen without the pair that is judged. The windows of the pairs are recordings
(``benchmarks/record_pairs.py``); nothing is run here but the rules. The result goes into
``benchmarks/accuracy.json``, from which ``docs/accuracy.md`` is made.

Run: .venv/bin/python benchmarks/accuracy.py [--traces FOLDER]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.left_out import left_out  # noqa: E402  found by the line above
from benchmarks.record_pairs import ABOUT, kept  # noqa: E402
from whyidle.monitor.compare import compare  # noqa: E402
from whyidle.monitor.compare.answer import as_json  # noqa: E402
from whyidle.monitor.compare.opening import of_analysis  # noqa: E402
from whyidle.monitor.core.contracts.diagnosis import FindingJson  # noqa: E402
from whyidle.monitor.core.metrics import JOB_MAIN_THREAD_WAIT  # noqa: E402
from whyidle.monitor.demo.printed import faster  # noqa: E402
from whyidle.monitor.diagnosis import diagnose  # noqa: E402
from whyidle.monitor.signals.opening import of_answer  # noqa: E402
from whyidle.monitor.signals.portable import load  # noqa: E402
from whyidle.monitor.signals.window import Window  # noqa: E402
from whyidle.monitor.traces.analysis import analyse  # noqa: E402
from whyidle.monitor.traces.answer import contract  # noqa: E402

TRACES = ROOT / "tests" / "data" / "traces" / "real"
DEMOS = ROOT / "demo_workloads"
WINDOWS = ROOT / "tests" / "data" / "windows"
RESULT = Path(__file__).with_name("accuracy.json")
# What is known to be wrong in the real traces; those that are not here have no known answer.
KNOWN: dict[str, tuple[str, ...]] = {
    "v100_2rank_nccl": ("exposed_communication", "eager_launch_bound"),
    "v100_resnet50_workers0": ("input_starved",),
    "resnet50_b_workers0": ("input_starved",),
    "h100_owlv2": ("input_starved",),
    "mi300_ddp_resnet18": ("allocation_churn",),
    "a100_nccl_small": ("eager_launch_bound",),
    "jax_conv_8gpu_mi300": ("idle_devices",),
    "h100_qwen05b": (),
}
# What came back when the loader got workers (measured by who recorded them), as a speed-up.
REALISED = {"v100_resnet50_workers0": 1 / (1 - 0.282), "resnet50_b_workers0": 1 / (1 - 0.218)}
BEFORE, AFTER = "workers0", "workers4"


def judged(window: Window) -> tuple[list[FindingJson], float]:
    """Return the findings, and how many milliseconds the rules took."""
    began = time.perf_counter()
    found = diagnose.diagnose(window)
    findings = [diagnose.finding_json(found, each) for each in found.findings]
    return findings, 1000 * (time.perf_counter() - began)


def traces(folder: Path) -> Iterator[dict[str, Any]]:
    """Judge every real trace."""
    for path in sorted([*folder.glob("kineto/*.json.gz"), *folder.glob("xplane/*.xplane.pb*")]):
        name = path.name.split(".")[0]
        analysis = analyse(path)
        findings, ms = judged(of_answer(contract(analysis), path.name))
        # By the steps of the two traces alone: how sure the speed-up is.
        interval = None
        if name in REALISED:
            after = analyse(path.with_name(path.name.replace(BEFORE, AFTER)))
            found = as_json(compare(of_analysis(analysis), of_analysis(after)))
            interval = found.speedup
        yield {
            "case": name,
            "known": None if name not in KNOWN else list(KNOWN[name]),
            "found": [_short(f) for f in findings],
            "measured": REALISED.get(name),
            "interval": interval,
            "ms": round(ms, 2),
        }


def pairs() -> Iterator[dict[str, Any]]:
    """Judge both sides of every pair."""
    for before in sorted(WINDOWS.glob("*/before_*.json.gz")):
        rule = ABOUT[before.parent.name]
        framework = before.name.removeprefix("before_").removesuffix(".json.gz")
        if not (before.parent / f"after_{framework}.json.gz").exists():
            print(f"{rule} {framework}: recorded by half, left out", file=sys.stderr)
            continue
        sides: dict[str, Any] = {}
        waits: list[float | None] = []
        for side in ("before", "after"):
            recorded = kept(before.parent / f"{side}_{framework}.json.gz")
            window = load(recorded["window"])
            found, _ = judged(window)
            waits.append(window.job.means.get(JOB_MAIN_THREAD_WAIT))
            printed = {name: recorded.get(name) for name in ("step_ms", "samples_per_s")}
            sides[side] = {**printed, "found": [_short(f) for f in found]}
        gain = faster(sides["before"], sides["after"])
        yield {
            "rule": rule,
            "framework": framework,
            "measured": None if gain is None else round(gain, 3),
            # Of the worse side: how long the main thread waited for a core.
            "waited": max((w for w in waits if w is not None), default=None),
            **sides,
        }


def unrecorded() -> list[str]:
    """Return the demos that have no recording: what they are about is judged by no pair."""
    there = {path.parent.name for path in DEMOS.glob("*/before_*.py")}
    return sorted(there - {path.parent.name for path in WINDOWS.glob("*/before_*.json.gz")})


def _short(found: FindingJson) -> dict[str, Any]:
    return {"rule": found.rule, "severity": found.severity, "speedup": found.speedup}


def main() -> None:
    """Judge everything and keep the result."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--traces", type=Path, default=TRACES)
    given = asked.parse_args()
    result = {
        "schema": 1,
        "traces": list(traces(given.traces)),
        "pairs": list(pairs()),
        "unrecorded": unrecorded(),
        "left_out": list(left_out(WINDOWS)),
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    for constant in result["left_out"]:
        print(constant)
    for case in result["traces"]:
        print(case["case"], case["known"], [(f["rule"], f["severity"]) for f in case["found"]])
    for pair in result["pairs"]:
        for side in ("before", "after"):
            found = [(f["rule"], f["severity"], f["speedup"]) for f in pair[side]["found"]]
            print(pair["rule"], pair["framework"], side, pair["measured"], found)


if __name__ == "__main__":
    main()

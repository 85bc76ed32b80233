"""The faults of some demos in other sizes, on which no constant of a rule was chosen.

Each size is written into a copy of the demo. The side before the fix runs watched, and then both
run alone, in turns. Both count CPU time: these demos use one thread, and other programs on the
machine lengthen that least. The result goes into ``benchmarks/other_sizes.json``.

Run: .venv/bin/python benchmarks/other_sizes.py [FAULT ...]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.record_pairs import DEMOS, in_turns, ran  # noqa: E402  found by the line above
from whyidle.monitor.demo.pairs import text_of  # noqa: E402
from whyidle.monitor.demo.printed import faster, is_inside  # noqa: E402

RESULT = Path(__file__).with_name("other_sizes.json")
# Of the demos for PyTorch: the lines of their sizes.
SIZES: dict[str, tuple[str, ...]] = {
    "allocation_churn": ("SOUNDS, LONGEST, FEATURES, HIDDEN, CLASSES = 256, 1 << 19, 64, 128, 10",),
    "gc_pauses": ("SAMPLES, FEATURES, HIDDEN, CLASSES = 60_000, 256, 768, 10",),
    "host_random_numbers": ("PIXELS, HIDDEN = 784, 128",),
    "large_readback": ("PIXELS, HIDDEN = 1_024, 96",),
    "per_step_sync": ("FEATURES, HIDDEN, DEPTH, CLASSES = 32, 96, 6, 10",),
    "python_loop_over_batch": ("FEATURES, WIDTH, CLASSES = 64, 128, 10", "BATCH = 64"),
}
WATCHED_S = 14.0
CLOCK = "import time\n\ntime.perf_counter = time.process_time\n"


def resized(fault: str, side: str, folder: Path) -> Path:
    """Write a demo in another size, and return where."""
    text = text_of(DEMOS / fault / f"{side}_torch.py")
    for line in SIZES[fault]:
        names = line.partition(" = ")[0]
        text, found = re.subn(rf"^{names} = .*$", line, text, flags=re.MULTILINE)
        if not found:
            sys.exit(f"{fault}: the demo has no line of {names}; mend SIZES in {__file__}")
    path = folder / f"{side}_torch.py"
    path.write_text(text.replace("import time\n", CLOCK, 1))
    return path


def judged(fault: str) -> dict[str, Any]:
    """Return what was predicted of a fault, and what came back."""
    with tempfile.TemporaryDirectory(prefix="whyidle-size-") as made:
        folder = Path(made)
        before, after = (resized(fault, s, folder) for s in ("before", "after"))
        recorded = ran(before, WATCHED_S)
        measured = faster(*in_turns(before, after)) or 1.0
    found = next((f for f in recorded["findings"] if f["rule"] == fault), None)
    speedup = found and found["speedup"]
    return {
        "rule": fault,
        "sizes": list(SIZES[fault]),
        "first": bool(recorded["findings"]) and recorded["findings"][0] is found,
        "speedup": speedup,
        "measured": round(measured, 3),
        "inside": bool(speedup) and is_inside(speedup, measured),
    }


def main() -> None:
    """Judge what was asked for, and keep it beside the others."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("fault", nargs="*", default=[])
    given = asked.parse_args()
    result = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for fault in given.fault or SIZES:
        result[fault] = judged(fault)
        print(result[fault], flush=True)
        RESULT.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

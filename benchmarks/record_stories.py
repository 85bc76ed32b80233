"""Run the demos that have two faults at once, or none, and keep what the monitor saw.

As ``record_pairs.py`` does with the pairs; the windows go to ``tests/data/windows/``, into
``combined/<story>/`` and ``healthy/``. Record them on a machine that does nothing else.

Run: .venv/bin/python benchmarks/record_stories.py [--seconds S]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.record_pairs import SECONDS, WINDOWS, keep, ran  # noqa: E402  found by the line above
from whyidle.monitor.demo.pairs import HEALTHY, SIDES, STORIES, all_pairs, healthy  # noqa: E402


def record(script: Path, place: Path, seconds: float) -> None:
    """Run one program and keep its window."""
    recorded = ran(script, seconds)
    findings = recorded.pop("findings")
    path = WINDOWS / place
    path.parent.mkdir(parents=True, exist_ok=True)
    keep(path, recorded)
    found = [f"{f['rule']} {f['severity']} {f['speedup']}" for f in findings[:4]]
    print(f"{place}: {recorded['step_ms']} ms a step: {found}", flush=True)


def main() -> None:
    """Record all of them, and print what was found."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--seconds", type=float, default=SECONDS)
    given = asked.parse_args()
    for pair in all_pairs():
        for side in SIDES if pair.is_story else ():
            script = pair.script(side)
            name = f"{script.stem}.json.gz"
            record(script, Path(STORIES, pair.name, name), given.seconds)
    for name, script in healthy().items():
        record(script, Path(HEALTHY, f"{name}.json.gz"), given.seconds)


if __name__ == "__main__":
    main()

"""Run the benchmarks whose figures the documents quote, and keep what they print in figures.json.

Run: .venv/bin/python benchmarks/figures.py [NAME...]
Then: .venv/bin/cog -r docs/*.md benchmarks/CASES.md
All of them take about half an hour, most of it attach_stress; named ones are measured anew and the
figures of the others stay as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FILE = HERE / "figures.json"
SCRIPTS = (
    "startup",
    "record_cost",
    "store",
    "traces",
    "store_traces",
    "diagnose",
    "agent_cost",
    "attach_stress",
    "dashboard",
    "fleet",
    "fleet_page",
    "callback_cost",
    "julia_cost",
    "patches",
)


def measured(name: str) -> Any:
    """Return what a benchmark prints."""
    print(f"running {name}.py", file=sys.stderr)
    done = subprocess.run(
        [sys.executable, str(HERE / f"{name}.py"), "--json"], stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout)


def keep(name: str, found: Any) -> None:
    """Write the figures of one benchmark beside those of the others."""
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    figures = {**known, "schema": 1, name: found}
    figures.setdefault("machines", {})[name] = machine()
    FILE.write_text(json.dumps(figures, indent=1) + "\n")


def machine() -> dict[str, Any]:
    """Return where the figures come from."""
    names = [x for x in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in x]
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cpu": names[0].partition(":")[2].strip() if names else platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SCRIPTS))
    names = parser.parse_args().names or SCRIPTS
    if unknown := set(names) - set(SCRIPTS):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}")
    for name in names:
        keep(name, measured(name))
    print(f"wrote {FILE}; now: cog -r docs/*.md benchmarks/CASES.md", file=sys.stderr)


if __name__ == "__main__":
    main()

"""Run the benchmarks whose figures README.md quotes, and keep what they print in figures.json.

Run: .venv/bin/python benchmarks/figures.py, then: .venv/bin/cog -r README.md
"""

from __future__ import annotations

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
SCRIPTS = ("startup", "record_cost", "store", "traces", "store_traces")


def measured(name: str) -> Any:
    """Return what a benchmark prints."""
    print(f"running {name}.py", file=sys.stderr)
    done = subprocess.run(
        [sys.executable, str(HERE / f"{name}.py"), "--json"], stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout)


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
    figures = {"schema": 1, "machine": machine(), **{name: measured(name) for name in SCRIPTS}}
    FILE.write_text(json.dumps(figures, indent=1) + "\n")
    print(f"wrote {FILE}; now: cog -r README.md", file=sys.stderr)


if __name__ == "__main__":
    main()

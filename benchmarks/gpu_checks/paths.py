"""How a checkout is imported as it lies: the folder of links, and wheels that came along."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LINKS = ROOT / ".typing"
PARTS = ("monitor", "agents", "dashboard", "demo_workloads")


def prepare(work: Path, wheels: Path | None) -> None:
    """Put everything on the import path of the programs that we start."""
    # Where links do not travel, they are made anew.
    links = LINKS if (LINKS / "whyidle/monitor/cli.py").exists() else _linked(work / "import")
    site = [] if wheels is None else [unpacked(wheels, work / "site")]
    before = os.environ.get("PYTHONPATH")
    known = [str(links), str(ROOT), *map(str, site), *([before] if before else [])]
    os.environ["PYTHONPATH"] = os.pathsep.join(known)


def _linked(folder: Path) -> Path:
    (folder / "whyidle").mkdir(parents=True)
    for part in PARTS:
        (folder / "whyidle" / part).symlink_to(ROOT / part)
    return folder


def unpacked(wheels: Path, into: Path) -> Path:
    """Unpack the wheels of a folder; what they hold can be imported from there."""
    files = sorted(wheels.glob("*.whl"))
    if not files:
        msg = f"There is no wheel in {wheels}."
        raise SystemExit(msg)
    for wheel in files:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(into)
    return into

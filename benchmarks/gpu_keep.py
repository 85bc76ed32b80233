"""Put what gpu_check.py brought back among the tests' recordings.

Each model of GPU has a folder with an index: the report of each run, and the files of its parts
beside it. What a later run did again takes the place of what an earlier one did. Only whole runs on
real GPUs belong there: a quick look or a played tape is refused. What the rules say of all of them
is written anew.

Run: .venv/bin/python benchmarks/gpu_keep.py [OUT...]
Then: .venv/bin/cog -r docs/gpu.md benchmarks/CASES.md
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.gpu.recordings import without_places
from benchmarks.gpu.runner import REPORT, write_json
from benchmarks.record_pairs import ROOT, kept
from whyidle.monitor.diagnosis import diagnose
from whyidle.monitor.signals import portable
from whyidle.monitor.signals.opening import of_answer
from whyidle.monitor.traces.analysis import analyse
from whyidle.monitor.traces.answer import contract

RECORDINGS = ROOT / "tests" / "data" / "gpu"
INDEX, FINDINGS = "index.json", "findings.json"
ENDS, CONSTANTS = "session_ends.json", "constants.json"


class Refused(SystemExit):
    """Why something does not belong among the recordings."""


def keep(out: Path, into: Path) -> tuple[Path, list[str]]:
    """Take over one run of the checks; return the folder of its model, and what was written."""
    report = json.loads(without_places((out / REPORT).read_bytes()))
    if into == RECORDINGS and (report["model"] is None or report["fake"] or report["quick"]):
        raise Refused("Only whole runs on a real GPU are kept: gpu_check.py --out OUT")
    folder = into / slug(report["model"] or "cpu")
    folder.mkdir(parents=True, exist_ok=True)
    index = {"model": report["model"], "runs": []}
    if (folder / INDEX).exists():
        index = json.loads((folder / INDEX).read_text())
    # Only what was done again goes: not what a later run had no time for.
    done = {(check["name"], part["name"]) for check, part in parts(report) if part["figures"]}
    for check, part in [each for run in index["runs"] for each in parts(run)]:
        if (check["name"], part["name"]) in done:
            check["parts"].remove(part)
            for file in part["files"]:
                (folder / file["path"]).unlink(missing_ok=True)
    written = [
        (check["name"], file["path"]) for check, part in parts(report) for file in part["files"]
    ]
    for name, path in written:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(out / name / path, folder / path)
    runs = [run for run in index["runs"] if run["date"] != report["date"]]
    write_json(folder / INDEX, {**index, "runs": [*runs, report]})
    write_json(folder / FINDINGS, findings(folder))
    return folder, [path for _, path in written]


def parts(run: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return each part of a report beside its check."""
    return [(check, part) for check in run["checks"] for part in check["parts"]]


def slug(model: str) -> str:
    """Return a GPU's name as a folder."""
    return re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")


def findings(folder: Path) -> dict[str, list[str]]:
    """Return what the rules say of each window and trace of a model, the most important first."""
    found = {}
    for path in sorted([*folder.glob("windows/*.gz"), *folder.glob("traces/*.gz")]):
        if path.parent.name == "windows":
            window = portable.load(kept(path)["window"])
        else:
            window = of_answer(contract(analyse(path), ours=True), path.name)
        rows = diagnose.as_json(diagnose.diagnose(window)).findings
        name = path.relative_to(folder).as_posix()
        found[name] = [f"{row.rule} {row.severity}" for row in rows]
    return found


def main() -> None:
    """Keep what each named folder holds; then write anew what the rules say of everything."""
    for out in sys.argv[1:]:
        folder, written = keep(Path(out), RECORDINGS)
        print(*(f"{(folder / path).stat().st_size:>10,} B  {path}" for path in written), sep="\n")
    for index in RECORDINGS.glob(f"*/{INDEX}"):
        write_json(index.parent / FINDINGS, findings(index.parent))
    print("Now look at docs/gpu.md: .venv/bin/cog -r docs/gpu.md benchmarks/CASES.md")


if __name__ == "__main__":
    main()

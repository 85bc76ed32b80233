"""Put what gpu_check.py brought back among the tests' recordings, and say what that was.

Each model of GPU has a folder with an index: which runs there were, when, on what, by which
command, what each part of a check came to, and its files. What a later run did again takes the
place of what an earlier one did. Only whole runs on real GPUs belong there: a quick look or a
played tape is refused. With --findings nothing comes in: what the rules say is written anew.

Run: .venv/bin/python benchmarks/gpu_keep.py OUT [--into FOLDER] [--sample]
     .venv/bin/python benchmarks/gpu_keep.py --findings
Then: .venv/bin/cog -r docs/gpu.md
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.gpu.report import slug, update_index, write_json
from benchmarks.gpu.runner import ARCHIVE, REPORT
from benchmarks.record_pairs import ROOT, kept
from benchmarks.record_sample import INTO as SAMPLE
from whyidle.monitor.diagnosis import diagnose
from whyidle.monitor.signals import portable
from whyidle.monitor.signals.opening import of_answer
from whyidle.monitor.traces.analysis import analyse
from whyidle.monitor.traces.answer import contract

RECORDINGS = ROOT / "tests" / "data" / "gpu"
SCHEMA = 1
INDEX, FINDINGS, TAPE_INDEX = "index.json", "findings.json", "nvml.json"
MACHINE = ("date", "driver", "cuda", "python", "packages", "cpu", "cores", "kernel", "machine")
# Where the files of a check go, by their folder in the archive.
PLACES = {"record/nvml": "", "pairs/windows": "windows", "pairs/traces": "traces"}


class Refused(Exception):  # noqa: N818  a sentence for the user
    """Why something does not belong among the recordings."""


def keep(out: Path, into: Path) -> tuple[Path, list[str]]:
    """Take over one run of the checks; return the folder of its model, and what was written."""
    report = json.loads((out / REPORT).read_text())
    if into == RECORDINGS:
        check_real(report)
    folder, date = into / slug(report["model"] or "cpu"), report["date"]
    folder.mkdir(parents=True, exist_ok=True)
    index = {"schema": SCHEMA, "model": report["model"], "runs": [], "parts": []}
    if (folder / INDEX).exists():
        index = json.loads((folder / INDEX).read_text())
    written: list[str] = []
    with tarfile.open(out / ARCHIVE) as archive:
        for check in report["checks"]:
            for part in check["parts"]:
                named = {"check": check["name"], **part, "date": date}
                written += _take(archive, folder, index["parts"], named)
    run = {name: report[name] for name in (*MACHINE, "command", "seconds")}
    run["checks"] = {check["name"]: [check["verdict"], check["why"]] for check in report["checks"]}
    others = [run for run in index["runs"] if run["date"] != date]
    index["runs"] = sorted([*others, run], key=lambda run: str(run["date"]))
    write_json(folder / INDEX, index)
    if (folder / TAPE_INDEX).exists():
        update_index(into / INDEX, folder.name, json.loads((folder / TAPE_INDEX).read_text()))
    write_json(folder / FINDINGS, findings(folder))
    return folder, written


def check_real(report: dict[str, Any]) -> None:
    """Refuse what is no recording of a GPU."""
    if report["model"] is None:
        raise Refused("These checks ran without a GPU: there is nothing to keep.")
    if report["fake"]:
        raise Refused("This GPU is one of the tests' tapes: what it says is no recording.")
    if report["quick"]:
        raise Refused("These checks were a quick look. Run them whole: gpu_check.py --out OUT")


def _take(
    archive: tarfile.TarFile, folder: Path, parts: list[dict[str, Any]], part: dict[str, Any]
) -> list[str]:
    """Put one part into the index, and its files beside it; what it has no place for is left."""
    same = [p for p in parts if (p["check"], p["name"]) == (part["check"], part["name"])]
    # What is there already stays where a later run has nothing to put in its place.
    if same and (part["verdict"] == "left out" or not part["figures"]):
        return []
    files = []
    for name in (f"{part['check']}/{file}" for file in part["files"]):
        for start, place in PLACES.items():
            if name.startswith(f"{start}/"):
                path = (Path(place) / Path(name).name).as_posix()
                content = _content(archive, name)
                (folder / path).parent.mkdir(exist_ok=True)
                (folder / path).write_bytes(content)
                digest = hashlib.sha256(content).hexdigest()
                files.append({"path": path, "bytes": len(content), "sha256": digest})
    written = [file["path"] for file in files]
    for old in same:
        parts.remove(old)
        for file in old["files"]:
            if file["path"] not in written:
                (folder / file["path"]).unlink(missing_ok=True)
    parts.append({**part, "files": files})
    return written


def _content(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name) if name in archive.getnames() else None
    if file is None:
        raise Refused(f"The archive has no file {name}.")
    return file.read()


def findings(folder: Path) -> dict[str, list[str]]:
    """Return what the rules say of each window and trace of a model, the most important first."""
    found = {}
    for path in sorted([*folder.glob("windows/*.gz"), *folder.glob("traces/*.gz")]):
        if path.parent.name == "windows":
            window = portable.load(kept(path)["window"])
        else:
            window = of_answer(contract(analyse(path), ours=True), path.name)
        rows = diagnose.as_json(diagnose.diagnose(window))["findings"]
        name = path.relative_to(folder).as_posix()
        found[name] = [f"{row['rule']} {row['severity']}" for row in rows]
    return found


def main() -> int:
    """Keep what was brought back, and say what."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("out", type=Path, nargs="?", metavar="OUT")
    asked.add_argument("--into", type=Path, default=RECORDINGS, help="instead of tests/data/gpu")
    asked.add_argument("--findings", action="store_true", help="write anew what the rules say")
    asked.add_argument("--sample", action="store_true", help="and make it the dashboard's sample")
    given = asked.parse_args()
    if given.findings:
        for index in sorted(given.into.glob(f"*/{INDEX}")):
            write_json(index.parent / FINDINGS, findings(index.parent))
            print(f"{index.parent.name}: {FINDINGS} is written anew")
        return 0
    if given.out is None:
        asked.error("name the folder that gpu_check.py wrote")
    try:
        folder, written = keep(given.out, given.into)
        for name in written:
            print(f"{(folder / name).stat().st_size:>10,} B  {folder.name}/{name}")
        print(f"{len(written)} files, and {INDEX} and {FINDINGS} of {folder.name}.")
        if given.sample:
            check_real(json.loads((given.out / REPORT).read_text()))
            with tarfile.open(given.out / ARCHIVE) as archive:
                size = SAMPLE.write_bytes(_content(archive, "sample/whyidle.db"))
            print(f"The dashboard's sample: {size:,} B")
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 2
    print("Now look at docs/gpu.md: .venv/bin/cog -r docs/gpu.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())

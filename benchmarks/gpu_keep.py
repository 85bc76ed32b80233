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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from gpu_recorder.report import slug, update_index  # noqa: E402  found by the line above

from benchmarks.record_pairs import kept  # noqa: E402
from whyidle.monitor.diagnosis import diagnose  # noqa: E402
from whyidle.monitor.signals import portable  # noqa: E402
from whyidle.monitor.signals.opening import of_answer  # noqa: E402
from whyidle.monitor.traces.analysis import analyse  # noqa: E402
from whyidle.monitor.traces.answer import contract  # noqa: E402

RECORDINGS = ROOT / "tests" / "data" / "gpu"
SAMPLE = ROOT / "dashboard" / "recorded" / "whyidle.db"
SCHEMA = 1
INDEX, FINDINGS = "index.json", "findings.json"
MACHINE = ("date", "driver", "cuda", "python", "packages", "cpu", "cores", "kernel", "machine")
# Where the files of a check go, by the name of their folder in the archive.
PLACES = {"record/nvml": "", "pairs/windows": "windows", "pairs/traces": "traces"}


class Refused(Exception):  # noqa: N818  a sentence for the user
    """Why something does not belong among the recordings."""


def keep(out: Path, into: Path) -> tuple[Path, list[str]]:
    """Take over one run of the checks; return the folder of its model, and what was written."""
    report = json.loads((out / "report.json").read_text())
    if into == RECORDINGS:
        check_real(report)
    folder = into / slug(report["model"] or "cpu")
    folder.mkdir(parents=True, exist_ok=True)
    index = _opened(folder / INDEX, report)
    with tarfile.open(out / "recording.tar") as archive:
        written = [path for part in _parts(report) for path in _take(archive, folder, index, part)]
    index["runs"] = sorted(
        [*(r for r in index["runs"] if r["date"] != report["date"]), _run(report)],
        key=lambda run: run["date"],
    )
    _write(folder / INDEX, index)
    _update_list(folder, into)
    _write(folder / FINDINGS, findings(folder))
    return folder, written


def check_real(report: dict[str, Any]) -> None:
    """Refuse what is no recording of a GPU."""
    if report["model"] is None:
        raise Refused("These checks ran without a GPU: there is nothing to keep.")
    if report["fake"]:
        raise Refused("This GPU is one of the tests' tapes: what it told is no recording.")
    if report["quick"]:
        raise Refused("These checks were a quick look. Run them whole: gpu_check.py --out OUT")


def findings(folder: Path) -> dict[str, list[str]]:
    """Return what the rules say of each window and trace of a model, the most important first."""
    return {
        path.relative_to(folder).as_posix(): [
            f"{found['rule']} {found['severity']}" for found in judged(path)
        ]
        for path in sorted([*folder.glob("windows/*.gz"), *folder.glob("traces/*.gz")])
    }


def judged(path: Path) -> list[dict[str, Any]]:
    """Return what the rules find in a kept window or trace."""
    if path.parent.name == "windows":
        window = portable.load(kept(path)["window"])
    else:
        window = of_answer(contract(analyse(path), ours=True), path.name)
    found: list[dict[str, Any]] = diagnose.as_json(diagnose.diagnose(window))["findings"]
    return found


# The index ---------------------------------------------------------------------------------------
def _opened(path: Path, report: dict[str, Any]) -> dict[str, Any]:
    if not path.exists():
        return {"schema": SCHEMA, "model": report["model"], "runs": [], "parts": []}
    index: dict[str, Any] = json.loads(path.read_text())
    return index


def _run(report: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: report[name] for name in (*MACHINE, "command", "seconds")},
        "checks": {check["name"]: [check["verdict"], check["why"]] for check in report["checks"]},
    }


def _parts(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for check in report["checks"]:
        for part in check["parts"]:
            yield {"check": check["name"], **part, "date": report["date"]}


def _take(
    archive: tarfile.TarFile, folder: Path, index: dict[str, Any], part: dict[str, Any]
) -> Iterator[str]:
    """Put one part into the index, and its files beside it; what it has no place for is left."""
    same = [p for p in index["parts"] if (p["check"], p["name"]) == (part["check"], part["name"])]
    # What is there already stays where a later run has nothing to put in its place.
    if same and (part["verdict"] == "left out" or not part["figures"]):
        return
    names = {name: place for name in part["files"] if (place := _place(part["check"], name))}
    kept_files = [_extract(archive, f"{part['check']}/{n}", folder, p) for n, p in names.items()]
    for old in same:
        index["parts"].remove(old)
        for file in old["files"]:
            if file["path"] not in names.values():
                (folder / file["path"]).unlink(missing_ok=True)
    index["parts"].append({**part, "files": kept_files})
    yield from names.values()


def _place(check: str, name: str) -> str | None:
    """Return where a file goes in a model's folder."""
    path = Path(check, name)
    for start, place in PLACES.items():
        if path.as_posix().startswith(f"{start}/"):
            return (Path(place) / path.name).as_posix()
    return None


def _extract(archive: tarfile.TarFile, name: str, folder: Path, place: str) -> dict[str, Any]:
    file = archive.extractfile(name)
    if file is None:
        raise Refused(f"The archive has no file {name}.")
    content = file.read()
    path = folder / place
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return {"path": place, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _update_list(folder: Path, into: Path) -> None:
    """Name the tape in the list of all tapes."""
    if (folder / "nvml.json").exists():
        update_index(into / INDEX, folder.name, json.loads((folder / "nvml.json").read_text()))


def _write(path: Path, document: object) -> None:
    path.write_text(json.dumps(document, indent=1) + "\n")


def put_sample(out: Path) -> int | None:
    """Make the recorded runs the dashboard's sample; return its size, ``None`` without one."""
    check_real(json.loads((out / "report.json").read_text()))
    with tarfile.open(out / "recording.tar") as archive:
        if "sample/whyidle.db" not in archive.getnames():
            return None
        file = archive.extractfile("sample/whyidle.db")
        assert file is not None
        return SAMPLE.write_bytes(file.read())


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
            _write(index.parent / FINDINGS, findings(index.parent))
            print(f"{index.parent.name}: {FINDINGS} is written anew")
        return 0
    if given.out is None:
        asked.error("name the folder that gpu_check.py wrote")
    try:
        folder, written = keep(given.out, given.into)
        size = put_sample(given.out) if given.sample else None
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 2
    for name in written:
        print(f"{(folder / name).stat().st_size:>10,} B  {folder.name}/{name}")
    print(f"{len(written)} files, and {INDEX} and {FINDINGS} of {folder.name}.")
    if given.sample:
        print(f"The dashboard's sample: {size:,} B" if size else "There is no sample in it.")
    print("Now look at docs/gpu.md: .venv/bin/cog -r docs/gpu.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())

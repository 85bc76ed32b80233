"""What stands in docs/gpu.md of each GPU: made from the indexes of its recordings alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

RECORDINGS = Path(__file__).resolve().parent.parent / "tests" / "data" / "gpu"
NOTHING = (
    "Nothing is recorded yet: no figure on this page comes from anywhere but such a recording."
)
UNKNOWN = "not known"
Row = Callable[[str, dict[str, Any]], Iterator[tuple[object, ...]]]


def page(recordings: Path = RECORDINGS) -> str:
    """Return what was seen on every GPU of which there is a recording."""
    indexes = sorted(recordings.glob("*/index.json"))
    return "\n".join(line for path in indexes for line in _model(path)) if indexes else NOTHING


def _model(path: Path) -> Iterator[str]:
    index = json.loads(path.read_text())
    sizes = [file["bytes"] for part in index["parts"] for file in part["files"]]
    yield f"\n## {index['model'] or 'No GPU'}"
    folder = f"`tests/data/gpu/{path.parent.name}`"
    yield f"{len(sizes)} files, {sum(sizes) / 1e6:.1f} MB, in {folder}.\n"
    yield from _lines("run | on | by | checks", map(_run, index["runs"]))
    for check, (title, head, row) in _TABLES.items():
        parts = [part for part in index["parts"] if part["check"] == check]
        shown = [part for part in parts if part["figures"] and part["verdict"] != "left out"]
        if rows := [each for part in shown for each in row(part["name"], part["figures"])]:
            yield f"\n### {title}\n"
            yield from _lines(head, rows)
        # What did not hold, and what could not be looked at.
        if missing := [f"- {p['name']} {p['verdict']}: {p['why']}" for p in parts if p["why"]]:
            yield "\n" + "\n".join(missing)


def _lines(head: str, rows: Any) -> Iterator[str]:
    yield f"| {head} |\n|{'---|' * (head.count('|') + 1)}"
    yield from (f"| {' | '.join(map(str, row))} |" for row in rows)


def _run(run: dict[str, Any]) -> tuple[object, ...]:
    packages = run["packages"]
    versions = ", ".join(f"{n} {packages[n]}" for n in ("torch", "jax") if n in packages)
    machine = f"driver {run['driver'] or UNKNOWN}, {versions}, Python {run['python']}"
    checks = ", ".join(f"{name} {verdict}" for name, (verdict, _) in run["checks"].items())
    return run["date"][:10], f"{machine}, {run['cores']} cores", f"`{run['command']}`", checks


# One row or more of a part -----------------------------------------------------------------------
def _pair(name: str, f: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    steps = (f[side]["step_ns"][1] for side in ("before", "after"))
    shown = " → ".join(UNKNOWN if ns is None else f"{ns / 1e6:.3g} ms" for ns in steps)
    low, middle, high = f["measured"]
    predicted = UNKNOWN if f["predicted"] is None else "{:.2f}-{:.2f}x".format(*f["predicted"])
    measured = UNKNOWN if middle is None else f"{middle:.2f}x"
    measured += f" [{low:.2f}, {high:.2f}]" if low and high else ""
    inside = {True: "yes", False: "no", None: ""}[f["as_predicted"]]
    yield name, f"`{f['before']['top'] or 'nothing'}`", shown, predicted, measured, inside


def _attach(name: str, f: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    if "cycles" in f:
        yield name, f["cycles"], *(f"{f[f'stop_{w}_ms']:.2f} ms" for w in ("median", "p99", "max"))


def _cost(name: str, f: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    taken = [trace for trace in f["traces"] if "why" not in trace]
    lost = "; ".join(f"{t['window_ms']:g} ms window: {t['lost_ms']:g} ms lost" for t in taken)
    more = "{1:+.2f}% [{0:+.2f}, {2:+.2f}]".format(*f["more_with_it_percent"])
    yield name, f["pairs"], more, lost or UNKNOWN


def _totals(name: str, f: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    times = (f"{f[whose]:,} ns" for whose in ("theirs_ns", "ours_ns"))
    yield name, f["names"], f"{f['count']:,}", *times, len(f["different"])


def _tape(_name: str, f: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    slow = f"{f['slowest_call']}, {f['slowest_call_median_us']:,.0f} µs"
    yield f"{f['tape_bytes']:,} B", slow, len(f["findings"]), len(f["differs"])


def _claims(_name: str, f: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    words = {True: "holds", False: "**differs**", None: "not known"}
    for each in f.get("claims", []):
        seen = each["seen"].replace("|", "\\|")
        yield each["note"], each["claim"], words[each["holds"]], seen


_TABLES: dict[str, tuple[str, str, Row]] = {
    "pairs": ("The demo pairs",
              "pair | found first | a step | predicted | measured | as predicted", _pair),
    "attach": ("Entering jobs on the GPU",
               "job | times | median stop | p99 | longest", _attach),
    "cost": ("What watching costs", "job | pairs of blocks | more with it | traces", _cost),
    "totals": ("Beside the profilers' own totals",
               "trace | names | events | theirs | ours | names that differ", _totals),
    "record": ("NVML", "tape | slowest call, median | questions | not as the notes say", _tape),
    "claims": ("What the notes claimed", "note | claim | | seen", _claims),
}  # fmt: skip

"""What stands in docs/gpu.md of each GPU: made from the indexes of its recordings alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

RECORDINGS = Path(__file__).resolve().parent.parent / "tests" / "data" / "gpu"
NOTHING = (
    "Nothing is recorded yet: no figure on this page comes from anywhere but such a recording."
)
UNKNOWN = "not known"
Part = dict[str, Any]


def page(recordings: Path = RECORDINGS) -> str:
    """Return what was seen on every GPU of which there is a recording."""
    indexes = sorted(recordings.glob("*/index.json"))
    return "\n".join(line for path in indexes for line in _model(path)) if indexes else NOTHING


def _model(path: Path) -> Iterator[str]:
    index = json.loads(path.read_text())
    files = [file for part in index["parts"] for file in part["files"]]
    size = sum(file["bytes"] for file in files)
    yield f"\n## {index['model'] or 'No GPU'}"
    yield f"{len(files)} files, {size / 1e6:.1f} MB, in `tests/data/gpu/{path.parent.name}`.\n"
    yield "| run | on | by | checks |\n|---|---|---|---|"
    for run in index["runs"]:
        yield _run(run)
    for check, (title, head, row) in _TABLES.items():
        parts = [part for part in index["parts"] if part["check"] == check]
        told = [part for part in parts if part["figures"] and part["verdict"] != "left out"]
        yield from _table(title, head, [line for part in told for line in row(part)])
        yield from _missing([part for part in parts if part not in told or part["why"]])


def _run(run: dict[str, Any]) -> str:
    packages = run["packages"]
    versions = ", ".join(f"{n} {packages[n]}" for n in ("torch", "jax") if n in packages)
    machine = f"driver {run['driver'] or UNKNOWN}, {versions}, Python {run['python']}"
    machine += f", {run['cores']} cores"
    checks = ", ".join(f"{name} {verdict}" for name, (verdict, _) in run["checks"].items())
    return f"| {run['date'][:10]} | {machine} | `{run['command']}` | {checks} |"


def _table(title: str, head: str, rows: list[str]) -> Iterator[str]:
    if rows:
        yield f"\n### {title}\n\n{head}\n|{'---|' * head.count('|', 1)}"
        yield from rows


def _missing(parts: Iterable[Part]) -> Iterator[str]:
    """Tell what did not hold, and what could not be looked at."""
    told = [f"- {p['name']} {p['verdict']}: {p['why']}" for p in parts if p["why"]]
    if told:
        yield "\n" + "\n".join(told)


# One row or more of a part -----------------------------------------------------------------------
def _pair(part: Part) -> Iterator[str]:
    figures = part["figures"]
    steps = " → ".join(_ms(figures[side]["step_ns"][1]) for side in ("before", "after"))
    predicted, (low, middle, high) = figures["predicted"], figures["measured"]
    said = UNKNOWN if predicted is None else "{:.2f}-{:.2f}x".format(*predicted)
    back = UNKNOWN if middle is None else f"{middle:.2f}x"
    back += f" [{low:.2f}, {high:.2f}]" if low and high else ""
    inside = {True: "yes", False: "no", None: ""}[figures["as_predicted"]]
    first = figures["before"]["top"] or "nothing"
    yield f"| {part['name']} | `{first}` | {steps} | {said} | {back} | {inside} |"


def _ms(ns: float | None) -> str:
    return UNKNOWN if ns is None else f"{ns / 1e6:.3g} ms"


def _attach(part: Part) -> Iterator[str]:
    figures = part["figures"]
    if "cycles" in figures:
        stops = [f"{figures[f'stop_{which}_ms']:.2f} ms" for which in ("median", "p99", "max")]
        yield f"| {part['name']} | {figures['cycles']} | {' | '.join(stops)} |"


def _cost(part: Part) -> Iterator[str]:
    figures = part["figures"]
    more = figures.get("more_with_it_percent")
    said = UNKNOWN if more is None else f"{more[1]:+.2f}% [{more[0]:+.2f}, {more[2]:+.2f}]"
    taken = [trace for trace in figures["traces"] if "why" not in trace]
    traces = "; ".join(f"{t['window_ms']:g} ms window: {_lost(t)}" for t in taken) or UNKNOWN
    yield f"| {part['name']} | {figures.get('pairs', 0)} | {said} | {traces} |"


def _lost(trace: dict[str, Any]) -> str:
    return UNKNOWN if trace["lost_ms"] is None else f"{trace['lost_ms']:g} ms lost"


def _totals(part: Part) -> Iterator[str]:
    f = part["figures"]
    yield (
        f"| {part['name']} | {f['names']} | {f['count']:,} | {f['theirs_ns']:,} ns"
        f" | {f['ours_ns']:,} ns | {len(f['different'])} |"
    )


def _claims(part: Part) -> Iterator[str]:
    words = {True: "holds", False: "**differs**", None: "not told"}
    for claim in part["figures"].get("claims", []):
        seen = claim["seen"].replace("|", "\\|")
        yield f"| {claim['note']} | {claim['claim']} | {words[claim['holds']]} | {seen} |"


def _tape(part: Part) -> Iterator[str]:
    f = part["figures"]
    slow = f"{f['slowest_call']}, {f['slowest_call_median_us']:,.0f} µs"
    yield f"| {f['tape_bytes']:,} B | {slow} | {len(f['findings'])} | {len(f['differs'])} |"


_TABLES: dict[str, tuple[str, str, Callable[[Part], Iterator[str]]]] = {
    "pairs": (
        "The demo pairs",
        "| pair | found first | a step | predicted | measured | as predicted |",
        _pair,
    ),
    "attach": (
        "Entering jobs on the GPU",
        "| job | times | median stop | p99 | longest |",
        _attach,
    ),
    "cost": ("What watching costs", "| job | pairs of blocks | more with it | traces |", _cost),
    "totals": (
        "Beside the profilers' own totals",
        "| trace | names | events | theirs | ours | names that differ |",
        _totals,
    ),
    "record": (
        "NVML",
        "| tape | slowest call, median | questions | not as the notes say |",
        _tape,
    ),
    "claims": ("What the notes claimed", "| note | claim | | seen |", _claims),
}

"""What the recordings of real GPUs show, as docs/gpu.md and docs/accuracy.md print it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu_keep import CONSTANTS, ENDS, INDEX, RECORDINGS, parts
from benchmarks.record_pairs import kept
from whyidle.monitor.diagnosis import diagnose
from whyidle.monitor.signals import portable

NOTHING = (
    "Nothing is recorded yet: no figure on this page comes from anywhere but such a recording."
)
PACKAGES = ("torch", "jax")
LONGEST = 160
PAIRS = ("pair", "what stands first", "predicted", "measured")
Part = dict[str, Any]
Row = tuple[object, ...]


def page(recordings: Path = RECORDINGS) -> str:
    """Return what was seen on every GPU of which there is a recording."""
    models = [path.parent for path in sorted(recordings.glob(f"*/{INDEX}"))]
    return "\n".join(line for model in models for line in _model(model)) or NOTHING


def pairs(recordings: Path = RECORDINGS) -> str:
    """Return what stands first in each pair, what it foresees, and what the fix gave."""
    lines: list[str] = []
    for path in sorted(recordings.glob(f"*/{INDEX}")):
        index = json.loads(path.read_text())
        name = index["model"] or "No GPU"
        lines += [f"{name}:", *_table(PAIRS, _pairs(path.parent, _parts(index)))]
    return "\n".join(lines).strip()


def _model(folder: Path) -> Iterator[str]:
    index = json.loads((folder / INDEX).read_text())
    found = _parts(index)
    yield f"\n## {index['model'] or 'No GPU'}\n"
    yield _facts(index["runs"])
    sections: tuple[tuple[str, tuple[str, ...], Iterable[Row]], ...] = (
        ("Faults, and what their fix gave", PAIRS, _pairs(folder, found)),
        (
            "A job from a few percent to a busy GPU",
            ("job", "GPU in use", "SM activity", "power", "what stands first"),
            _story(found),
        ),
        (
            "Jobs that are entered and left again",
            ("job", "times", "not entered", "died", "other results", "its stop, median",
             "the longest"),
            _cycles(found),
        ),
        (
            "What the agent costs",
            ("job", "a step", "hooks in a step", "more with the agent", "its thread",
             "a trace holds the job"),
            _costs(found),
        ),
        (
            "Traces next to the framework's own profiler",
            ("check", "operations", "their time", "ours"),
            _times(found),
        ),
        (
            "Traces of a job that profiles itself",
            ("job", "its own traces", "operations in each", "ours", "a step, first and last"),
            _beside(found),
        ),
        ("What was believed, and what was seen", ("believed", "", "seen"), _claims(found)),
        ("What failed or was left out", ("part", "why"), _missing(found)),
    )  # fmt: skip
    for title, columns, rows in sections:
        if lines := _table(columns, rows):
            yield from (f"\n### {title}", *lines)
    if (folder / ENDS).exists():
        yield "\n### How JAX's profiler is ended, and what becomes of the job"
        yield "\nThe names are those of `benchmarks/gpu/session_ends.py`."
        ends = json.loads((folder / ENDS).read_text())
        rows = ((row["name"], row["taken"], row["error"] or "went on") for row in ends)
        yield from _table(("ended", "traces", "the job"), rows)
    if (folder / CONSTANTS).exists():
        yield "\n### The end of a trace of a JAX program that holds a constant"
        yield "\nBy `benchmarks/gpu/constants.py`."
        sizes = json.loads((folder / CONSTANTS).read_text())
        lengths = ((f"{row['mb']:.3g} MB", f"{row['stop_ms']:,.0f} ms") for row in sizes)
        yield from _table(("the constant", "the end takes"), lengths)


def _parts(index: dict[str, Any]) -> list[tuple[str, Part]]:
    """Return each part once, with its check's name: the last time that it was not left out."""
    found: dict[tuple[str, str], Part] = {}
    for run in index["runs"]:
        for check, part in parts(run):
            key = check["name"], part["name"]
            if key not in found or part["verdict"] != "left out":
                found[key] = part
    return [(check, part) for (check, _), part in found.items()]


def _facts(runs: list[dict[str, Any]]) -> str:
    last = runs[-1]
    packages = ", ".join(f"{n} {last['packages'][n]}" for n in PACKAGES if n in last["packages"])
    days = sorted({run["date"][:10] for run in runs})
    return (
        f"{len(runs)} runs of `gpu_check.py`, {' and '.join(dict.fromkeys((days[0], days[-1])))}:"
        f" driver {last['driver']}, Python {last['python']}, {packages}; {last['cores']} cores of"
        f" {last['cpu']}."
    )


def _of(found: list[tuple[str, Part]], check: str) -> list[Part]:
    return [part for name, part in found if name.startswith(check) and part["figures"]]


def _pairs(folder: Path, found: list[tuple[str, Part]]) -> Iterator[Row]:
    for part in _of(found, "pairs"):
        path = folder / "windows" / f"{part['name']}_before.json.gz"
        verdict = diagnose.as_json(diagnose.diagnose(portable.load(kept(path)["window"])))
        first = verdict.findings[0] if verdict.findings else None
        measured = part["figures"].get("measured")
        came = "not known" if measured is None else f"{measured[1]:.2f}x"
        yield (
            part["name"],
            f"{first.rule}, {first.severity}" if first else "nothing",
            f"{first.speedup[0]:.2f}x to {first.speedup[1]:.2f}x"
            if first and first.speedup
            else "",
            came,
        )


def _story(found: list[tuple[str, Part]]) -> Iterator[Row]:
    for part in _of(found, "story"):
        gpu, findings = part["figures"]["gpu"], part["figures"]["findings"]
        first = findings[0] if findings else None
        where = f" at `{first['lines'][0]}`" if first and first["lines"] else ""
        yield (
            part["name"], f"{gpu['utilisation_ratio']:.1%}", f"{gpu['sm_activity_ratio']:.1%}",
            f"{gpu['power_watts']:.0f} W",
            f"{first['rule']}, {first['severity']}{where}" if first else "nothing",
        )  # fmt: skip


def _cycles(found: list[tuple[str, Part]]) -> Iterator[Row]:
    for part in _of(found, "attach"):
        seen = part["figures"]
        if "job: cycles" in seen:
            yield (
                part["name"].partition(":")[0], seen["job: cycles"], seen["job: not entered"],
                seen["jobs that died or hung"], seen["wrong results"],
                f"{seen['stop, median']:.2f} ms", f"{seen['stop, the longest']:.2f} ms",
            )  # fmt: skip


def _costs(found: list[tuple[str, Part]]) -> Iterator[Row]:
    for part in _of(found, "cost"):
        seen = part["figures"]
        more, hooks = seen["more_with_it_percent"], seen["hooks_us"]
        yield (
            part["name"].partition(",")[0], f"{seen['step_ns'] / 1e6:.2f} ms",
            f"{hooks[0]:.1f} us ({hooks[1]:.1f} to {hooks[2]:.1f})",
            f"{more[0]:.1f}% ({more[1]:.1f} to {more[2]:.1f})",
            f"{seen['agent_percent_of_core']:.2f}% of a core",
            _held(seen["traces"][-1]),
        )  # fmt: skip


def _held(trace: dict[str, Any]) -> str:
    return str(trace["why"]) if "why" in trace else f"{trace['held_ns'] / 1e6:.0f} ms"


def _times(found: list[tuple[str, Part]]) -> Iterator[Row]:
    for check, part in found:
        seen = part["figures"]
        if "theirs_ns" in seen:
            yield check, seen["count"], f"{seen['theirs_ns']:,} ns", f"{seen['ours_ns']:,} ns"


def _beside(found: list[tuple[str, Part]]) -> Iterator[Row]:
    for part in _of(found, "beside"):
        seen = part["figures"]
        refused = len(seen["refused"])
        yield (
            part["name"], seen["own_traces"], ", ".join(f"{n:,}" for n in seen["own_counts"]),
            f"{len(seen['ours'])} taken" + (f", {refused} refused" if refused else ""),
            f"{seen['first_ms']:.1f} ms, {seen['last_ms']:.1f} ms",
        )  # fmt: skip


def _claims(found: list[tuple[str, Part]]) -> Iterator[Row]:
    held = {True: "holds", False: "**differs**", None: "not known"}
    claims = [claim for _, part in found for claim in part["figures"].get("claims", [])]
    for claim in sorted(claims, key=lambda each: [False, None, True].index(each["holds"])):
        yield _short(claim["claim"]), held[claim["holds"]], _short(claim["seen"])


def _missing(found: list[tuple[str, Part]]) -> Iterator[Row]:
    for _, part in found:
        if part["verdict"] != "ok":
            yield part["name"], f"{part['verdict']}: {part['why']}"


def _short(text: str) -> str:
    text = re.sub(r"\d+\.\d{5,}", lambda number: f"{float(number[0]):.3f}", text)
    return text if len(text) <= LONGEST else f"{text[:LONGEST].rpartition(' ')[0]} ..."


def _table(columns: tuple[str, ...], rows: Iterable[Row]) -> list[str]:
    lines = [f"| {' | '.join(str(cell).replace('|', '/') for cell in row)} |" for row in rows]
    return ["", f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}", *lines] if lines else []

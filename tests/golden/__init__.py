"""All that is said of all that was ever recorded, one line for each finding: the oracle.

A change that is to alter nothing shows nothing here; one that alters a verdict shows which, on
windows of the demos, real traces, planted faults and public programs alike.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import to_builtins

from benchmarks.faultbench import cases as planted
from benchmarks.faultbench import jobs
from benchmarks.faultbench.__main__ import HERE as PLANTED
from benchmarks.faultbench.recordings import NAME, opened
from benchmarks.record_pairs import MADE, kept
from benchmarks.strangers import cases as strangers
from benchmarks.strangers import checkout
from benchmarks.strangers.__main__ import HERE as STRANGERS
from tests.traces.real import TRUTHS, path_of
from whyidle.monitor.diagnosis.diagnose import as_json, diagnose
from whyidle.monitor.signals import opening, portable
from whyidle.monitor.signals.window import Window
from whyidle.monitor.traces.analysis import analyse
from whyidle.monitor.traces.answer import contract

DATA: Final = Path(__file__).parent.parent / "data"
GOLDEN: Final = DATA / "golden.txt"
# Public programs beside their source, which is no part of this repository.
WITH_SOURCE: Final = "source/"
MOST_PLACES: Final = 3
# The folder of this project, in which windows of the demos find their lines; beside MADE.
HERE: Final = f"{DATA.parent.parent}/"
# Sums come out the same on every machine up to so many digits.
DIGITS: Final = 6
# What changes while nobody changes anything.
PASSING: Final = frozenset({"age_s"})
Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Subject:
    """Something recorded that can be judged: "planted/char_gpt.healthy.x1"."""

    name: str
    answer: Callable[[], Answer]

    def lines(self) -> list[str]:
        """Return what is said of it, as it stands in the golden file."""
        return written(self.name, self.answer())


def subjects(mirrors: Path | None = None) -> Iterator[Subject]:
    """Yield all that was recorded; with clones of the public programs also those with source."""
    for path in sorted((DATA / "windows").rglob("*.json.gz")):
        name = str(path.relative_to(DATA / "windows")).removesuffix(".json.gz")
        yield Subject(f"window/{name}", partial(_of_window, path))
    for name in TRUTHS:
        yield Subject(f"trace/{name}", partial(_of_trace, name))
    for path in sorted((DATA / "gpu").glob("*/windows/*.json.gz")):
        name = f"{path.parents[1].name}/{path.name.removesuffix('.json.gz')}"
        yield Subject(f"gpu/{name}", partial(_of_window, path))
    for case in planted.cases():
        path = PLANTED / "recordings" / NAME.format(case.id)
        if path.exists():
            yield Subject(f"planted/{case.id}", partial(_of_planted, case, path))
    last: dict[str, Callable[[], Answer]] = {}
    for stranger in strangers.cases():
        path = STRANGERS / "recordings" / NAME.format(stranger.name)
        if path.exists():
            yield Subject(f"program/{stranger.name}", partial(_of_program, stranger, None, path))
            # Behind all others: the same folder must be empty for the one and full for the other.
            last[stranger.name] = partial(_of_program, stranger, mirrors, path)
    for name, answer in last.items() if mirrors else ():
        yield Subject(f"{WITH_SOURCE}{name}", answer)


def _said(window: Window) -> Answer:
    said: Answer = to_builtins(as_json(diagnose(window)))
    return said


def _of_window(path: Path) -> Answer:
    return _said(portable.load(kept(path)["window"]))


def _of_trace(name: str) -> Answer:
    path = path_of(name)
    return _said(opening.of_answer(contract(analyse(path)), path.name))


def _of_recording(path: Path) -> Answer:
    with opened(path) as (store, _):
        return _said(opening.of_run(store, "last"))


def _of_planted(case: planted.Case, path: Path) -> Answer:
    jobs.written(case)
    return _of_recording(path)


def _of_program(case: strangers.Case, mirrors: Path | None, path: Path) -> Answer:
    if mirrors is None:
        shutil.rmtree(checkout.JOBS / case.name, ignore_errors=True)
    else:
        checkout.written(case, mirrors)
    return _of_recording(path)


def written(name: str, answer: Answer) -> list[str]:
    """Return the lines of an answer: its verdict, and its findings with their places."""
    verdict = answer["verdict"]
    return [
        f"{name}  {digest(answer)}",
        f"  = {verdict['text'] if verdict else None}",
        *(_finding(each) for each in answer["findings"]),
    ]


def _finding(found: Mapping[str, Any]) -> str:
    speedup = "-".join(f"{x:.2f}" for x in found["speedup"] or ())
    places = [f"{Path(x['file']).name}:{x['line']}" for x in found["where"]]
    more = [f"+{len(places) - MOST_PLACES}"] if len(places) > MOST_PLACES else []
    facts = [found["rule"], found["severity"], speedup or "-", *places[:MOST_PLACES], *more]
    return f"  {' '.join(facts)} | {found['title']}"


def digest(answer: Answer) -> str:
    """Return a digest of the whole answer, so that nothing in it changes unseen."""
    text = json.dumps(_rounded(answer), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.{DIGITS}g}")
        case Mapping():
            return {key: _rounded(each) for key, each in value.items() if key not in PASSING}
        case str():
            return value.replace(MADE, "").replace(HERE, "")
        case Sequence():
            return [_rounded(each) for each in value]
    return value


def _lines(subject: Subject) -> list[str]:
    return subject.lines()


def said(chosen: Sequence[Subject]) -> Iterator[list[str]]:
    """Yield what is said of each, judged side by side."""
    beside = [each for each in chosen if each.name.startswith(WITH_SOURCE)]
    # Whoever has read that there is no source does not look again.
    for some in ([each for each in chosen if each not in beside], beside):
        with ProcessPoolExecutor() as pool:
            yield from pool.map(_lines, some, chunksize=4)


def golden() -> dict[str, list[str]]:
    """Return what was said of each when it was last agreed to."""
    found: dict[str, list[str]] = {}
    for line in GOLDEN.read_text().splitlines() if GOLDEN.exists() else ():
        if not line.startswith(" "):
            name = line.split()[0]
        found.setdefault(name, []).append(line)
    return found

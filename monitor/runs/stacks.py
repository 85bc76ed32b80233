"""Stack samples of a main thread as a run keeps them: whole chains, with how often each waited."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from whyidle.monitor.core.contracts.diagnosis import PlaceJson
from whyidle.monitor.core.contracts.trace import JsonObject
from whyidle.monitor.core.finding import Place, SourceLine

MOST_LINES: Final = 20
# Chains in an event: there are 200 samples in most, and 1,200 in those of a long run.
MOST_ROWS: Final = 100
# Looks of an event that are told apart, as bits of a number that JSON can hold.
MOST_LOOKS: Final = 60
# Of more events than these one look each is told apart.
MOST_FINE: Final = 20
# Of the samples of a chain: known, waited, locked, blocked.
STATES: Final = 4
MOST_TOLD: Final = MOST_FINE * MOST_LOOKS
K = TypeVar("K", bound=Hashable)


def summed(parts: Iterable[tuple[K, float]]) -> dict[K, float]:
    """Add up the parts of each key, the largest sum first."""
    found: dict[K, float] = {}
    for key, part in parts:
        found[key] = found.get(key, 0.0) + part
    return dict(sorted(found.items(), key=lambda item: -item[1]))


class CodeLine(NamedTuple):
    """A line of anybody's code."""

    file: str
    line: int
    function: str


def place_json(line: CodeLine | SourceLine | Place, share: float | None = None) -> PlaceJson:
    """Return a line as answers have it."""
    return PlaceJson(file=line.file, line=line.line, function=line.function, share=share)


class Chain(NamedTuple):
    """One stack: the user's lines from the innermost out, what that one called, and the leaf."""

    frames: tuple[CodeLine, ...]
    # ``None``: not seen; the user's innermost line where it called nothing written in Python.
    leaf: CodeLine | None = None
    called: CodeLine | None = None
    # The phase that the job's own code marks; ``None``: none.
    marked: str | None = None

    @property
    def user(self) -> CodeLine | None:
        """The user's innermost line; ``None``: no code of the user's."""
        return self.frames[0] if self.frames else None

    @property
    def innermost(self) -> CodeLine | None:
        """The innermost line that was seen, in anybody's code."""
        return self.leaf or self.user


@dataclass(slots=True)
class Counts:
    """How often a chain was seen."""

    samples: float = 0
    # How many of them say whether the thread waited; did, for anything but Python's lock; for it.
    known: float = 0
    waited: float = 0
    locked: float = 0
    # How many of those that waited did so for a disk, as the kernel says.
    blocked: float = 0
    # In which looks, a bit each; 0: not known.
    when: int = 0

    def add(self, samples: float, *states: float, when: int = 0) -> None:
        """Count more of them."""
        self.samples += samples
        known, waited, locked, blocked = (*states, 0, 0, 0, 0)[:4]
        self.known += known
        self.waited += waited
        self.locked += locked
        self.blocked += blocked
        self.when |= when

    def of(self, state: float) -> float:
        """Return how many of all samples are of a state, by those that say so; 0: none says so."""
        return self.samples * state / self.known if self.known else 0.0


class StackSamples:
    """Chains and how often each was seen."""

    def __init__(self) -> None:
        self.samples: float = 0
        self.chains: dict[Chain, Counts] = {}
        # Looks of about a second each, that samples are told apart by; 0: not known.
        self.looks = 0

    @classmethod
    def of_events(cls, events: Iterable[Mapping[str, Any]]) -> StackSamples:
        """Add up what a run kept; what older programs kept has lines and leaves apart."""
        found = cls()
        some = list(events)
        is_fine = len(some) <= MOST_FINE
        # One event that does not know its looks leaves them all unknown.
        knows = all(data.get("looks") for data in some)
        for data in some:
            samples = data.get("samples", 0)
            found.samples += samples
            files = data.get("files", ())
            # Older programs kept fewer states.
            rows = data.get("rows", ())
            for row, seen in zip(rows, data.get("when") or [0] * len(rows), strict=True):
                count, frames, leaf, called, *states = row
                chain = Chain(
                    tuple(_read(files, frame) for frame in frames),
                    _read(files, leaf) if leaf else None,
                    _read(files, called) if called else None,
                    states[STATES] if len(states) > STATES else None,
                )
                when = int(seen) if is_fine else int(bool(seen))
                found.count(
                    chain, count, *states[:STATES], when=when << found.looks if knows else 0
                )
            for line in data.get("lines", ()):
                found.count(Chain((_line(line),)), line["share"] * samples)
            for line in data.get("leaves", ()):
                found.count(Chain((), _line(line)), line["share"] * samples)
            found.looks += (min(MOST_TOLD, data["looks"]) if is_fine else 1) if knows else 0
        return found

    def count(self, chain: Chain, samples: float, *states: float, when: int = 0) -> None:
        """Count some samples of one chain; ``states``: the other numbers of ``Counts``."""
        self.chains.setdefault(chain, Counts()).add(samples, *states, when=when)

    def of_chains(self, wanted: Callable[[Chain], bool]) -> StackSamples:
        """Return the samples of some chains; in which looks they were is left out."""
        found = StackSamples()
        for chain, n in self.chains.items():
            if wanted(chain):
                found.samples += n.samples
                found.count(chain, n.samples, n.known, n.waited, n.locked, n.blocked)
        return found

    def lines(self, most: int = MOST_LINES) -> tuple[SourceLine, ...]:
        """Return the user's innermost lines, most first."""
        return self._top(lambda chain: chain.user, most)

    def leaves(self, most: int = MOST_LINES) -> tuple[SourceLine, ...]:
        """Return where the thread was in anybody's code, most first."""
        return self._top(lambda chain: chain.leaf, most)

    def running(self, most: int = MOST_LINES) -> tuple[SourceLine, ...]:
        """Return the user's innermost lines by how often the thread ran there, most first.

        Their shares are of the samples in which it ran; all of a chain's count where it does not
        say.
        """
        ran = [
            (chain.user, n.samples * (1 - n.waited / n.known) if n.known else n.samples)
            for chain, n in self.chains.items()
        ]
        whole = sum(n for _, n in ran)
        found = summed((line, n) for line, n in ran if n and line is not None)
        return tuple(SourceLine(*line, n / whole) for line, n in [*found.items()][:most])

    def _top(
        self, place_of: Callable[[Chain], CodeLine | None], most: int
    ) -> tuple[SourceLine, ...]:
        found = summed(
            (place, counts.samples)
            for chain, counts in self.chains.items()
            if (place := place_of(chain)) is not None
        )
        # A liar may count more lines than samples.
        whole = max(1, self.samples, sum(found.values()))
        return tuple(SourceLine(*place, n / whole) for place, n in [*found.items()][:most])

    def packed(self, most_bytes: int, most_rows: int = MOST_ROWS) -> JsonObject:
        """Return what is kept of it, the most frequent chains first; each file is named once."""
        files: dict[str, int] = {}
        rows: list[list[Any]] = []
        most = sorted(self.chains.items(), key=lambda item: -item[1].samples)
        for chain, counts in most[:most_rows]:
            lines = [*chain.frames, *(x for x in (chain.leaf, chain.called) if x is not None)]
            new = dict.fromkeys(line.file for line in lines if line.file not in files)
            names = files | {file: len(files) + i for i, file in enumerate(new)}
            row = [
                counts.samples,
                [_packed(names, frame) for frame in chain.frames],
                None if chain.leaf is None else _packed(names, chain.leaf),
                None if chain.called is None else _packed(names, chain.called),
                counts.known,
                counts.waited,
                counts.locked,
                counts.blocked,
                *(() if chain.marked is None else (chain.marked,)),
            ]
            most_bytes -= len(json.dumps([row, *new]))
            if most_bytes < 0:
                break
            files = names
            rows.append(row)
        found = {"samples": self.samples, "files": list(files), "rows": rows}
        when = [counts.when for _, counts in most[: len(rows)]]
        return found | ({"looks": self.looks, "when": when} if self.looks else {})


def _packed(files: Mapping[str, int], line: CodeLine) -> list[Any]:
    return [files[line.file], line.line, line.function]


def _read(files: Sequence[str], packed: Sequence[Any]) -> CodeLine:
    file, line, function = packed
    return CodeLine(files[file], line, function)


def _line(line: Mapping[str, Any]) -> CodeLine:
    return CodeLine(line["file"], line["line"], line["function"])

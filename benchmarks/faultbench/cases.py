"""Which cases there are: each family with each fault that it has a place for, in one size.

Size and watching time of a case, and the side that a family is on, are drawn by hash: nobody chose
them, and a new family moves no other.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from benchmarks.faultbench.mutations import MUTATIONS, Mutation
from benchmarks.faultbench.program import NotApplicable, Program, families

Side = Literal["tune", "heldout"]
SCALES: Final = (0.25, 1.0, 1.0, 4.0)
WATCHED_S: Final = (10, 35, 35, 35, 90)
HEALTHY: Final = "healthy"


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """One program to watch."""

    family: str
    fault: str
    scale: float
    watched_s: int

    @property
    def id(self) -> str:
        """Its name in files."""
        return f"{self.family}.{self.fault}.x{self.scale:g}"

    @property
    def twin(self) -> str:
        """The healthy program of the same size."""
        return f"{self.family}.{HEALTHY}.x{self.scale:g}"

    @property
    def side(self) -> Side:
        """Whether constants may be fitted to it."""
        return side(self.family)

    @property
    def mutation(self) -> Mutation | None:
        """The fault that is put in."""
        return next((m for m in MUTATIONS if m.name == self.fault), None)

    @property
    def cured(self) -> Iterator[tuple[str, Case]]:
        """The healthy program of the same size without a fault that it has, and which that is."""
        for mutation in MUTATIONS:
            if mutation.cures:
                yield mutation.cures, Case(self.family, mutation.name, self.scale, 0)

    def program(self) -> Program:
        """Return its source, fault and all."""
        program = Program.of_family(self.family)
        if self.mutation is not None:
            self.mutation.apply(program)
        return program


def _drawn(*words: str) -> int:
    return int.from_bytes(hashlib.sha256(" ".join(words).encode()).digest()[:8])


def side(family: str) -> Side:
    """Return the side of a family."""
    return ("tune", "heldout")[_drawn("side", family) % 2]


def sample(some: Sequence[Case], size: int) -> list[Case]:
    """Draw cases family by family in turns; a larger sample holds the smaller one."""
    ranked: list[tuple[int, int, Case]] = []
    for family in {case.family for case in some}:
        mine = sorted((_drawn("sample", case.id), case) for case in some if case.family == family)
        ranked += [(rank, draw, case) for rank, (draw, case) in enumerate(mine)]
    return [case for _, _, case in sorted(ranked)[:size]]


def due(some: Sequence[Case], known: Collection[str], most: int) -> list[Case]:
    """Return the faults to measure next: of the family of which least is known, all of one size.

    ``some``: all there are; ``known``: the names of those that were measured; ``most``: so many.
    """
    faults = [case for case in some if case.fault != HEALTHY]
    measured = Counter(case.family for case in faults if case.id in known)
    # Those of one size take turns with one healthy twin: the more of them, the less time for each.
    groups: dict[tuple[str, float], list[Case]] = {}
    for case in faults:
        if case.id not in known:
            groups.setdefault((case.family, case.scale), []).append(case)
    if not groups:
        return []
    first = min(groups, key=lambda key: (measured[key[0]], -len(groups[key]), key))
    return sorted(groups[first], key=lambda case: _drawn("sample", case.id))[:most]


def _case(family: str, fault: str, scale: float) -> Case:
    watched = WATCHED_S[_drawn("watched", family, fault) % len(WATCHED_S)]
    return Case(family, fault, scale, watched)


def cases(only: Sequence[str] = (), faults: Sequence[str] = ()) -> Iterator[Case]:
    """Yield every case of these families and faults, each healthy program first."""
    for family in families():
        if only and family not in only:
            continue
        for scale in sorted(set(SCALES)):
            if not faults or HEALTHY in faults:
                yield _case(family, HEALTHY, scale)
        for mutation in MUTATIONS:
            if mutation.cures or (faults and mutation.name not in faults):
                continue
            case = _case(family, mutation.name, SCALES[_drawn("scale", family, mutation.name) % 4])
            try:
                case.program()
            except NotApplicable:
                continue
            yield case

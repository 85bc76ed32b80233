"""The ranks of a job in the answer: each of them, who is late, what they exchange."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final, cast

import numpy as np

from whyidle.monitor.core.contracts.trace import (
    DeviceJson,
    ExchangeJson,
    ImbalanceJson,
    OwnerJson,
    RankJson,
    RanksJson,
    ReasonJson,
    SkewJson,
    StragglerJson,
    TraceJson,
)
from whyidle.monitor.core.errors import Problem, UsageProblem
from whyidle.monitor.core.ranks import Ranks, RankShare, Who, judge
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.traces.analysis import Analysis
from whyidle.monitor.traces.opening import Progress, show
from whyidle.monitor.traces.ranks.files import Files, files_of
from whyidle.monitor.traces.ranks.job import Job, RankFile, read_job
from whyidle.monitor.traces.ranks.matching import Shared, shared
from whyidle.monitor.traces.ranks.member import WAIT_FOR_ALL, Member, members
from whyidle.monitor.traces.ranks.merging import merged
from whyidle.monitor.traces.ranks.side_by_side import SideBySide, side_by_side

# Names in a sentence.
_NAMED: Final = 5
_ALONE: Final = "its collectives are in no other file"
_NONE: Final = "the file shows no collective"
_NO_CLOCK: Final = "the file does not say when it began, or shares no collective with the others"


@dataclass(frozen=True, slots=True)
class _Rank:
    """One device of one file."""

    file: RankFile
    member: Member
    device: DeviceJson
    number: int | None

    @property
    def label(self) -> str:
        return self.file.name if self.number is None else f"rank {self.number}"

    @property
    def who(self) -> Who:
        return Who(self.number, self.device["pid"], self.device["host"])


@dataclass(frozen=True, slots=True)
class JobRead:
    """What was read of a job: the answer, and what its ranks did beside each other."""

    answer: TraceJson
    _ranks: Sequence[_Rank]
    _found: Shared

    def side_by_side(self) -> SideBySide:
        """Return the ranks on one clock, as the devices of one trace."""
        devices = [cast("DeviceJson", {**r.device, "rank": r.number}) for r in self._ranks]
        members_ = [rank.member for rank in self._ranks]
        return side_by_side(self.answer, devices, members_, self._found)


def job_answer(names: Sequence[str], progress: Progress | None = None) -> TraceJson:
    """Read the files of a job, or its folders, and return one answer for all of them."""
    return read_ranks(names, progress).answer


def read_ranks(names: Sequence[str], progress: Progress | None = None) -> JobRead:
    """Read the files of a job, or its folders."""
    files = files_of(names)
    job = read_job(files, progress)
    if not job.files:
        raise _nothing(files, job)
    said = list(job.said)
    ranks = list(_newest(_ranks(job.files), said))
    used = [file for file in job.files if any(rank.file is file for rank in ranks)]
    answer = merged([file.answer for file in used or job.files], show(Path(names[0])))
    ranks = _in_order(ranks)
    found = _shared(ranks)
    answer["ranks"] = _ranks_json(ranks, found, [*said, *_left_out(job)])
    return JobRead(answer, ranks, found)


def of_one_file(analysis: Analysis, answer: TraceJson) -> RanksJson | None:
    """Return how the devices of one file come to what they share; ``None``: no two share any."""
    if len(analysis.devices) < 2:
        return None
    ranks = _in_order(_ranks([RankFile(analysis.path, answer, members(analysis))]))
    several = sum(len(rank.member) > 0 for rank in ranks) > 1
    return _ranks_json(ranks, _shared(ranks), []) if several else None


def _nothing(files: Files, job: Job) -> Problem:
    first = job.failed[0][1]
    if len(job.failed) == 1:
        return first
    return UsageProblem(
        f"None of {len(files.paths)} files could be read. The first: {first.what}", first.next_step
    )


def _left_out(job: Job) -> Iterator[str]:
    found = [(path.name, problem.what) for path, problem in job.failed]
    idle = [file for file in job.files if not file.answer["devices"]]
    found += [(file.path.name, " ".join(file.answer["warnings"])) for file in idle]
    for name, why in found[:_NAMED]:
        yield f"{show(Path(name))} is left out: {why}"
    if len(found) > _NAMED:
        yield f"{len(found) - _NAMED} more files are left out: nothing could be read of them."


def _ranks(files: Sequence[RankFile]) -> Iterator[_Rank]:
    for file in files:
        devices = file.answer["devices"]
        for member in file.members:
            device = devices[member.device]
            number = device["rank"]
            if number is None and len(devices) == 1:
                number = file.rank_by_name
            yield _Rank(file, member, device, number)


def _newest(found: Iterator[_Rank], said: list[str]) -> Iterator[_Rank]:
    """Of a rank that several files show, one window after the other, take the newest."""
    by_key: dict[tuple[object, ...], list[_Rank]] = {}
    for i, rank in enumerate(found):
        device = rank.device
        key = rank.number, device["host"], device["pid"], device["index"]
        is_known = rank.number is not None
        by_key.setdefault(key if is_known else (i,), []).append(rank)
    older = 0
    for same in by_key.values():
        older += len(same) - 1
        yield max(same, key=lambda rank: rank.member.origin_ns or 0)
    if older:
        what = "1 older file" if older == 1 else f"{older} older files"
        said.append(f"{what} of ranks that have newer ones: left out.")
    numbers = Counter(key[0] for key in by_key if len(key) > 1)
    if twice := sorted(str(rank) for rank, count in numbers.items() if count > 1):
        said.append(f"Several processes say that they are rank {', '.join(twice[:_NAMED])}.")


def _in_order(ranks: Iterable[_Rank]) -> list[_Rank]:
    return sorted(ranks, key=lambda rank: (rank.number is None, rank.number or 0))


def _shared(ranks: Sequence[_Rank]) -> Shared:
    return shared([rank.member for rank in ranks], [rank.who for rank in ranks])


def _ranks_json(ranks: Sequence[_Rank], found: Shared, said: Sequence[str]) -> RanksJson:
    """Return the part of the answer about the ranks."""
    judged = Ranks(reason=_why_not(ranks)) if found.arrivals is None else judge(found.arrivals)
    worlds = {rank.member.world for rank in ranks} - {None}
    world = max((w for w in worlds if w is not None), default=None)
    missing = sorted(set(range(world or 0)) - {rank.number for rank in ranks})
    if any(rank.number is None for rank in ranks):
        missing = []
    clocks = _clocks(ranks, found)
    unknown = {} if judged.straggler else {"straggler": judged.reason}
    return {
        "each": [_each(rank, judged, found, i, clocks[i]) for i, rank in enumerate(ranks)],
        "straggler": _straggler(ranks, judged),
        "imbalance": _imbalance(ranks),
        "communication": list(_exchanges(found)),
        "skew": _skew(ranks, clocks),
        "collectives": judged.collectives,
        "steps": judged.steps if found.has_steps else 0,
        "step_ns": round(judged.step_ns) if found.has_steps and judged.step_ns else None,
        "world": world,
        "missing": missing,
        "warnings": [*said, *_warnings(ranks, found, missing)],
        "unknown": unknown,
    }


def _why_not(ranks: Sequence[_Rank]) -> str:
    if len(ranks) < 2:
        return "there is only one rank"
    if not any(len(rank.member) for rank in ranks):
        return "no file shows a collective"
    return "no collective was seen on two ranks"


def _each(rank: _Rank, judged: Ranks, found: Shared, i: int, clock: float | None) -> RankJson:
    device, file = rank.device, rank.file
    steps = file.answer["steps"]
    share = judged.each[i] if judged.each else None
    unknown = dict(device["unknown"])
    if rank.number is not None:
        unknown.pop("rank", None)
    if share is None or i in found.alone:
        share = None
        why = _NONE if not len(rank.member) else _ALONE if i in found.alone else judged.reason
        unknown |= dict.fromkeys(("last", "late", "waits"), why)
    if clock is None:
        unknown["clock_ns"] = _NO_CLOCK if len(rank.member) else _NONE
    return {
        "rank": rank.number,
        "host": device["host"],
        "pid": device["pid"],
        "file": file.name,
        "device": device["index"],
        "kind": device["kind"],
        "budget": device["budget"],
        "step_budget": device["step_budget"],
        "steps": {
            "count": steps["count"],
            "median_ns": steps["median_ns"],
            "source": steps["source"],
            "how": steps["how"],
        },
        "compute_ns": device["compute_ns"],
        "comm_ns": device["comm_ns"],
        "exposed_comm_ns": device["exposed_comm_ns"],
        "last": None if share is None else share.last,
        "late": None if share is None else list(share.late),
        "waits": None if share is None else list(share.waits),
        "clock_ns": None if clock is None else round(clock),
        "unknown": unknown,
    }


def _clocks(ranks: Sequence[_Rank], found: Shared) -> list[float | None]:
    """Return the clock on the wall of each rank, less that of the first one."""
    begun = [rank.member.origin_ns for rank in ranks]
    if not begun or (first := begun[found.lead]) is None:
        return [None] * len(ranks)
    return [
        None if clock is None or origin is None else clock + (origin - first)
        for clock, origin in zip(found.clock_ns, begun, strict=True)
    ]


def _skew(ranks: Sequence[_Rank], clocks: Sequence[float | None]) -> SkewJson | None:
    known = [(clock, rank) for clock, rank in zip(clocks, ranks, strict=True) if clock is not None]
    if len(known) < 2:
        return None
    middle = median(clock for clock, _ in known)
    farthest = max(known, key=lambda one: abs(one[0] - middle))[1]
    values = [clock for clock, _ in known]
    return {"most_ns": round(max(values) - min(values)), "rank": farthest.number}


def _imbalance(ranks: Sequence[_Rank]) -> ImbalanceJson | None:
    """Compare what the ranks compute in a step; without steps, in all."""
    if len(ranks) < 2:
        return None
    each = [_in_step(rank, Slice.COMPUTE) for rank in ranks]
    known = [value for value in each if value is not None]
    if len(known) < len(ranks):
        known = [float(rank.device["compute_ns"]) for rank in ranks]
    mean = sum(known) / len(known)
    if not mean:
        return None
    return {
        "most_over_mean": max(known) / mean,
        "busiest": ranks[known.index(max(known))].number,
        "least_ns": round(min(known)),
        "most_ns": round(max(known)),
    }


def _in_step(rank: _Rank, part: Slice) -> float | None:
    """Return how long a slice takes in a step of a rank."""
    budget = rank.device["step_budget"]
    return None if not budget or not budget["steps"] else budget["slices"][part] / budget["steps"]


def _straggler(ranks: Sequence[_Rank], judged: Ranks) -> StragglerJson | None:
    late = judged.straggler
    if late is None or judged.chance is None:
        return None
    at = next(i for i, each in enumerate(judged.each) if each is late)
    rank = ranks[at]
    return {
        "rank": rank.number,
        "host": rank.device["host"],
        "pid": rank.device["pid"],
        "file": rank.file.name,
        "device": rank.device["index"],
        "share": list(late.late),
        "late_ns": [round(share * judged.step_ns) for share in late.late],
        "last": late.last,
        "alike": [each.rank for each in judged.alike],
        "collectives": dict(judged.kinds),
        "chance": judged.chance,
        "why": _why(ranks, at, _indices(judged.alike, judged.each)),
    }


def _indices(some: Sequence[RankShare], of: Sequence[RankShare]) -> set[int]:
    return {i for i, each in enumerate(of) if any(each is one for one in some)}


def _why(ranks: Sequence[_Rank], at: int, alike: set[int]) -> ReasonJson | None:
    """Return what the rank does for longer than those do that wait for it."""
    others = [rank for i, rank in enumerate(ranks) if i != at and i not in alike]
    more: dict[Slice, float] = {}
    for part in Slice:
        mine = _in_step(ranks[at], part)
        theirs = [value for rank in others if (value := _in_step(rank, part)) is not None]
        if mine is not None and theirs and part is not Slice.EXPOSED_COMM:
            more[part] = mine - median(theirs)
    if not more or max(more.values()) <= 0:
        return None
    part = max(more, key=lambda one: more[one])
    lines: list[OwnerJson] = [w for w in ranks[at].file.answer["where"] if w["slice"] == part]
    return {"slice": part, "ns": round(more[part]), "where": lines[0] if lines else None}


def _exchanges(found: Shared) -> Iterator[ExchangeJson]:
    """Yield the communication by kind, size, and size of the group, the longest first."""
    rows: dict[tuple[str, int], ExchangeJson] = {}
    for group in found.groups:
        took, size = group.took(), len(group.ranks)
        least = np.nanmin(took, axis=1)
        for what in np.unique(group.first.what).tolist():
            mine = group.first.what == what
            kind, _, length = found.whats[what].partition(", ")
            total, moving = int(np.nansum(took[mine])), float(least[mine].sum())
            waits = size > 1 and kind in WAIT_FOR_ALL
            waiting = int(np.nansum(took[mine] - least[mine, None])) if waits else None
            number = int(length.split()[0]) if length else None
            row = rows.setdefault(
                (found.whats[what], size),
                {
                    "kind": kind,
                    "bytes": number,
                    "ranks": size,
                    "count": 0,
                    "total_ns": 0,
                    "waiting_ns": None,
                    "gb_per_s": None,
                },
            )
            before = (row["bytes"] or 0) * row["count"] / row["gb_per_s"] if row["gb_per_s"] else 0
            row["count"] += int(mine.sum())
            row["total_ns"] += total
            row["waiting_ns"] = None if waiting is None else (row["waiting_ns"] or 0) + waiting
            spent = before + moving
            row["gb_per_s"] = number * row["count"] / spent if number and spent else None
    yield from sorted(rows.values(), key=lambda row: -row["total_ns"])


def _warnings(ranks: Sequence[_Rank], found: Shared, missing: Sequence[int]) -> Iterator[str]:
    if missing:
        names = ", ".join(map(str, missing[:_NAMED]))
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        of = "rank" if len(missing) == 1 else "ranks"
        yield f"No file of {of} {names}{more}: whom the others wait for may be missing."
    counts = Counter(rank.file.answer["steps"]["count"] for rank in ranks)
    if len(counts) > 1:
        said = ", ".join(f"{count} on {n}" for count, n in sorted(counts.items()))
        yield f"The ranks have unequal numbers of steps ({said}): compared is what they share."
    if found.alone and len(ranks) > 1:
        names = ", ".join(ranks[i].label for i in found.alone[:_NAMED])
        more = f" and {len(found.alone) - _NAMED} more" if len(found.alone) > _NAMED else ""
        yield (
            f"The collectives of {names}{more} are in no other file: another job, another moment,"
            " or a damaged file."
        )
    if found.cut:
        yield "The job has more collectives than are compared: the first of them are."
    left = sum(rank.member.left_out for rank in ranks)
    if left:
        yield f"{left:,} collectives at the ends of long files are not compared."

"""Questions to one trace, by its JSON answer: a file that was read now, or one kept with a run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from whyidle.monitor.core.amounts import AGAIN, NEARLY_ALL
from whyidle.monitor.core.contracts.trace import (
    BudgetJson,
    CallJson,
    CopyJson,
    DeviceJson,
    KernelsJson,
    LaunchingJson,
    NamedJson,
    OwnerJson,
    RanksJson,
    TraceJson,
)
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.traces.window import is_too_short, judged

if TYPE_CHECKING:
    from whyidle.monitor.core.ranks import Ranks

# Fewer steps have no mean to speak of.
LEAST_STEPS: Final = AGAIN


@dataclass(frozen=True)
class Traced:
    """One trace, by its answer."""

    answer: TraceJson
    # As evidence names it: "trace 3", or the name of a file.
    source: str
    # Seconds since it was taken; ``None``: of a file.
    age_s: float | None = None
    # How long the job stood still for it; ``None``: not known, or of a file.
    held_s: float | None = None
    # What each of the job's GPUs counted in its own seconds; none: it was too short for that.
    then: tuple[Mapping[Metric, float], ...] = ()
    # Its account as it is believed, where that is another than it shows.
    believed: BudgetJson | None = None

    # The account ---------------------------------------------------------------------------------
    @cached_property
    def account(self) -> BudgetJson:
        """The budget of the steps where they are most of the trace, that of the whole where not."""
        return judged(self.answer) if self.believed is None else self.believed

    @property
    def total_ns(self) -> int:
        """All the time that it accounts for, over all devices."""
        return sum(self.account["slices"].values())

    @property
    def seconds(self) -> float:
        """How long its devices were watched."""
        return self.total_ns / 1e9 / max(1, len(self.devices))

    @property
    def is_meaningful(self) -> bool:
        """Whether its shares mean something: some work, and not less than a step."""
        return self.shows_work and not is_too_short(self.answer.get("window"))

    @property
    def shows_work(self) -> bool:
        """Whether it has an account in which something is known, however short it is."""
        unknown = self.account["slices"].get(Slice.IDLE_UNKNOWN, 0)
        return bool(self.total_ns) and unknown < NEARLY_ALL * self.total_ns

    def share(self, part: Slice) -> Measure | None:
        """Return the share of the time that a slice takes."""
        return self._ratio(self.account["slices"].get(part, 0)) if self.total_ns else None

    def detail(self, part: Slice, label: str) -> Measure | None:
        """Return the share of the time that one detail of a slice takes."""
        details = self.account["details"].get(part, {})
        return self._ratio(details.get(label, 0)) if self.total_ns else None

    def taken(self, *parts: Slice) -> float:
        """Return the share of the time that some slices take together, as far as it is known."""
        shares = (self.share(part) for part in parts)
        return sum(share.value for share in shares if share is not None)

    def exposed(self, direction: str) -> float:
        """Return the share of the time in which only copies of a direction run, of any memory."""
        labels = (direction, f"{direction}, pageable")
        shares = (self.detail(Slice.EXPOSED_COPY, label) for label in labels)
        return sum(share.value for share in shares if share is not None)

    # Steps ---------------------------------------------------------------------------------------
    @property
    def steps(self) -> int:
        """Whole steps in it; 0 where none were found."""
        return self.answer["steps"]["count"]

    @property
    def step_s(self) -> Measure | None:
        """How long a step takes."""
        median = self.answer["steps"]["median_ns"]
        return None if median is None else self.measure(median / 1e9, "s")

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of device in it."""
        return frozenset(device["kind"] for device in self.answer["devices"])

    @property
    def devices(self) -> Sequence[DeviceJson]:
        """Each device, as the answer has it."""
        return self.answer["devices"]

    # Ranks ---------------------------------------------------------------------------------------
    @cached_property
    def ranks(self) -> Ranks | None:
        """The ranks of the job side by side; ``None``: it is of one file only."""
        found = self.answer.get("ranks")
        return None if found is None else _ranks(found)

    # What ran ------------------------------------------------------------------------------------
    def calls(self, pattern: str) -> list[CallJson]:
        """Return the host's calls whose whole name matches, the most frequent first."""
        like = re.compile(pattern)
        return [call for call in self.answer.get("calls", ()) if like.fullmatch(call["name"])]

    def count(self, pattern: str) -> int:
        """Return how many such calls there are."""
        return sum(int(call["count"]) for call in self.calls(pattern))

    def in_calls(self, pattern: str) -> float:
        """Return the share of the time in such calls: of the whole trace, as they are counted."""
        return self.of_whole(sum(call["total_ns"] for call in self.calls(pattern)))

    def of_whole(self, ns: float) -> float:
        """Return a time as a share of the whole trace: what is counted is not counted by steps."""
        whole = sum(self.answer["budget"]["slices"].values())
        return ns / whole if whole else 0.0

    @property
    def operators(self) -> Sequence[NamedJson]:
        """The operators with the most time of their own, without that of those they call."""
        return self.answer.get("top_operators", ())

    def calls_per_step(self, pattern: str) -> Measure | None:
        """Return how often such calls are made in a step; ``None`` without steps."""
        if self.steps < LEAST_STEPS or "calls" not in self.answer:
            return None
        count = sum(call["per_step"] or 0.0 for call in self.calls(pattern))
        return self.measure(count, "1/step")

    @property
    def kernels(self) -> KernelsJson | None:
        """All kernels together; ``None``: not known."""
        return self.answer.get("kernels")

    @property
    def launching(self) -> LaunchingJson | None:
        """How the host submits its work; ``None``: not known."""
        return self.answer.get("launching")

    def copies(self, direction: str) -> Iterator[CopyJson]:
        """Yield the copies of one direction, "host to device" for one."""
        yield from (c for c in self.answer.get("copies", ()) if c["direction"] == direction)

    def places(self, part: Slice) -> list[OwnerJson]:
        """Return the user's lines that a slice belongs to, most first."""
        shown = judged(self.answer)["slices"].get(part, 0)
        left = self.account["slices"].get(part, 0) / shown if shown else 1.0
        found = [place for place in self.answer.get("where", ()) if place["slice"] == part]
        return [place | {"share": place["share"] * min(1.0, left)} for place in found]

    def measure(self, value: float, unit: str) -> Measure:
        """Return a number of this trace."""
        return Measure(value, unit, self.source, self.age_s, self.total_ns / 1e9)

    def _ratio(self, ns: int) -> Measure:
        return self.measure(ns / self.total_ns, "ratio")


def _ranks(found: RanksJson) -> Ranks:
    """Return the ranks of an answer as rules ask for them."""
    from whyidle.monitor.core.ranks import Ranks, RankShare  # noqa: PLC0415  numpy comes with it

    each, nothing = [], (0.0, 0.0)
    for rank in found["each"]:
        (low, high), (least, most) = rank["late"] or nothing, rank["waits"] or nothing
        who, last = (rank["rank"], rank["pid"], rank["host"]), rank["last"] or 0.0
        each.append((rank, RankShare(*who, last, (low, high), (least, most))))
    late = found["straggler"]
    mine = None
    if late is not None:
        keys = [(rank["file"], rank["device"]) for rank, _ in each]
        mine = each[keys.index((late["file"], late["device"]))][1]
    alike = set() if late is None else set(late["alike"])
    return Ranks(
        each=tuple(share for _, share in each),
        straggler=mine,
        alike=tuple(share for rank, share in each if rank["rank"] in alike),
        collectives=found["collectives"],
        steps=found["steps"],
        step_ns=float(found["step_ns"] or 0),
        kinds={} if late is None else late["collectives"],
        chance=None if late is None else late["chance"],
        reason=found["unknown"].get("straggler", ""),
    )

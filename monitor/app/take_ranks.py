"""A trace of each rank of a job at once: the same moment on all of them, into one folder."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from whyidle.monitor.app.entering import entered
from whyidle.monitor.app.take import BETWEEN, check_room, run_of, say
from whyidle.monitor.core.contracts.trace import JsonObject, TakenJson
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.core.interrupts import ended_by_signals
from whyidle.monitor.core.paths import database
from whyidle.monitor.link.link import Link, LinkLost
from whyidle.monitor.link.records import State
from whyidle.monitor.processes.process import Identity
from whyidle.monitor.processes.target import Target
from whyidle.monitor.processes.worker import ranks_below
from whyidle.monitor.traces.window import TraceWindow
from whyidle.monitor.tracing.by_agent import ByAgent
from whyidle.monitor.tracing.scheduler import TOO_EARLY
from whyidle.monitor.tracing.space import Space, remove
from whyidle.monitor.tracing.taken import Taken

FOLDER: Final = "ranks"
# Folders of earlier ones that stay.
MOST_FOLDERS: Final = 3
# An agent first takes short traces, to learn what their ends cost: each of its own time. From the
# second turn on all of them take the same moment; a part of the shortest must be in all.
MOST_TURNS: Final = 3
IN_ALL: Final = 0.5
# After one trace there is a pause of as long as it took.
PATIENCE_SECONDS: Final = 20.0
# An agent says what its framework is within a second or two.
SAYS_SECONDS: Final = 5.0


@dataclass(slots=True)
class OneRank:
    """One rank, and what came of its trace."""

    link: Link
    rank: int | None
    # Whether its framework has said whether it is one of many.
    has_said: bool
    way: ByAgent | None = None
    taken: Taken | None = None
    why: str = ""

    @property
    def file(self) -> Path | None:
        """Its trace."""
        return None if self.taken is None else self.taken.path

    @property
    def pid(self) -> int:
        """Its process."""
        return self.link.key.pid

    @property
    def name(self) -> str:
        """What a person calls it, and its file."""
        return f"pid {self.pid}" if self.rank is None else f"rank {self.rank}"

    def listen(self) -> None:
        """Take what its agent says, above all which rank it is."""
        with contextlib.suppress(LinkLost):
            for record in self.link.exchange():
                if isinstance(record, State):
                    self._hear(record.facts)

    def drop(self) -> None:
        """Have its agent drop a trace that is on its way."""
        if self.way is not None:
            self.way.close()
        # So that the word of it goes out.
        self.listen()

    def _hear(self, facts: dict[str, Any]) -> None:
        several = facts.get("world_size") or facts.get("processes")
        if type(several) is int:
            self.has_said = True
            if several > 1 and type(facts.get("rank")) is int:
                self.rank = facts["rank"]


@dataclass(frozen=True, slots=True)
class RankTraces:
    """The traces of all ranks."""

    folder: Path
    ranks: Sequence[OneRank] = field(default_factory=tuple)
    # How long they were asked for.
    seconds: float = 0.0
    # The recording that watches one of them.
    run: int | None = None
    # Folders that made room.
    dropped: Sequence[Path] = ()

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(each.file is not None for each in self.ranks)

    def facts(self) -> TakenJson:
        """Return how they were taken, as the store keeps it: the moment is that of the first."""
        taken = [each.taken for each in self.ranks if each.taken is not None]
        first = min(taken, key=lambda one: one.began_ns)
        began_ms = first.realtime_ns // 1_000_000
        length_ns = max(one.ended_ns for one in taken) - first.began_ns
        return {
            "began_ms": began_ms,
            "ended_ms": began_ms + length_ns // 1_000_000,
            "held_ns": max((held for one in taken if (held := one.held_ns)), default=None),
            "how": first.how,
            "pid": next(each.pid for each in self.ranks if each.taken is first),
            "rank": None,
            "window": TraceWindow(length_ns, round(self.seconds * 1e9), None).facts(),
        }

    def as_json(self) -> JsonObject:
        """Return the answer of ``monitor trace PID --all-ranks --json``."""
        return {
            "schema": 1,
            "folder": str(self.folder),
            # How long all of them were traced at once.
            "overlap_s": overlap_ns(self.ranks) / 1e9,
            "ranks": [
                {
                    "rank": each.rank,
                    "pid": each.pid,
                    "file": None if each.file is None else str(each.file),
                    "unknown": {} if each.file is not None else {"file": each.why},
                }
                for each in self.ranks
            ],
        }


class _RankSpace(Space):
    """A folder for the traces of one moment, beside the files of single ones."""

    def __init__(self, store: Path) -> None:
        super().__init__(store)
        self.above = self.folder
        self.folder = self.folder / f"{FOLDER}-{time.time_ns() // 1_000_000}"

    def drop_older(self) -> list[Path]:
        """Remove the folders of earlier moments beyond the newest few; return them."""
        gone = sorted(self.above.glob(f"{FOLDER}-*"))[:-MOST_FOLDERS]
        for folder in gone:
            shutil.rmtree(folder, ignore_errors=True)
        return gone


def take_ranks(pid: str, seconds: float) -> RankTraces:
    """Take a trace of each rank below a process; a refusal of one costs that one alone."""
    named = Target.named(pid)
    space = _RankSpace(database())
    check_room(space)
    with ended_by_signals(), contextlib.ExitStack() as stack:
        some = [_enter(stack, Target(who.key, named.fs), who) for who in ranks_below(named)]
        ranks = _those_of_one_job([each for each in some if each is not None])
        say(f"Taking traces of {len(ranks)} ranks, of at most {seconds:g} s …")
        try:
            _take(ranks, space, seconds)
        except BaseException:
            shutil.rmtree(space.folder, ignore_errors=True)
            raise
    if not any(each.file for each in ranks):
        raise Problem(
            f"No trace of a rank could be taken: {ranks[0].why}.",
            f"Watch them, traces come when they can: monitor attach {pid}",
        )
    watched = (run for each in ranks if (run := run_of(each.link.key)) is not None)
    return RankTraces(space.folder, ranks, seconds, next(watched, None), space.drop_older())


def _enter(stack: contextlib.ExitStack, target: Target, who: Identity) -> OneRank | None:
    try:
        link = stack.enter_context(entered(target, "trace", say))
    except Problem as problem:
        say(f"Not in process {target.pid}: {problem}")
        return None
    return OneRank(link, None if who.rank is None else who.rank.rank, has_said=False)


def _those_of_one_job(some: list[OneRank]) -> list[OneRank]:
    """Return the ranks in their order, each once; raises where none says that it is one of many."""
    deadline = time.monotonic() + SAYS_SECONDS
    while not all(each.has_said for each in some) and time.monotonic() < deadline:
        time.sleep(BETWEEN)
        for each in some:
            each.listen()
    first: dict[int, OneRank] = {}
    for each in some:
        if each.rank is not None:
            first.setdefault(each.rank, each)
    if len(first) < 2:
        raise Problem(
            "No two processes say that they are ranks of one job.",
            "Take a trace of one: monitor trace PID",
        )
    return [first[rank] for rank in sorted(first)]


def _take(ranks: Sequence[OneRank], space: Space, seconds: float) -> None:
    """Take the same moment of all: each begins between two steps, and these are made together."""
    for _ in range(MOST_TURNS):
        earlier = [(each.taken, each.why) for each in ranks]
        deadline = time.monotonic() + PATIENCE_SECONDS
        while _ask_all(ranks, space, seconds) and time.monotonic() < deadline:
            time.sleep(1.0)
        _keep_more(ranks, earlier)
        shortest = min((_length(each.taken) for each in ranks if each.taken), default=0)
        if overlap_ns(ranks) >= IN_ALL * shortest:
            return


def _keep_more(ranks: Sequence[OneRank], earlier: Sequence[tuple[Taken | None, str]]) -> None:
    """Keep the traces of this turn, or of the one before where that one had more ranks."""
    now = sum(each.taken is not None for each in ranks)
    is_worse = now < sum(taken is not None for taken, _ in earlier)
    for each, (taken, why) in zip(ranks, earlier, strict=True):
        gone = each.taken if is_worse else taken
        if gone is not None:
            remove(gone.path)
        if is_worse:
            each.taken, each.why = taken, why


def overlap_ns(ranks: Sequence[OneRank]) -> int:
    """Return how long all of them were traced at once."""
    taken = [each.taken for each in ranks if each.taken is not None]
    if not taken:
        return 0
    return max(0, min(x.ended_ns for x in taken) - max(x.began_ns for x in taken))


def _length(taken: Taken) -> int:
    return taken.ended_ns - taken.began_ns


def _ask_all(ranks: Sequence[OneRank], space: Space, seconds: float) -> bool:
    """Ask each for a trace and wait for all; return whether it was too soon for one of them."""
    for each in ranks:
        each.taken, each.why = None, ""
        each.way = ByAgent(each.link, space, each.name.replace(" ", "-"))
    try:
        _wait_for(ranks, seconds)
    except BaseException:
        for each in ranks:
            each.drop()
        raise
    early = next((each.why for each in ranks if each.why.startswith(TOO_EARLY)), None)
    for each in ranks:
        if early is not None and each.taken is not None:
            remove(each.taken.path)
            each.taken, each.why = None, f"another rank's came {early}"
    return early is not None


def _wait_for(ranks: Sequence[OneRank], seconds: float) -> None:
    for each in ranks:
        assert each.way is not None  # noqa: S101  just made
        each.why = each.way.ask(seconds) or ""
    while any(each.taken is None and not each.why for each in ranks):
        time.sleep(BETWEEN)
        for each in ranks:
            _go_on(each)


def _go_on(each: OneRank) -> None:
    each.listen()
    if each.way is None or each.taken is not None or each.why:
        return
    found = each.way.poll()
    if isinstance(found, Taken):
        each.taken = found
    elif isinstance(found, str):
        each.why = found

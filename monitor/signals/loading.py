"""What loading spends its time on, wherever it happens: main thread, workers, or other threads.

All of it is by stack samples. Loading that the main thread does itself counts where it takes longer
than the main thread waits for others; else what these others do is what it waits for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from whyidle.monitor.core.finding import Place
from whyidle.monitor.libraries.frames import kind_of, plays
from whyidle.monitor.libraries.table import Kind, Role
from whyidle.monitor.libraries.users import is_users
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.feeding import Feeding
from whyidle.monitor.signals.loading_chains import begins_workers, divided, is_loading
from whyidle.monitor.signals.loading_kinds import LoadKind
from whyidle.monitor.signals.recorded import Recorded
from whyidle.monitor.signals.sampling import SURE, start_up

# A cause that explains less of the loading is not what a person should look at first.
LEAST_OF_LOADING: Final = 1 / 3
# Others that load do little else.
MOSTLY: Final = 0.5
# A line with less of it is not shown.
LEAST_SHOWN: Final = 0.01
# Who waits less for what goes into the steps has it in time.
LEAST_FED: Final = 0.05
# Of one thread, to say how much of its time it works.
LEAST_LOOKS: Final = 20


class Loader(StrEnum):
    """Who loads, in the words of evidence."""

    MAIN = "the main thread"
    WORKERS = "worker processes"
    THREADS = "threads of the process itself"


@dataclass(frozen=True, slots=True)
class LoadRow:
    """A part of the loading: the user's line, and what is done there; ``None``: not known."""

    line: CodeLine
    kind: LoadKind | None
    share: float


@dataclass(frozen=True, slots=True)
class Loading:
    """What loading does, as shares of the time in which it works."""

    who: Loader
    rows: tuple[LoadRow, ...]
    samples: float
    # The share of the main thread's time in which it waits for others that surely load, at least;
    # and the user's lines at which it does.
    waits: float = 0.0
    waits_at: tuple[CodeLine, ...] = ()

    def share(self, kind: LoadKind | None) -> float:
        """Return the share of one kind."""
        return sum(row.share for row in self.rows if row.kind is kind)

    def error(self, share: float) -> float:
        """Return by how much a share may be wrong by chance."""
        share = min(1.0, share)
        return SURE * math.sqrt(share * (1 - share) / self.samples) if self.samples else 1.0

    @property
    def cause(self) -> LoadKind | None:
        """What takes most of it, where the samples are enough to say so."""
        kinds = {row.kind for row in self.rows if row.kind is not None}
        most = max(kinds, key=self.share, default=None)
        if most is None or self.samples < LEAST_LOOKS:
            return None
        share = self.share(most)
        is_most = share - self.error(share) >= LEAST_OF_LOADING and share > self.share(None)
        return most if is_most else None

    def places(self, kind: LoadKind) -> tuple[Place, ...]:
        """Return the user's lines of one kind with their shares, the largest first."""
        shares: dict[CodeLine, float] = {}
        for row in self.rows:
            if row.kind is kind and is_users(row.line.file):
                shares[row.line] = shares.get(row.line, 0.0) + row.share
        ordered = sorted(shares.items(), key=lambda item: -item[1])
        return tuple(Place(*line, share) for line, share in ordered if share >= LEAST_SHOWN)


@dataclass(frozen=True, slots=True)
class Busy:
    """How much of its time one worker works, by its samples."""

    share: float
    error: float
    loading: Loading | None


def loading_of(job: Recorded, feeding: Feeding | None = None) -> Loading | None:
    """Return what loading does; ``None``: nobody was seen at it.

    ``feeding`` tells what the main thread makes for the steps, whatever it is called.
    """
    out = {(x.file, x.line) for x in start_up(job.lines, by_time=bool(job.warm_s))}
    main = _Pool(Loader.MAIN)
    main.take(job.stacks, out=out, feeding=feeding, only_loading=True)
    helpers = _Pool(Loader.WORKERS)
    for helper in job.helpers:
        helpers.take(helper.stacks)
        # What a worker hands to threads of its own; others of it are the library's.
        helpers.take(_chains(helper.threads, lambda chain: bool(chain.frames)))
    if job.short_lived.samples:
        helpers.take(job.short_lived)
        # Both sides of one thing: to end workers, and to begin others.
        helpers.share_in(main, LoadKind.START)
    threads = _Pool(Loader.THREADS)
    begins = _where_loaders_begin(job.threads, whoever_works=main.is_fed)
    threads.take(_beginning_at(job.threads, begins))
    threads.loads = threads.works
    others = max((helpers, threads), key=lambda pool: pool.works)
    # Which of both sets the pace: the main thread's own part, or what it waits for.
    pool = main if main.works and main.works >= main.idles else others
    found = pool.result() if pool.works else None
    if found is None or pool is main or pool.loads < MOSTLY * pool.works or not main.all:
        return found
    # Who waits for Python's lock while a loader has it waits for the loader.
    holders = job.holders.samples
    loaders = _beginning_at(job.holders, begins).samples / holders if holders else 0.0
    idles, every = main.idles + main.locked * loaders, main.all + main.locked
    waits = min(1.0, idles / every)
    waits -= SURE * math.sqrt(waits * (1 - waits) / every)
    return replace(found, waits=max(0.0, waits), waits_at=main.idles_at)


def _where_loaders_begin(stacks: StackSamples, *, whoever_works: bool) -> set[tuple[str, str]]:
    """Return where the threads begin of which one was seen loading, or at work."""
    begins = set()
    for chain, counts in stacks.chains.items():
        leaf = chain.innermost
        if chain.frames and leaf is not None and not plays(Role.ASIDE, leaf):
            kinds = [kind for kind, idles, n in divided(chain, leaf, counts) if n and not idles]
            if any(whoever_works or is_loading(chain, kind) for kind in kinds):
                begins.add(_begins(chain))
    return begins


def _beginning_at(stacks: StackSamples, begins: set[tuple[str, str]]) -> StackSamples:
    """Return the samples of the threads that begin there."""
    return _chains(stacks, lambda chain: bool(chain.frames) and _begins(chain) in begins)


def _chains(stacks: StackSamples, wanted: Callable[[Chain], bool]) -> StackSamples:
    """Return the samples of some chains."""
    found = StackSamples()
    for chain, counts in stacks.chains.items():
        if wanted(chain):
            found.samples += counts.samples
            states = counts.known, counts.waited, counts.locked, counts.blocked
            found.count(chain, counts.samples, *states)
    return found


def _begins(chain: Chain) -> tuple[str, str]:
    return chain.frames[-1].file, chain.frames[-1].function


def busy_workers(job: Recorded) -> tuple[Busy, ...]:
    """Return how much each loader's worker works, the busiest first; of those seen often enough."""
    found = []
    for helper in job.helpers:
        pool = _Pool(Loader.WORKERS)
        pool.take(helper.stacks)
        looks = pool.works + pool.idles
        if looks >= LEAST_LOOKS and pool.at_loaders >= MOSTLY * looks:
            share = pool.works / looks
            error = SURE * math.sqrt(max(share * (1 - share), 1 / looks) / looks)
            found.append(Busy(share, error, pool.result() if pool.works else None))
    return tuple(sorted(found, key=lambda each: -each.share))


class _Pool:
    """Adds up the samples of those who load in one way."""

    def __init__(self, who: Loader) -> None:
        self._who = who
        self._rows: dict[tuple[CodeLine, LoadKind | None], float] = {}
        # Of all samples: those at work, of these those that surely load, and those of waiting.
        self.all = self.works = self.loads = self.idles = 0.0
        # Beside these, those of waiting for Python's lock.
        self.locked = 0.0
        # Of both, those within a loader.
        self.at_loaders = 0.0
        self._idles_at: dict[CodeLine, float] = {}
        # Of those of waiting, those where what is waited for goes into the steps.
        self._fed = 0.0

    @property
    def is_fed(self) -> bool:
        """Whether it waits for what others make for the steps, and who is not asked by name."""
        return self._fed >= LEAST_FED * (self.all + self.locked) > 0

    def take(
        self,
        stacks: StackSamples,
        *,
        out: Iterable[tuple[str, int]] = (),
        feeding: Feeding | None = None,
        only_loading: bool = False,
    ) -> None:
        """Take the samples of a thread; ``only_loading``: it may do other things, too."""
        skipped = set(out)
        for chain, counts in stacks.chains.items():
            line = chain.frames[0] if chain.frames else None
            if line is not None and (line.file, line.line) in skipped:
                continue
            leaf = chain.leaf or line
            if leaf is None or plays(Role.ASIDE, leaf):
                continue
            if counts.known:
                self.locked += counts.samples * counts.locked / counts.known
            feeds = feeding is not None and feeding.feeds(chain)
            for kind, idles, samples in divided(chain, leaf, counts):
                is_start = self._who is Loader.MAIN and begins_workers(chain)
                loads = is_loading(chain, kind) or feeds
                self.all += samples
                self.at_loaders += samples if loads else 0.0
                if idles:
                    # Who waits in a call of the framework waits for what it computes.
                    computes = self._who is Loader.MAIN and kind_of(leaf.file) is Kind.DEVICE
                    self._idle(line, samples if loads or not computes else 0.0)
                    self._fed += samples if feeds else 0.0
                elif loads or not only_loading:
                    self.loads += samples if loads else 0.0
                    self._work(line or leaf, LoadKind.START if is_start else kind, samples)

    def _idle(self, line: CodeLine | None, samples: float) -> None:
        self.idles += samples
        if line is not None and samples:
            self._idles_at[line] = self._idles_at.get(line, 0.0) + samples

    def _work(self, line: CodeLine, kind: LoadKind | None, samples: float) -> None:
        self.works += samples
        if samples:
            self._rows[line, kind] = self._rows.get((line, kind), 0.0) + samples

    @property
    def idles_at(self) -> tuple[CodeLine, ...]:
        """The user's lines at which it waits, most first."""
        return tuple(sorted(self._idles_at, key=lambda line: -self._idles_at[line]))

    def share_in(self, other: _Pool, kind: LoadKind) -> None:
        """Count what another one found of a kind, too."""
        for (line, its), samples in other._rows.items():
            if its is kind:
                self._work(line, its, samples)

    def result(self) -> Loading:
        """Return their sum."""
        rows = [LoadRow(*key, n / self.works) for key, n in self._rows.items()]
        return Loading(self._who, tuple(sorted(rows, key=lambda row: -row.share)), self.works)

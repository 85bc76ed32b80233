"""What loading spends its time on, wherever it happens: main thread, workers, or other threads.

All of it is by stack samples. Loading that the main thread does itself counts where it takes longer
than the main thread waits for others; else what these others do is what it waits for.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from whyidle.monitor.core.amounts import LEAST_SAMPLES, MOSTLY
from whyidle.monitor.core.finding import Place, Severity
from whyidle.monitor.libraries.frames import kind_of, plays
from whyidle.monitor.libraries.table import Kind, Role
from whyidle.monitor.libraries.users import is_users
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples, summed
from whyidle.monitor.signals.feeding import Feeding
from whyidle.monitor.signals.loading_chains import begins_workers, divided, is_loading
from whyidle.monitor.signals.loading_kinds import LoadKind
from whyidle.monitor.signals.recorded import Recorded
from whyidle.monitor.signals.sampling import error_of, start_up

# A cause that explains less of the loading is not what a person should look at first.
LEAST_OF_LOADING: Final = 1 / 3


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
        return error_of(share, self.samples)

    @property
    def cause(self) -> LoadKind | None:
        """What takes most of it, where the samples are enough to say so."""
        kinds = {row.kind for row in self.rows if row.kind is not None}
        most = max(kinds, key=self.share, default=None)
        if most is None or self.samples < LEAST_SAMPLES:
            return None
        share = self.share(most)
        is_most = share - self.error(share) >= LEAST_OF_LOADING and share > self.share(None)
        return most if is_most else None

    def places(self, kind: LoadKind) -> tuple[Place, ...]:
        """Return the user's lines of one kind with their shares, the largest first."""
        mine = (row for row in self.rows if row.kind is kind and is_users(row.line.file))
        shares = summed((row.line, row.share) for row in mine)
        return tuple(Place(*line, n) for line, n in shares.items() if n >= Severity.LOW.least)


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
        helpers.take(helper.threads.of_chains(lambda chain: bool(chain.frames)))
    if job.short_lived.samples:
        helpers.take(job.short_lived)
        # Both sides of one thing: to end workers, and to begin others.
        helpers.share_in(main, LoadKind.START)
    # Threads begin where one of them was seen loading, or at work for what the steps wait for.
    begins = {
        _begins(chain)
        for chain, counts in job.threads.chains.items()
        if chain.frames and not plays(Role.ASIDE, chain.innermost)
        for kind, idles, n in divided(chain, chain.leaf or chain.frames[0], counts)
        if n and not idles and (main.is_fed or is_loading(chain, kind))
    }
    of_loaders = lambda chain: bool(chain.frames) and _begins(chain) in begins  # noqa: E731
    threads = _Pool(Loader.THREADS)
    threads.take(job.threads.of_chains(of_loaders))
    threads.loads = threads.works
    others = max((helpers, threads), key=lambda pool: pool.works)
    # Which of both sets the pace: the main thread's own part, or what it waits for.
    pool = main if main.works and main.works >= main.idles else others
    found = pool.result() if pool.works else None
    if found is None or pool is main or pool.loads < MOSTLY * pool.works or not main.all:
        return found
    # Who waits for Python's lock while a loader has it waits for the loader.
    holders = job.holders.samples
    loaders = job.holders.of_chains(of_loaders).samples / holders if holders else 0.0
    every = main.all + main.locked
    waits = min(1.0, (main.idles + main.locked * loaders) / every)
    idles_at = tuple(summed(main.idles_at.items()))
    return replace(found, waits=max(0.0, waits - error_of(waits, every)), waits_at=idles_at)


def _begins(chain: Chain) -> tuple[str, str]:
    return chain.frames[-1].file, chain.frames[-1].function


def busy_workers(job: Recorded) -> tuple[Busy, ...]:
    """Return how much each loader's worker works, the busiest first; of those seen often enough."""
    found = []
    for helper in job.helpers:
        pool = _Pool(Loader.WORKERS)
        pool.take(helper.stacks)
        looks = pool.works + pool.idles
        if looks >= LEAST_SAMPLES and pool.at_loaders >= MOSTLY * looks:
            share = pool.works / looks
            loading = pool.result() if pool.works else None
            found.append(Busy(share, error_of(share, looks, is_rare=True), loading))
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
        # The user's lines at which it waits.
        self.idles_at: dict[CodeLine, float] = {}
        # Of those of waiting, those where what is waited for goes into the steps.
        self._fed = 0.0

    @property
    def is_fed(self) -> bool:
        """Whether it waits for what others make for the steps, and who is not asked by name."""
        return self._fed >= Severity.MEDIUM.least * (self.all + self.locked) > 0

    def take(
        self,
        stacks: StackSamples,
        *,
        out: Collection[tuple[str, int]] = (),
        feeding: Feeding | None = None,
        only_loading: bool = False,
    ) -> None:
        """Take the samples of a thread; ``only_loading``: it may do other things, too."""
        is_main = self._who is Loader.MAIN
        for chain, counts in stacks.chains.items():
            line, leaf = chain.user, chain.innermost
            if leaf is None or plays(Role.ASIDE, leaf) or (line is not None and line[:2] in out):
                continue
            self.locked += counts.of(counts.locked)
            feeds = feeding is not None and feeding.feeds(chain)
            for kind, idles, samples in divided(chain, leaf, counts):
                loads = is_loading(chain, kind) or feeds
                self.all += samples
                self.at_loaders += samples if loads else 0.0
                if idles:
                    self._fed += samples if feeds else 0.0
                    # Who waits in a call of the framework waits for what it computes.
                    computes = is_main and kind_of(leaf.file) is Kind.DEVICE
                    waits = samples if loads or not computes else 0.0
                    self.idles += waits
                    if line is not None and waits:
                        self.idles_at[line] = self.idles_at.get(line, 0.0) + waits
                elif loads or not only_loading:
                    self.loads += samples if loads else 0.0
                    is_start = is_main and begins_workers(chain)
                    self._work(line or leaf, LoadKind.START if is_start else kind, samples)

    def _work(self, line: CodeLine, kind: LoadKind | None, samples: float) -> None:
        self.works += samples
        if samples:
            self._rows[line, kind] = self._rows.get((line, kind), 0.0) + samples

    def share_in(self, other: _Pool, kind: LoadKind) -> None:
        """Count what another one found of a kind, too."""
        for (line, its), samples in other._rows.items():
            if its is kind:
                self._work(line, its, samples)

    def result(self) -> Loading:
        """Return their sum."""
        rows = [LoadRow(*key, n / self.works) for key, n in self._rows.items()]
        return Loading(self._who, tuple(sorted(rows, key=lambda row: -row.share)), self.works)

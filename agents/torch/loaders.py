"""The part ``loader waits``: how long the job waits for batches, and its loaders' settings.

Where the main thread takes batches, the others' waits do not count: a thread that prefetches waits
in its own time. Where batches come very fast, only some waits are noted, and all long ones: those
are rare, and may be most of the time. Batches are also counted by the kind of their loader: those
of a validation are no steps.
"""

from __future__ import annotations

from _thread import get_ident
from collections import deque
from functools import partial
from itertools import compress
from operator import le, not_, or_
from time import monotonic_ns
from weakref import ref

from ..downsampling import BURST, ROUND, Downsampler
from ..framework import Part
from ..leading import Leading
from ..modules import need
from ..ring import drain
from ..wire import LOADER_BATCHES, LOADER_WAIT_NS, LONGEST_NAME, MOST_BATCHES, SAMPLES
from .introspect import attributes, class_name, definer, members
from .patch import copy_names, hide, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


MODULE = "torch.utils.data.dataloader"
# Batches between two seconds.
CAPACITY = 20_000
# Waits that are remembered, for one that began before them and ends after them.
LATELY = 4096
# Iterators that are told apart, and settings that are sent.
MOST_ITERATORS = 64
MOST_LOADERS = 8
# What an iterator keeps of its loader's settings, by our names.
SETTINGS = {
    "workers": "_num_workers",
    "pin_memory": "_pin_memory",
    "persistent_workers": "_persistent_workers",
    "prefetch_factor": "_prefetch_factor",
}
KINDS = {0: "map", 1: "iterable"}
# The code of a batch: which kind of loader it is of, above so many bits, and its samples.
KIND_BITS = 40
SAMPLES_OF = (1 << KIND_BITS) - 1
MOST_KINDS = 64
# Stands for an iterator's first batch without a code; less by the code.
FIRST = -2
# What looks at the next batch, under ``LOOK``; hooks only check whether there is something in it.
batch_looks: dict[str, Callable[[Any], None]] = {}
LOOK = "look"
# Fast is more than so many in a second; a wait is long from here on.
MANY = 500
LONG_NS = 100_000


class LoaderWaits(Part):
    """Times the iterators of all loaders, including those that exist already."""

    name = "loader waits"

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        # In turn: the thread, when it asked, how long it waited, and the code of the batch. 0 is of
        # an iterator that is not known, -1 the end of the data, -2 and below a first batch.
        self._taken: deque[int] = deque(maxlen=4 * 4 * CAPACITY)
        # When the main thread asked lately, and how long it waited.
        self._asked: deque[int] = deque(maxlen=LATELY)
        self._waited: deque[int] = deque(maxlen=LATELY)
        # The code of a batch of each iterator; both go with the iterator.
        self._sizes: dict[int, int] = {}
        self._known: dict[int, tuple[ref[Any], ...]] = {}
        self._new: deque[dict[str, Any]] = deque(maxlen=MOST_ITERATORS)
        self._loaders: list[dict[str, Any]] = []
        self._batches = self._wait = self._samples = self._missed = 0
        self._leading = Leading(0.999)
        self._sizes_known = True
        self._on_main = False
        self._downsampler = Downsampler(monotonic_ns(), MANY)
        self._is_nested = False

    def begin(self) -> None:
        """Wrap ``__next__``."""
        iterator = need(MODULE, "_BaseDataLoaderIter")
        original = need(MODULE, "_BaseDataLoaderIter", "__next__")
        meet = _meeting(self._sizes, self._known, self._new.append)
        ours = self._advance(original, meet)
        hide(ours, meet, _plain, attributes, class_name, definer, members)
        replace(self.hooks, iterator, "__next__", ours)

    def second(self, now: int) -> dict[str, int | None]:
        """Add up the waits."""
        number = noted = len(self._taken) // 4
        if number > CAPACITY:
            self._missed += 1
            self._taken.clear()
            number = 0
        taken = drain(self._taken, 4 * number)
        threads, codes = taken[::4], taken[3::4]
        waits = self._beyond(threads, taken[1::4], taken[2::4])
        # An outer wait must know of each inner one.
        weight = self._downsampler.second(now, noted, may=not self._is_nested)
        before = self._batches
        firsts = list(map(FIRST.__ge__, codes))
        if any(firsts):
            codes = [FIRST - n if is_first else n for n, is_first in zip(codes, firsts)]
        samples = [code & SAMPLES_OF if code > 0 else code for code in codes]
        if weight == 1:
            self._count(threads, waits, samples, 1)
        else:
            # The long ones and the first of each iterator are all noted.
            alone = list(map(or_, firsts, map(LONG_NS.__lt__, waits)))
            self._count_some(threads, waits, samples, alone, weight)
        most = self._leading.second(_by_kind(codes, waits, self._batches - before, weight))
        self.context.steps.batches(now, self._batches - before)
        while self._new:
            self._note(self._new.popleft())
        return {
            LOADER_BATCHES: self._batches,
            MOST_BATCHES: most,
            LOADER_WAIT_NS: self._wait,
            SAMPLES: self._samples if self._sizes_known else None,
        }

    def facts(self) -> dict[str, Any]:
        """Say how the loaders are set, the latest first."""
        if not self._loaders:
            return {}
        found: dict[str, Any] = {"loaders": self._loaders, **self._downsampler.facts("batches")}
        # The loader for training is seen first; those for validation come later.
        size = self._loaders[-1]["batch_size"]
        if size is not None:
            found["batch_size"] = size
        return found

    def lost(self) -> int:
        """Return how often there were too many."""
        return self._missed

    def _advance(
        self, original: Callable[[Any], Any], meet: Callable[[Any], int]
    ) -> Callable[[Any], Any]:
        clock, ident, put = monotonic_ns, get_ident, self._taken.extend
        sizes, size_of = self._sizes, self._sizes.get
        main_call = self.context.steps.main_call
        pending, run_pending = main_call.pending_for_batches, main_call.run_pending
        number, active = self._downsampler.number, self._downsampler.active
        looks = batch_looks

        def __next__(iterator: Any) -> Any:  # noqa: N807  it takes that one's place
            if active and number() % ROUND >= BURST and id(iterator) in sizes:
                samples = -1
                began = clock()
                try:
                    batch = original(iterator)
                    samples = 0
                finally:
                    took = clock() - began
                    if took > LONG_NS:
                        put((ident(), began, took, samples or size_of(id(iterator), 0)))
                if pending:
                    run_pending()
                return batch
            samples = -1
            began = clock()
            try:
                batch = original(iterator)
                samples = size_of(id(iterator), -1)
                if samples < 0:
                    samples = meet(iterator)
            finally:
                put((ident(), began, clock() - began, samples))
            if pending:
                run_pending()
            if looks and (look := looks.pop(LOOK, None)) is not None:
                look(batch)
            return batch

        copy_names(__next__, original)
        return __next__

    def _beyond(self, threads: list[int], asked: list[int], waits: list[int]) -> list[int]:
        """Return each wait less the waits inside it: a loader may feed another."""
        main, mine = self.context.main, waits
        if main is None:
            return waits
        places = list(range(len(threads)))
        if threads.count(main) < len(threads):
            places = list(compress(places, map(main.__eq__, threads)))
            asked, mine = [asked[n] for n in places], [waits[n] for n in places]
        known = [self._asked[-1], *asked] if self._asked else asked
        if all(map(le, known, known[1:])):
            self._asked.extend(asked)
            self._waited.extend(mine)
            return waits
        # What the inner one yields is counted, too, and both would be mixed up.
        self._sizes_known, self._is_nested = False, True
        found = list(waits)
        for place, moment, wait in zip(places, asked, mine):
            inside = 0
            while self._asked and self._asked[-1] >= moment:
                self._asked.pop()
                inside += self._waited.pop()
            self._asked.append(moment)
            self._waited.append(wait)
            found[place] = max(0, wait - inside)
        return found

    def _count_some(
        self,
        threads: list[int],
        waits: list[int],
        samples: list[int],
        alone: list[bool],
        weight: float,
    ) -> None:
        """Count those that stand for themselves alone, and what the others stand for."""
        batches_before, samples_before = self._batches, self._samples
        for some, stands in ((alone, 1.0), (list(map(not_, alone)), weight)):
            its = [list(compress(each, some)) for each in (threads, waits, samples)]
            self._count(its[0], its[1], its[2], stands)
        # How many batches were requested is known, whatever the noted ones stand for.
        stood = self._batches - batches_before
        came = max(0, self._downsampler.came - samples.count(-1))
        self._batches = batches_before + came
        if stood:
            more = self._samples - samples_before
            self._samples = samples_before + round(more * came / stood)

    def _count(
        self, threads: list[int], waits: list[int], samples: list[int], weight: float
    ) -> None:
        ends = samples.count(-1)
        self._batches += round(weight * (len(samples) - ends))
        self._samples += round(weight * (sum(samples) + ends))
        if 0 in samples:
            self._sizes_known = False
        main = self.context.main
        if not self._on_main and main in threads:
            # Until then only the others' waits were known.
            self._on_main = True
            first = threads.index(main)
            self._wait += round(weight * sum(waits[:first]))
            threads, waits = threads[first:], waits[first:]
        if self._on_main:
            waits = list(compress(waits, map(main.__eq__, threads)))
        self._wait += round(weight * sum(waits))

    def _note(self, settings: dict[str, Any]) -> None:
        if settings not in self._loaders:
            self._loaders = [settings, *self._loaders][:MOST_LOADERS]


def _by_kind(codes: list[int], waits: list[int], batches: int, weight: float) -> dict[int, float]:
    """Divide batches among the kinds of loaders; a long wait stands for itself alone."""
    noted: dict[int, float] = {}
    for code, wait in zip(codes, waits):
        if code >= 0:
            stands = 1.0 if wait > LONG_NS else weight
            noted[code >> KIND_BITS] = noted.get(code >> KIND_BITS, 0.0) + stands
    every = sum(noted.values())
    return {kind: batches * number / every for kind, number in noted.items()}


def _meeting(
    sizes: dict[int, int], known: dict[int, Any], tell: Callable[[dict[str, Any]], None]
) -> Callable[[Any], int]:
    # A loader is often made again for each pass, and so is its data: by what they are.
    kinds: dict[tuple[Any, ...], int] = {}

    def meet(iterator: Any) -> int:
        """Note an iterator that was not seen before; runs no line of the user's."""
        names = attributes(iterator)
        size = attributes(names.get("_index_sampler")).get("batch_size")
        if type(size) is not int or size < 1:
            size = None
        settings: dict[str, Any] = {name: _plain(names.get(at)) for name, at in SETTINGS.items()}
        kind = names.get("_dataset_kind")
        settings["batch_size"] = size
        settings["kind"] = KINDS.get(kind) if type(kind) is int else None
        settings["dataset"] = class_name(type(names.get("_dataset")))[:LONGEST_NAME]
        sampler = attributes(names.get("_index_sampler")).get("sampler")
        alike = settings["dataset"], class_name(type(sampler)), size
        if alike not in kinds and len(kinds) < MOST_KINDS:
            kinds[alike] = len(kinds) + 1
        code = kinds.get(alike, 0) << KIND_BITS | min(size or 0, SAMPLES_OF)
        if len(sizes) < MOST_ITERATORS:
            key = id(iterator)
            # What runs when it goes must be C: a line of ours there could lose a signal.
            known[key] = tuple(ref(iterator, partial(each.pop, key)) for each in (sizes, known))
            sizes[key] = code
            tell(settings)
        return FIRST - code

    return meet


def _plain(value: Any) -> int | bool | None:
    return value if type(value) is bool or type(value) is int else None

"""The part ``loader waits``: how long the job waits for its batches, and how its loaders are set.

Where the main thread takes batches, the others' waits do not count: a thread that fetches ahead
waits in its own time.
"""

from __future__ import annotations

from _thread import get_ident
from collections import deque
from functools import partial
from time import monotonic_ns
from weakref import ref

from ..framework import Part
from ..modules import need
from ..wire import LOADER_BATCHES, LOADER_WAIT_NS, LONGEST_NAME, SAMPLES
from .looking import attributes, class_name, definer, members
from .patch import hide, look_alike, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MODULE = "torch.utils.data.dataloader"
# Batches between two looks.
CAPACITY = 20_000
# Iterators that are told apart, and settings that are told.
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


class LoaderWaits(Part):
    """Listens to the iterators of all loaders, those that live already too."""

    name = "loader waits"

    def __init__(self, room: Any) -> None:
        super().__init__(room)
        # By turns the thread, how long it waited, and how many samples it got: 0 for unknown,
        # -1 for the end of the data.
        self._taken: deque[int] = deque(maxlen=4 * 3 * CAPACITY)
        # The samples in a batch of each iterator; it goes with the iterator.
        self._known: dict[int, tuple[int, ref[Any]]] = {}
        self._new: deque[dict[str, Any]] = deque(maxlen=MOST_ITERATORS)
        self._loaders: list[dict[str, Any]] = []
        self._batches = self._wait = self._samples = self._missed = 0
        self._sizes_known = True
        self._on_main = False

    def begin(self) -> None:
        """Take the place of ``__next__``."""
        iterator = need(MODULE, "_BaseDataLoaderIter")
        original = need(MODULE, "_BaseDataLoaderIter", "__next__")
        ours = _advance(original, self._taken.extend, self._known, self._new.append)
        hide(ours, _meet, _plain, attributes, class_name, definer, members)
        replace(self.hooks, iterator, "__next__", ours)

    def second(self, _now: int) -> dict[str, int | None]:
        """Add up the waits."""
        number = len(self._taken) // 3
        if number > CAPACITY:
            self._missed += 1
            self._taken.clear()
            number = 0
        pop = self._taken.popleft
        for _ in range(number):
            self._add(pop(), pop(), pop())
        while self._new:
            self._note(self._new.popleft())
        return {
            LOADER_BATCHES: self._batches,
            LOADER_WAIT_NS: self._wait,
            SAMPLES: self._samples if self._sizes_known else None,
        }

    def facts(self) -> dict[str, Any]:
        """Say how the loaders are set, the latest first."""
        if not self._loaders:
            return {}
        found: dict[str, Any] = {"loaders": self._loaders}
        # The one that trains is seen first; those of validation come later.
        size = self._loaders[-1]["batch_size"]
        if size is not None:
            found["batch_size"] = size
        return found

    def lost(self) -> int:
        """Return how often it was too much."""
        return self._missed

    def _add(self, thread: int, wait: int, samples: int) -> None:
        is_main = thread == self.room.main
        self._on_main = self._on_main or is_main
        if is_main or not self._on_main:
            self._wait += wait
        if samples >= 0:
            self._batches += 1
            self._samples += samples
            if not samples:
                self._sizes_known = False

    def _note(self, settings: dict[str, Any]) -> None:
        if settings not in self._loaders:
            self._loaders = [settings, *self._loaders][:MOST_LOADERS]


def _advance(
    original: Callable[[Any], Any],
    put: Callable[[tuple[int, int, int]], None],
    known: dict[int, tuple[int, ref[Any]]],
    tell: Callable[[dict[str, Any]], None],
) -> Callable[[Any], Any]:
    clock, ident, meet = monotonic_ns, get_ident, _meet

    def __next__(iterator: Any) -> Any:  # noqa: N807  it takes that one's place
        samples = -1
        began = clock()
        try:
            batch = original(iterator)
            key = id(iterator)
            samples = known[key][0] if key in known else meet(iterator, known, tell)
            return batch
        finally:
            put((ident(), clock() - began, samples))

    look_alike(__next__, original)
    return __next__


def _meet(
    iterator: Any,
    known: dict[int, tuple[int, ref[Any]]],
    tell: Callable[[dict[str, Any]], None],
) -> int:
    """Note an iterator that was not seen before; no line of the user's own runs."""
    names = attributes(iterator)
    size = attributes(names.get("_index_sampler")).get("batch_size")
    if type(size) is not int or size < 1:
        size = None
    settings: dict[str, Any] = {name: _plain(names.get(at)) for name, at in SETTINGS.items()}
    kind = names.get("_dataset_kind")
    settings["batch_size"] = size
    settings["kind"] = KINDS.get(kind) if type(kind) is int else None
    settings["dataset"] = class_name(type(names.get("_dataset")))[:LONGEST_NAME]
    if len(known) < MOST_ITERATORS:
        key = id(iterator)
        known[key] = size or 0, ref(iterator, partial(known.pop, key))
        tell(settings)
    return size or 0


def _plain(value: Any) -> int | bool | None:
    return value if type(value) is bool or type(value) is int else None

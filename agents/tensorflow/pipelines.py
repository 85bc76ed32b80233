"""The pipelines of ``tf.data`` that the job takes its batches from: their stages, and the waits.

``fit`` of Keras asks for its batches within the graph: then only the stages are known, and not how
long it waited for them.
"""

from __future__ import annotations

from _thread import get_ident
from collections import Counter, deque
from time import monotonic_ns
from weakref import ref

from ..framework import Part
from ..jax.arrays import rounded
from ..jax.internals import own, replace_in_class
from ..modules import need
from ..ring import drain
from ..wire import LOADER_BATCHES, LOADER_WAIT_NS, LONGEST_FILE, LONGEST_NAME, MOST_BATCHES
from .internals import dress, is_eager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MODULE = "tensorflow.python.data.ops.iterator_ops"
KIND = "OwnedIterator"
# Four numbers for each batch between two seconds.
CAPACITY = 32_768
# Iterators that are known at a time, and those whose pipelines are described: the latest.
MOST_ITERATORS = 64
MOST_PIPELINES = 4
MOST_STAGES = 24
MOST_OPERATIONS = 400
MOST_WRAPPED = 32
# Of fewer passes over the data nothing is said.
MANY_PASSES = 20
# What calls Python for each element, holding its lock.
PYTHON = ("EagerPyFunc", "PyFunc", "PyFuncStateless")
GENERATOR = "from_generator_op.py"

# Iterators that were met, by any part; the latest last.
_met: deque[Any] = deque(maxlen=MOST_ITERATORS)
_known: set[int] = set()


def meet_iterator(thing: Any) -> None:
    """Note an iterator of ``tf.data``; on the job's thread, and it cannot fail."""
    if type(thing).__name__ == KIND and id(thing) not in _known:
        if len(_known) >= MOST_ITERATORS:
            _known.clear()
        _known.add(id(thing))
        _met.append(ref(thing))


class Pipelines(Part):
    """Adds up waits for batches, and describes where these come from."""

    name = "batches of tf.data"

    def begin(self) -> None:
        """Wrap what fetches a batch."""
        kind = need(MODULE, KIND)
        original = own(kind, "_next_internal")
        self._batches = self._wait = self._missed = 0
        # In turn: the thread, its wait, what the batch is of, and whether a pass begins with it.
        self._taken: deque[int] = deque(maxlen=4 * CAPACITY)
        self._passes = self._first_wait = 0
        self._by_data: Counter[int] = Counter()
        self._pipelines: list[list[dict[str, Any]]] = []
        _met.clear()
        _known.clear()
        on = [True]
        self.hooks.add(on.clear)
        ours = _fetching(original, on, self._taken.extend, is_eager())
        replace_in_class(self.hooks, kind, "_next_internal", ours)

    def second(self, _now: int) -> dict[str, int | None]:
        """Add up the waits of the main thread."""
        number = len(self._taken) // 4
        self._missed += number >= CAPACITY
        taken = drain(self._taken, 4 * number)
        main = self.context.main
        for thread, wait, data, is_first in zip(*(taken[n::4] for n in range(4))):
            if main is None or thread == main:
                self._batches += 1
                self._wait += wait
                self._passes += is_first
                self._first_wait += wait * is_first
                if data in self._by_data or len(self._by_data) < MOST_ITERATORS:
                    self._by_data[data] += 1
        if not self._batches:
            # Another framework's loader may count the batches.
            return {}
        most = max(self._by_data.values())
        return {LOADER_BATCHES: self._batches, MOST_BATCHES: most, LOADER_WAIT_NS: self._wait}

    def facts(self) -> dict[str, Any]:
        """Return the stages of the latest pipelines, from the data to the batch."""
        found: list[list[dict[str, Any]]] = []
        for each in reversed(list(_met)):
            iterator = each()
            if iterator is None:
                continue
            stages = _stages(iterator.__dict__.get("_dataset"))
            if stages and stages not in found and len(found) < MOST_PIPELINES:
                found.append(stages)
        # Between two epochs there is none.
        self._pipelines = found or self._pipelines
        said: dict[str, Any] = {"pipelines": self._pipelines} if self._pipelines else {}
        if self._passes >= MANY_PASSES:
            said["batches_of_pass"] = rounded(self._batches // self._passes)
            said["first_waits"] = round(self._first_wait / max(1, self._wait), 1)
        return said

    def lost(self) -> int:
        """Return how often there were too many."""
        return self._missed


def _fetching(
    original: Callable[[Any], Any],
    on: list[bool],
    note: Callable[[tuple[int, int, int, bool]], None],
    eager: Callable[[], bool],
) -> Any:
    clock, ident, known, meet = monotonic_ns, get_ident, _known, meet_iterator

    def fetch(iterator: Any) -> Any:
        if not on or not eager():
            return original(iterator)
        is_first = id(iterator) not in known
        if is_first:
            meet(iterator)
        began = clock()
        try:
            batch = original(iterator)
        except BaseException:
            # It is at its end: the next pass has another, maybe at the same place in memory.
            known.discard(id(iterator))
            raise
        data = id(getattr(iterator, "_dataset", None))
        note((ident(), clock() - began, data, is_first))
        return batch

    return dress(fetch, original)


def _stages(dataset: Any) -> list[dict[str, Any]]:
    """Return the stages; where several pipelines come together, those of the first."""
    found: list[dict[str, Any]] = []
    while dataset is not None and len(found) < MOST_STAGES:
        names = getattr(dataset, "__dict__", None)
        if type(names) is not dict:
            break
        stage: dict[str, Any] = {"stage": _bare(type(dataset).__name__)}
        stage.update(_function(names.get("_map_func")))
        if not stage["stage"].startswith(("Options", "Model", "MaxIntraOp", "PrivateThread")):
            found.append(stage)
        dataset = names.get("_input_dataset") or _first(names)
    return found[::-1]


def _bare(name: str) -> str:
    """Return "Map" for "_MapDataset" and "MapDatasetV2"."""
    return name.strip("_").partition("Dataset")[0][:LONGEST_NAME] or name[:LONGEST_NAME]


def _first(names: dict[str, Any]) -> Any:
    for name in ("_datasets", "_input_datasets"):
        some = names.get(name)
        if isinstance(some, (tuple, list)) and some:
            return some[0]
    return None


def _function(wrapped: Any) -> dict[str, Any]:
    """Return which function a stage calls, where it is, and whether it calls Python itself."""
    names = getattr(wrapped, "__dict__", None) or {}
    function: Any = names.get("_func")
    for _ in range(MOST_WRAPPED):
        inner = getattr(function, "__wrapped__", None)
        if inner is None:
            break
        function = inner
    code = getattr(function, "__code__", None)
    if code is None:
        return {}
    file = code.co_filename
    if file.endswith(GENERATOR):
        return {"stage": "Generator"}
    where = [file[-LONGEST_FILE:], code.co_firstlineno, code.co_name[:LONGEST_NAME]]
    return {"function": where, "python": _calls_python(names.get("_function"))}


def _calls_python(function: Any) -> bool | None:
    graph = getattr(function, "graph", None)
    if graph is None:
        return None
    return any(each.type in PYTHON for each in graph.get_operations()[:MOST_OPERATIONS])

"""The pipelines of ``tf.data`` that the job takes its batches from: their stages, and the waits.

``fit`` of Keras asks for its batches within the graph: then only the stages are known, and not how
long it waited for them.
"""

from __future__ import annotations

from _thread import get_ident
from collections import deque
from functools import partial
from operator import itemgetter
from time import monotonic_ns
from weakref import ref

from ..framework import Part
from ..jax.arrays import rounded
from ..jax.internals import own, replace_in_class
from ..leading import Leading
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
# Iterators that are known at a time, kinds of data, and pipelines that are described: the latest.
MOST_ITERATORS = MOST_KINDS = 64
MOST_PIPELINES = 4
MOST_STAGES = 24
MOST_OPERATIONS = 400
MOST_WRAPPED = 32
# Of fewer passes over the data nothing is said.
MANY_PASSES = 20
# What calls Python for each element, holding its lock.
PYTHON = ("EagerPyFunc", "PyFunc", "PyFuncStateless")
GENERATOR = "from_generator_op.py"

# Iterators that were met, by any part, the latest last.
_met: deque[ref[Any]] = deque(maxlen=MOST_ITERATORS)
# Of each the kind of its data, until its pass ends, or it goes.
_known: dict[int, tuple[int, Any]] = {}
NOBODY = 0, None
# By the source of its data and the stages: a pipeline is often made again for each pass.
_kinds: dict[tuple[Any, ...], int] = {}


def meet_iterator(thing: Any) -> bool:
    """Note an iterator of ``tf.data``; on the job's thread, and it cannot fail.

    Returns whether it is new, and there is room for it.
    """
    key = id(thing)
    if type(thing).__name__ != KIND or key in _known or len(_known) >= MOST_ITERATORS:
        return False
    _met.append(ref(thing))
    alike = _alike(thing)
    if alike not in _kinds and len(_kinds) < MOST_KINDS:
        _kinds[alike] = len(_kinds) + 1
    # What runs when it goes must be C: a line of ours there could lose a signal.
    _known[key] = _kinds.get(alike, 0), ref(thing, partial(_known.pop, key))
    return True


def _alike(iterator: Any) -> tuple[Any, ...]:
    found: list[Any] = []
    dataset = getattr(iterator, "__dict__", {}).get("_dataset")
    while dataset is not None and len(found) < MOST_STAGES:
        found[:1] = [id(dataset)]
        found.append(type(dataset).__name__)
        dataset = getattr(dataset, "__dict__", {}).get("_input_dataset")
    return tuple(found)


class Pipelines(Part):
    """Adds up waits for batches, and describes where these come from."""

    name = "batches of tf.data"

    def begin(self) -> None:
        """Wrap what fetches a batch."""
        kind = need(MODULE, KIND)
        original = own(kind, "_next_internal")
        self._missed = 0
        # In turn: the thread, its wait, the kind of data, and whether a pass begins with the batch.
        self._taken: deque[int] = deque(maxlen=4 * CAPACITY)
        # By the kind of data: batches and their waits, passes and the waits for their first batch.
        self._sums: dict[int, list[int]] = {}
        self._leading = Leading(0.999)
        self._pipelines: list[list[dict[str, Any]]] = []
        _met.clear()
        _known.clear()
        _kinds.clear()
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
        batches: dict[int, float] = {}
        for thread, wait, kind, is_first in zip(*(taken[n::4] for n in range(4))):
            if main is None or thread == main:
                batches[kind] = batches.get(kind, 0) + 1
                sums = self._sums.setdefault(kind, [0, 0, 0, 0])
                sums[0] += 1
                sums[1] += wait
                if is_first:
                    sums[2] += 1
                    sums[3] += wait
        most = self._leading.second(batches)
        if not self._sums:
            # Another framework's loader may count the batches.
            return {}
        number, wait, *_ = map(sum, zip(*self._sums.values()))
        return {LOADER_BATCHES: number, MOST_BATCHES: most, LOADER_WAIT_NS: wait}

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
        sums = max(self._sums.values(), key=itemgetter(1), default=[0, 0, 0, 0])
        batches, wait, passes, first_wait = sums
        if passes >= MANY_PASSES:
            said["batches_of_pass"] = rounded(batches // passes)
            said["first_waits"] = round(first_wait / max(1, wait), 1)
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
        key = id(iterator)
        is_first = key not in known and meet(iterator)
        began = clock()
        try:
            batch = original(iterator)
        except BaseException:
            # It is at its end: another may be made at the same place before it goes.
            known.pop(key, None)
            raise
        took = clock() - began
        note((ident(), took, known.get(key, NOBODY)[0], is_first))
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

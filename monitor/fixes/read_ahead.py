"""A ``tf.data`` pipeline works ahead of the step: ``prefetch``, and ``map`` in parallel."""

from __future__ import annotations

import ast
from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import argument, inside, is_call_of_method
from whyidle.monitor.fixes._change import Change, NotHere, Refused
from whyidle.monitor.fixes._codemod import Codemod, Wanted

_DATA: Final = "tensorflow.data."
# What reads or computes the same whenever it is asked.
_BEGINS: Final = ("Dataset.from_tensor_slices", "Dataset.from_tensors", "Dataset.range",
                  "Dataset.list_files", "TFRecordDataset", "TextLineDataset",
                  "FixedLengthRecordDataset", "Dataset.zip")  # fmt: skip


def change(source: Source, wanted: Wanted) -> Change:
    """Let the one pipeline of the file that is gone through work ahead."""
    auto = source.spelt(f"{_DATA}AUTOTUNE")
    if auto is None or "prefetch" in source.words:
        raise NotHere
    if {"py_function", "numpy_function", "from_generator", "global", "nonlocal"} & source.words:
        raise Refused("the pipeline calls Python, which may share something with the step")
    chains = [call for call in source.calls if _is_whole(source, call)]
    if len(chains) > 1:
        chains = [x for x in chains if wanted.at(source, source.statement(x))] or chains
    if not chains:
        raise NotHere
    if len(chains) > 1:
        raise Refused("several pipelines, and it is not certain which one is slow", chains[1])
    found = Change(source)
    for link in _links(chains[0]):
        is_map = is_call_of_method(link, "map") and argument(link, "deterministic") is None
        if is_map and argument(link, "num_parallel_calls", 1) is None and _computes(source, link):
            found.argument(link, "num_parallel_calls", auto)
    found.surround(chains[0], "", f".prefetch({auto})")
    found.notes.append("Batches that are ready ahead of time take memory.")
    return found


def _is_whole(source: Source, call: ast.Call) -> bool:
    """Tell whether a call ends a pipeline: nothing is called on it, and it begins as is known."""
    if isinstance(source.parent(call), ast.Attribute):
        return False
    links = _links(call)
    name = source.imported(links[-1].func) or ""
    return len(links) > 1 and name.startswith(tuple(f"{_DATA}{each}" for each in _BEGINS))


def _links(call: ast.Call) -> list[ast.Call]:
    """Return the calls of a chain, the last one first."""
    found = [call]
    while isinstance(found[-1].func, ast.Attribute) and isinstance(found[-1].func.value, ast.Call):
        found.append(found[-1].func.value)
    return found


def _computes(source: Source, link: ast.Call) -> bool:
    """Tell whether what ``map`` calls gives the same in whatever order it runs."""
    given = argument(link, "map_func", 0)
    body = given if isinstance(given, ast.Lambda) else source.defined(given)
    if body is None:
        return False
    words = source.words_of(inside(body))
    calls = [x for x in inside(body) if isinstance(x, ast.Call)]
    return not any("random" in word for word in words) and all(
        (source.imported(x.func) or "").startswith("tensorflow.") for x in calls
    )


codemod = Codemod(
    title="The pipeline works ahead", rules=("input_starved",), framework="tensorflow"
)

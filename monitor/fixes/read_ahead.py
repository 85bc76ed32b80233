"""A ``tf.data`` pipeline works ahead of the step: ``prefetch``, and ``map`` in parallel."""

from __future__ import annotations

from functools import partial
from typing import Final

import libcst as cst

from whyidle.monitor.fixes._codemod import Change, Codemod, NotHere, Refused, Wanted
from whyidle.monitor.fixes._pieces import argument, inside, with_argument
from whyidle.monitor.fixes._source import Source

_DATA: Final = "tensorflow.data."
# What reads or computes the same whenever it is asked.
_BEGINS: Final = ("Dataset.from_tensor_slices", "Dataset.from_tensors", "Dataset.range",
                  "Dataset.list_files", "TFRecordDataset", "TextLineDataset",
                  "FixedLengthRecordDataset", "Dataset.zip")  # fmt: skip
_PYTHON: Final = {"py_function", "numpy_function", "from_generator", "global", "nonlocal"}


def change(source: Source, wanted: Wanted) -> Change:
    """Let the one pipeline of the file that is gone through work ahead."""
    auto = source.spelt(f"{_DATA}AUTOTUNE")
    if auto is None or "prefetch" in source.words:
        raise NotHere
    if _PYTHON & source.words:
        raise Refused("the pipeline calls Python, which may share something with the step")
    chains = [call for call in source.calls if _is_whole(source, call)]
    if wanted.lines and len(chains) > 1:
        chains = [
            call for call in chains
            if any(source.covers(source.statement(call), line) for line in wanted.lines)
        ] or chains  # fmt: skip
    if not chains:
        raise NotHere
    if len(chains) > 1:
        raise Refused(
            "several pipelines, and it is not certain which one is slow", source.line(chains[1])
        )
    found = Change()
    for link in _links(chains[0]):
        if _method(link) == "map" and argument(link, "num_parallel_calls", 1) is None:
            if argument(link, "deterministic") is None and _computes(source, link):
                found.edits[link] = partial(_in_parallel, auto)
    inner = found.edits.get(chains[0])
    found.edits[chains[0]] = lambda old: _ahead(old if inner is None else inner(old), auto)
    found.notes.append("Batches that are ready ahead of time take memory.")
    return found


def _is_whole(source: Source, call: cst.Call) -> bool:
    """Tell whether a call ends a pipeline: nothing is called on it, and it begins as is known."""
    above = source.parent(call)
    if isinstance(above, cst.Attribute) or not isinstance(call.func, cst.Attribute):
        return False
    links = _links(call)
    name = source.imported(links[-1].func) or ""
    return len(links) > 1 and name.startswith(tuple(f"{_DATA}{each}" for each in _BEGINS))


def _links(call: cst.Call) -> list[cst.Call]:
    """Return the calls of a chain, the last one first."""
    found = [call]
    while isinstance(found[-1].func, cst.Attribute) and isinstance(found[-1].func.value, cst.Call):
        found.append(found[-1].func.value)
    return found


def _method(call: cst.Call) -> str:
    return call.func.attr.value if isinstance(call.func, cst.Attribute) else ""


def _computes(source: Source, link: cst.Call) -> bool:
    """Tell whether what ``map`` calls gives the same in whatever order it runs."""
    given = argument(link, "map_func", 0)
    if given is None:
        return False
    known = source.definition(given.value)
    body = given.value if isinstance(given.value, cst.Lambda) else known
    if not isinstance(body, cst.Lambda | cst.FunctionDef):
        return False
    words = {x.value for x in inside(body) if isinstance(x, cst.Name)}
    calls = [x for x in inside(body) if isinstance(x, cst.Call)]
    return not any("random" in word for word in words) and all(
        (source.imported(x.func) or "").startswith("tensorflow.") for x in calls
    )


def _in_parallel(auto: str, old: cst.Call) -> cst.Call:
    return with_argument(old, "num_parallel_calls", auto)


def _ahead(old: cst.BaseExpression, auto: str) -> cst.Call:
    return cst.Call(cst.Attribute(old, cst.Name("prefetch")), [cst.Arg(cst.parse_expression(auto))])


codemod = Codemod(
    title="The pipeline works ahead",
    rules=("input_starved",),
    change=change,
)

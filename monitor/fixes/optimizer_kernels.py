"""An optimizer updates all of its tensors in a few kernels: ``fused=True``, or ``foreach=True``."""

from __future__ import annotations

from functools import partial
from typing import Final

import libcst as cst

from whyidle.monitor.fixes._codemod import Change, Codemod, NotHere, Refused, Wanted
from whyidle.monitor.fixes._pieces import argument, has_stars, with_argument, without_argument
from whyidle.monitor.fixes._source import Source

_FUSED: Final = ("Adam", "AdamW", "SGD", "Adagrad")
_FOREACH: Final = ("Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "Adadelta", "ASGD")
_NAMES: Final = tuple(
    f"torch.optim.{module}{name}"
    for name in (*_FUSED, *_FOREACH)
    for module in ("", f"{name.lower()}.")
)
# With these an update goes another way, or what it updates is no plain tensor.
_KEEPS: Final = ("differentiable", "capturable", "fused")


def change(source: Source, wanted: Wanted) -> Change:
    """Change the optimizers that go through their tensors one by one."""
    optimizers = source.calls_of(*_NAMES)
    slow = [x for x in optimizers if _one_by_one(source, x)]
    here = [
        x for x in optimizers if any(source.covers(source.statement(x), n) for n in wanted.lines)
    ]
    chosen = slow or here or (optimizers if len(optimizers) == 1 else [])
    if not chosen:
        if optimizers:
            where = source.line(optimizers[0])
            raise Refused("several optimizers, and it is not certain which one is slow", where)
        raise NotHere
    found = Change()
    for call in chosen:
        _check(source, call)
        name = (source.imported(call.func) or "").rpartition(".")[2]
        word = "fused" if name in _FUSED else "foreach"
        found.edits[call] = partial(_switched, word=word)
    found.notes.append("Rounding may differ in the last digits.")
    return found


def _one_by_one(source: Source, call: cst.Call) -> bool:
    given = argument(call, "foreach")
    return given is not None and source.means(given.value, "False")


def _check(source: Source, call: cst.Call) -> None:
    where = source.line(call)
    if has_stars(call):
        raise Refused("arguments of the optimizer come from elsewhere (* or **)", where)
    for name in _KEEPS:
        if argument(call, name) is not None:
            raise Refused(f"{name} is set for the optimizer", where)
    foreach = argument(call, "foreach")
    if foreach is not None and not source.means(foreach.value, "False"):
        raise Refused("foreach is set by other code", where)
    for other in source.calls:
        sparse = argument(other, "sparse")
        if sparse is not None and not source.means(sparse.value, "False"):
            raise Refused("a layer has sparse gradients", source.line(other))
    if {"torch_xla", "xm", "mps", "to_sparse", "DTensor"} & source.words:
        raise Refused("the parameters may lie where no fused kernel is", where)


def _switched(old: cst.Call, word: str) -> cst.Call:
    call = without_argument(old, "foreach") if word == "fused" else old
    return with_argument(call, word, "True")


codemod = Codemod(
    title="The optimizer updates all tensors at once",
    rules=("unfused_optimizer",),
    change=change,
)

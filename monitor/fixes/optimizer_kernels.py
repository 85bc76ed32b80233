"""An optimizer updates all of its tensors in a few kernels: ``fused=True``, or ``foreach=True``."""

from __future__ import annotations

import ast
from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import argument, has_stars
from whyidle.monitor.fixes._change import Change, NotHere, Refused, SetElsewhere
from whyidle.monitor.fixes._codemod import Codemod, Wanted

_FUSED: Final = ("Adam", "AdamW", "SGD", "Adagrad")
_FOREACH: Final = ("Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "Adadelta", "ASGD")
_NAMES: Final = tuple(
    f"torch.optim.{module}{name}"
    for name in (*_FUSED, *_FOREACH)
    for module in ("", f"{name.lower()}.")
)
# With these an update goes another way, or what it updates is no plain tensor.
_KEEPS: Final = ("differentiable", "capturable")


def change(source: Source, wanted: Wanted) -> Change:
    """Change the optimizers that go through their tensors one by one."""
    optimizers = source.calls_of(*_NAMES)
    slow = [x for x in optimizers if source.means(argument(x, "foreach"), "False")]
    here = [x for x in optimizers if wanted.at(source, source.statement(x))]
    chosen = slow or here or (optimizers if len(optimizers) == 1 else [])
    if not chosen:
        if optimizers:
            raise Refused(
                "several optimizers, and it is not certain which one is slow", optimizers[0]
            )
        raise NotHere
    found = Change(source)
    for call in chosen:
        _check(source, call)
        name = (source.imported(call.func) or "").rpartition(".")[2]
        if name in _FUSED:
            found.argument(call, "fused", "True", instead="foreach")
        else:
            found.argument(call, "foreach", "True")
    found.notes.append("Rounding may differ in the last digits.")
    return found


def _check(source: Source, call: ast.Call) -> None:
    if has_stars(call):
        raise Refused("arguments of the optimizer come from elsewhere (* or **)", call)
    for name in _KEEPS:
        if argument(call, name) is not None:
            raise Refused(f"{name} is set for the optimizer", call)
    fused, foreach = argument(call, "fused"), argument(call, "foreach")
    if fused is not None:
        raise SetElsewhere("fused", fused, "True", call)
    if foreach is not None and not source.means(foreach, "False"):
        raise SetElsewhere("foreach", foreach, "True", call)
    for other in source.calls:
        sparse = argument(other, "sparse")
        if sparse is not None and not source.means(sparse, "False"):
            raise Refused("a layer has sparse gradients", other)
    if {"torch_xla", "xm", "mps", "to_sparse", "DTensor"} & source.words:
        raise Refused("the parameters may lie where no fused kernel is", call)


codemod = Codemod(title="The optimizer updates all tensors at once", rules=("unfused_optimizer",))

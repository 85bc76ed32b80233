"""A loader pins its batches, and their copies to the device run beside the work."""

from __future__ import annotations

import ast

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import argument, has_stars, names_set
from whyidle.monitor.fixes._change import Change, NotHere, Refused, SetElsewhere
from whyidle.monitor.fixes._codemod import Codemod, Wanted
from whyidle.monitor.fixes.loader_arguments import LOADER


def change(source: Source, _wanted: Wanted) -> Change:
    """Pin what the loader gives, and let the copies of the loop not wait."""
    loaders = source.calls_of(*LOADER)
    if not loaders:
        raise NotHere
    if len(loaders) > 1:
        raise Refused("several loaders, and it is not certain which one it is", loaders[1])
    call = loaders[0]
    if has_stars(call):
        raise Refused("arguments of the loader come from elsewhere (* or **)", call)
    pinned = argument(call, "pin_memory", 7)
    if pinned in call.args:
        raise Refused("pin_memory is given by its place", call)
    found = Change(source)
    torch = source.spelt("torch", call)
    if torch is None:
        raise Refused("torch is not imported by its name", call)
    if pinned is None or source.means(pinned, "False"):
        found.argument(call, "pin_memory", f"{torch}.cuda.is_available()")
    elif not source.means(pinned, "True"):
        raise SetElsewhere("pin_memory", pinned, "True", call)
    for each in source.calls:
        if _is_copy(source, each):
            found.argument(each, "non_blocking", "True")
    return found


def _is_copy(source: Source, call: ast.Call) -> bool:
    """Tell whether it copies a part of the batch to the device, in a training loop."""
    match call:
        case ast.Call(func=ast.Attribute(ast.Name(id=name), "to"), args=[to], keywords=[]):
            # A copy back to the host must be waited for.
            text = source.code(to).lower()
            fits = "cpu" not in text and any(
                word in text for word in ("device", "cuda", "rank", "gpu")
            )
        case ast.Call(func=ast.Attribute(ast.Name(id=name), "cuda")):
            fits = argument(call, "non_blocking") is None
        case _:
            return False
    loop = source.training_loop(call)
    return fits and isinstance(loop, ast.For) and name in names_set(loop.target)


codemod = Codemod(
    title="Batches are pinned, and their copies do not wait",
    rules=("pageable_copies",),
    framework="pytorch",
)

"""A loader pins its batches, and their copies to the device run beside the work."""

from __future__ import annotations

import libcst as cst

from whyidle.monitor.fixes._codemod import Change, Codemod, NotHere, Refused, Wanted
from whyidle.monitor.fixes._loops import targets, training_loop
from whyidle.monitor.fixes._pieces import argument, has_stars, with_argument
from whyidle.monitor.fixes._source import Source
from whyidle.monitor.fixes.loader_arguments import LOADER


def change(source: Source, wanted: Wanted) -> Change:
    """Pin what the loader gives, and let the copies of the loop not wait."""
    loaders = source.calls_of(*LOADER)
    if not loaders:
        raise NotHere
    if len(loaders) > 1:
        raise Refused(
            "several loaders, and it is not certain which one it is", source.line(loaders[1])
        )
    call = loaders[0]
    if has_stars(call):
        raise Refused("arguments of the loader come from elsewhere (* or **)", source.line(call))
    pinned = argument(call, "pin_memory", 7)
    if pinned is not None and pinned.keyword is None:
        raise Refused("pin_memory is given by its place", source.line(call))
    found = Change()
    torch = source.spelt("torch", call)
    if torch is None:
        raise Refused("torch is not imported by its name", source.line(call))
    if pinned is None or source.means(pinned.value, "False"):
        text = f"{torch}.cuda.is_available()"
        found.edits[call] = lambda old: with_argument(old, "pin_memory", text)
    elif not source.means(pinned.value, "True"):
        raise Refused("pin_memory is set by other code", source.line(call))
    copies = [x for x in source.calls if _is_copy(source, x, wanted)]
    for each in copies:
        found.edits[each] = lambda old: with_argument(old, "non_blocking", "True")
    if not found.edits:
        raise NotHere
    return found


def _is_copy(source: Source, call: cst.Call, wanted: Wanted) -> bool:
    """Tell whether it copies a part of the batch to the device, in a training loop."""
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in {"to", "cuda"}:
        return False
    loop = training_loop(source, call)
    of = call.func.value
    if loop is None or not isinstance(of, cst.Name) or argument(call, "non_blocking") is not None:
        return False
    if call.func.attr.value == "to":
        plain = len(call.args) == 1 and not call.args[0].star
        # A copy back to the host must be waited for.
        if not plain or "cpu" in source.code(call.args[0]) or call.args[0].keyword is not None:
            return False
        if not any(
            w in source.code(call.args[0]).lower() for w in ("device", "cuda", "rank", "gpu")
        ):
            return False
    batch = {x.value for x in targets(loop.target)} if isinstance(loop, cst.For) else set()
    del wanted
    return of.value in batch


codemod = Codemod(
    title="Batches are pinned, and their copies do not wait",
    rules=("pageable_copies",),
    change=change,
)

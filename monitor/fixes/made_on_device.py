"""A tensor whose values are plain is made on the device, not on the host and then copied."""

from __future__ import annotations

from functools import partial
from typing import Final

import libcst as cst

from whyidle.monitor.fixes._codemod import Change, Codemod, NotHere, Refused, Wanted
from whyidle.monitor.fixes._loops import training_loop
from whyidle.monitor.fixes._pieces import argument, dotted, has_stars, with_argument
from whyidle.monitor.fixes._source import Source

# Their values are the same wherever they are made.
_PLAIN: Final = tuple(
    f"torch.{name}" for name in ("zeros", "ones", "full", "empty", "eye", "arange")
)
# Drawn from the generator of where they are made.
_DRAWN: Final = tuple(f"torch.{name}" for name in ("rand", "randn", "randint", "randperm"))


def change(source: Source, wanted: Wanted) -> Change:
    """Say the device where the tensor is made."""
    found = Change()
    drawn: Refused | None = None
    for call in source.calls:
        made, device = _copied(source, call)
        if made is None or device is None or training_loop(source, call) is None:
            continue
        if wanted.lines and not any(source.covers(call, line) for line in wanted.lines):
            continue
        if source.means(made.func, *_DRAWN):
            why = "numbers that the device draws are others than those of the host"
            drawn = drawn or Refused(why, source.line(call))
            continue
        if has_stars(made) or argument(made, "device") or argument(made, "out"):
            continue
        if argument(made, "pin_memory"):
            raise Refused("it is made in pinned memory", source.line(call))
        found.edits[call] = partial(_on_device, made, device)
    if not found.edits:
        raise drawn or NotHere
    return found


def _copied(source: Source, call: cst.Call) -> tuple[cst.Call | None, str | None]:
    """Return what is made, and the device, of ``torch.zeros(..).to(device)``."""
    if not isinstance(call.func, cst.Attribute) or not isinstance(call.func.value, cst.Call):
        return None, None
    made = call.func.value
    if not source.means(made.func, *_PLAIN, *_DRAWN):
        return None, None
    if call.func.attr.value == "cuda" and not call.args:
        return made, '"cuda"'
    if call.func.attr.value == "to" and len(call.args) == 1 and not call.args[0].star:
        arg = call.args[0]
        if (arg.keyword is None or arg.keyword.value == "device") and _is_device(source, arg.value):
            return made, source.code(arg.value)
    return made, None


def _is_device(source: Source, value: cst.BaseExpression) -> bool:
    """Tell whether a value certainly names a device, and no dtype."""
    if isinstance(value, cst.SimpleString):
        return str(value.evaluated_value).startswith(("cuda", "mps", "xpu"))
    if isinstance(value, cst.Attribute) and value.attr.value == "device":
        return bool(dotted(value))
    try:
        known = source.constant(value)
    except KeyError:
        return False
    if isinstance(known, cst.IfExp):
        return all(isinstance(x, cst.SimpleString | cst.Call) for x in (known.body, known.orelse))
    if isinstance(known, cst.Call):
        return source.means(known.func, "torch.device")
    return known is not value and isinstance(known, cst.SimpleString)


def _on_device(made: cst.Call, device: str, old: cst.Call) -> cst.BaseExpression:
    new = with_argument(made, "device", device)
    return new.with_changes(lpar=old.lpar, rpar=old.rpar)


codemod = Codemod(
    title="It is made on the device",
    rules=("pageable_copies", "many_small_copies"),
    change=change,
)

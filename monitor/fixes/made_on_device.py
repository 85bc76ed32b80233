"""A tensor whose values are plain is made on the device, not on the host and then copied."""

from __future__ import annotations

import ast
from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import argument, has_stars, plain_text
from whyidle.monitor.code.source import dotted
from whyidle.monitor.fixes._change import Change, NotHere, Refused
from whyidle.monitor.fixes._codemod import Codemod, Wanted

# Their values are the same wherever they are made.
_PLAIN: Final = tuple(
    f"torch.{name}" for name in ("zeros", "ones", "full", "empty", "eye", "arange")
)
# Drawn from the generator of where they are made.
_DRAWN: Final = tuple(f"torch.{name}" for name in ("rand", "randn", "randint", "randperm"))


def change(source: Source, wanted: Wanted) -> Change:
    """Say the device where the tensor is made."""
    found = Change(source)
    drawn: Refused | None = None
    for call in source.calls:
        made, device = _copied(source, call)
        is_in_loop = wanted.fits(source, call) and source.training_loop(call) is not None
        if made is None or device is None or not is_in_loop:
            continue
        if source.means(made.func, *_DRAWN):
            why = "numbers that the device draws are others than those of the host"
            drawn = drawn or Refused(why, call)
            continue
        if has_stars(made) or argument(made, "device") or argument(made, "out"):
            continue
        if argument(made, "pin_memory"):
            raise Refused("it is made in pinned memory", call)
        found.argument(made, "device", device)
        found.instead(call, made)
    if not found.edits:
        raise drawn or NotHere
    return found


def _copied(source: Source, call: ast.Call) -> tuple[ast.Call | None, str | None]:
    """Return what is made, and the device, of ``torch.zeros(..).to(device)``."""
    match call:
        case ast.Call(func=ast.Attribute(ast.Call() as made, attr)) if source.means(
            made.func, *_PLAIN, *_DRAWN
        ):
            if attr == "cuda" and not call.args and not call.keywords:
                return made, '"cuda"'
            value = argument(call, "device", 0) if attr == "to" else None
            is_alone = len(call.args) + len(call.keywords) == 1
            if value is not None and is_alone and _is_device(source, value):
                return made, source.code(value)
            return made, None
        case _:
            return None, None


def _is_device(source: Source, value: ast.expr) -> bool:
    """Tell whether a value certainly names a device, and no dtype."""
    text = plain_text(value)
    if text is not None:
        return text.startswith(("cuda", "mps", "xpu"))
    if isinstance(value, ast.Attribute) and value.attr == "device":
        return bool(dotted(value))
    match source.constant(value):
        case ast.IfExp(body=one, orelse=other):
            return all(isinstance(x, ast.Call) or plain_text(x) is not None for x in (one, other))
        case ast.Call(func=func):
            return source.means(func, "torch.device")
        case known:
            return plain_text(known) is not None


codemod = Codemod(title="It is made on the device", rules=("pageable_copies", "many_small_copies"))

"""Forward pass and loss of PyTorch run in bfloat16: ``torch.autocast`` around both.

The backward pass stays outside, and no scaling is needed: bfloat16 has the range of float32. Proved
first: that of the model nothing is used but what autocast knows, that the loss is one that it
computes in float32, and that nothing else sees what is of half precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import libcst as cst

from whyidle.monitor.fixes._called import given_to
from whyidle.monitor.fixes._codemod import (
    Change,
    Codemod,
    NotHere,
    Refused,
    Wanted,
)
from whyidle.monitor.fixes._loops import sets
from whyidle.monitor.fixes._modules import Modules, set_on_self
from whyidle.monitor.fixes._pieces import dotted, inside
from whyidle.monitor.fixes._source import Source

# What says, or depends on, in which type something is.
_SAYS: Final = {
    "amp", "autocast", "GradScaler", "half", "bfloat16", "float16", "double", "float64",
    "set_default_dtype", "apex", "jit", "CUDAGraph", "make_graphed_callables", "LBFGS",
    "register_forward_hook", "register_hook", "set_detect_anomaly",
}  # fmt: skip
# Autocast computes them in float32, on a CPU and on a GPU.
_LOSSES: Final = {"cross_entropy": "CrossEntropyLoss", "nll_loss": "NLLLoss", "mse_loss": "MSELoss",
                  "l1_loss": "L1Loss", "smooth_l1_loss": "SmoothL1Loss",
                  "binary_cross_entropy_with_logits": "BCEWithLogitsLoss"}  # fmt: skip
_SAFE: Final = tuple(f"torch.nn.functional.{x}" for x in _LOSSES)
_SAFE_MODULES: Final = tuple(f"torch.nn.{x}" for x in _LOSSES.values())
_NOT_IN_HALF: Final = ("torch.nn.functional.binary_cross_entropy", "torch.nn.BCELoss")
_DEEPEST: Final = 4
_DEVICES: Final = {"cuda", "cpu", "mps", "xpu"}


def change(source: Source, _wanted: Wanted) -> Change:
    """Wrap the statements from the model's call to the loss."""
    torch = source.spelt("torch")
    if torch is None:
        raise NotHere
    call, loss = _backward(source)
    if said := _SAYS & source.words:
        raise Refused(f"the program says itself what is of which type ({min(said)})")
    modules = Modules(source)
    region = _region(source, modules, call, loss)
    _check(source, modules, region, loss)
    device = _device(source, region[0])
    head = cst.parse_expression(f"{torch}.autocast({device}, dtype={torch}.bfloat16)")
    found = Change()

    def edit(old: Any) -> Any:
        body = cst.IndentedBlock([old.with_changes(leading_lines=()), *region[1:]])
        return cst.With([cst.WithItem(head)], body, leading_lines=old.leading_lines)

    found.edits[region[0]] = edit
    for each in region[1:]:
        found.edits[each] = lambda _: cst.RemoveFromParent()
    found.notes.append(
        "Products have 8 bits of a fraction, not 24: losses agree to about a hundredth."
    )
    found.notes.append("To compare them: --verify CMD --tolerance 0.02")
    return found


def _backward(source: Source) -> tuple[cst.Call, cst.Name]:
    """Return the one backward pass of the file, and its loss."""
    calls = [x for x in source.calls if isinstance(x.func, cst.Attribute)
             and x.func.attr.value == "backward"]  # fmt: skip
    if not calls:
        raise NotHere
    if len(calls) > 1:
        raise Refused("there is more than one backward pass", source.line(calls[1]))
    call = calls[0]
    loss = call.func.value if isinstance(call.func, cst.Attribute) else None
    if not isinstance(loss, cst.Name) or call.args:
        raise Refused("what the backward pass begins with is no name", source.line(call))
    return call, loss


def _region(
    source: Source, modules: Modules, call: cst.Call, loss: cst.Name
) -> list[cst.SimpleStatementLine]:
    """Return the statements from the first call of a model to the loss."""
    backward, where = source.statement(call), source.line(call)
    block = source.siblings(backward)
    before = block[: block.index(backward)]
    ends = [x for x in before if loss.value in {y.value for y in sets(x)}]
    if len(ends) != 1 or not isinstance(ends[0], cst.SimpleStatementLine):
        raise Refused(
            f"{loss.value} is not computed by one statement beside its backward pass", where
        )
    before = before[: before.index(ends[0]) + 1]
    first = next((x for x in before if _calls_model(modules, x)), None)
    if first is None:
        raise Refused("which call is the model's is not certain", source.line(ends[0]))
    region = []
    for each in before[before.index(first) :]:
        if not isinstance(each, cst.SimpleStatementLine):
            raise Refused("more than the model's call comes before the loss", source.line(each))
        region.append(each)
    return region


def _calls_model(modules: Modules, code: cst.CSTNode) -> bool:
    return any(isinstance(x, cst.Call) and modules.is_model(x.func) for x in inside(code))


# What is in it -----------------------------------------------------------------------------------
def _check(
    source: Source, modules: Modules, region: Sequence[cst.SimpleStatementLine], loss: cst.Name
) -> None:
    mine = {x for each in region for x in inside(each)}
    for statement in region:
        where = source.line(statement)
        small = statement.body[0]
        if len(statement.body) > 1 or not isinstance(small, cst.Assign | cst.AnnAssign):
            raise Refused("between model and loss is more than what they need", where)
        if not all(isinstance(x, cst.Name | cst.Tuple) for x in _ends(small)):
            raise Refused("it writes into what may be of another type", where)
        value = small.value
        if statement is region[-1] and value is not None:
            _check_loss(source, modules, value)
        elif value is not None:
            _check_value(source, modules, value)
    for name in (x for each in region for x in sets(each) if x.value != loss.value):
        for use in source.uses(name):
            if use not in mine and not _is_ranked(source, use):
                why = f"{name.value} is used outside, too, and would be of half precision"
                raise Refused(why, source.line(use))


def _ends(small: cst.Assign | cst.AnnAssign) -> list[cst.BaseExpression]:
    return [x.target for x in small.targets] if isinstance(small, cst.Assign) else [small.target]


def _check_value(source: Source, modules: Modules, value: cst.BaseExpression) -> None:
    """Refuse what is computed with anything but models, and what autocast knows."""
    calls = [x for x in inside(value) if isinstance(x, cst.Call)]
    for call in calls:
        if modules.is_model(call.func):
            modules.check(call.func)
            if any(x.keyword is not None for x in call.args):
                raise Refused("the model is called with arguments by name", source.line(call))
        elif not _moves(call):
            modules.check_call(call)


def _moves(call: cst.Call) -> bool:
    """Tell whether a tensor is only copied: ``x.to(device)``."""
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in {"to", "cuda"}:
        return False
    return not any(x.keyword is not None and x.keyword.value == "dtype" for x in call.args)


def _check_loss(source: Source, modules: Modules, value: cst.BaseExpression) -> None:
    """Refuse a loss that autocast might compute in half precision."""
    if isinstance(value, cst.BinaryOperation):
        for side in (value.left, value.right):
            if any(isinstance(x, cst.Call) for x in inside(side)):
                _check_loss(source, modules, side)
        return
    where = source.line(value)
    if not isinstance(value, cst.Call):
        raise Refused(f"{source.code(value)} is no loss that autocast computes in float32", where)
    made = _made(source, value.func)
    if source.means(value.func, *_NOT_IN_HALF) or (made and source.means(made, *_NOT_IN_HALF)):
        why = "BCELoss cannot be computed in half precision: BCEWithLogitsLoss can"
        raise Refused(why, where)
    if not source.means(value.func, *_SAFE) and not (made and source.means(made, *_SAFE_MODULES)):
        why = f"whether {source.code(value.func)} needs float32 is not certain"
        raise Refused(why, where)
    for arg in value.args:
        _check_value(source, modules, arg.value)


def _made(source: Source, func: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return the class of a loss that is an object: ``nn.CrossEntropyLoss()``."""
    if isinstance(func, cst.Attribute) and dotted(func.value) == "self":
        found = set_on_self(source, func)
        made = found[0] if len(found) == 1 else None
    else:
        try:
            made = source.value(func)
        except KeyError:
            made = None
    return made.func if isinstance(made, cst.Call) else None


def _is_ranked(source: Source, use: cst.CSTNode) -> bool:
    """Tell whether of a value only the place of the largest is asked: ``scores.argmax(1)``."""
    above = source.parent(use)
    call = source.parent(above) if isinstance(above, cst.Attribute) else None
    return (
        isinstance(above, cst.Attribute)
        and above.attr.value == "argmax"
        and (isinstance(call, cst.Call) and call.func is above)
    )


# Where it runs -----------------------------------------------------------------------------------
def _device(source: Source, at: cst.CSTNode) -> str:
    """Return the text that says the kind of device."""
    here, elsewhere = set(), set()
    for call in source.calls:
        if not isinstance(call.func, cst.Attribute):
            continue
        is_here = source.function(call) is source.function(at)
        kind: str | None = None
        value: cst.BaseExpression = call.func
        if call.func.attr.value == "cuda" and not call.args:
            kind = '"cuda"'
        if call.func.attr.value == "to" and call.args and call.args[0].keyword is None:
            value = call.args[0].value
            kind = _kind(source, value, 0)
        if kind is not None and is_here:
            here.add(kind.format(source.code(value)))
        elif kind is not None and ("{}" not in kind or _is_of_all(source, value)):
            # A name of another function says nothing here.
            elsewhere.add(kind.format(source.code(value)))
    found = here or elsewhere
    if len(found) != 1:
        raise Refused("which kind of device it runs on is not certain", source.line(at))
    return found.pop()


def _is_of_all(source: Source, value: cst.BaseExpression) -> bool:
    """Tell whether a name is one of the module's."""
    if not isinstance(value, cst.Name):
        return False
    module = source.scope(source.module)
    return any(x.scope is module for x in source.scope(value)[value.value])


def _kind(source: Source, value: cst.BaseExpression, depth: int) -> str | None:
    """Return a kind of device, or how it is had of this value: ``{}.type``."""
    known = source.constant(value)
    if isinstance(known, cst.SimpleString):
        kind = str(known.evaluated_value).partition(":")[0]
        return f'"{kind}"' if kind in _DEVICES else None
    if isinstance(known, cst.Call) and source.means(known.func, "torch.device"):
        return "{}.type"
    if isinstance(known, cst.IfExp) and all(
        isinstance(x, cst.SimpleString) and x.evaluated_value in _DEVICES
        for x in (known.body, known.orelse)
    ):
        return "{}"
    kinds = {_kind(source, x, depth + 1) for x in _values(source, value) if depth < _DEEPEST}
    return kinds.pop() if len(kinds) == 1 else None


def _values(source: Source, value: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Return all that a parameter is given, or an attribute of ``self`` is set to."""
    if isinstance(value, cst.Attribute) and dotted(value.value) == "self":
        return set_on_self(source, value)
    places = source.assigned(value) if isinstance(value, cst.Name) else []
    if len(places) == 1 and isinstance(places[0], cst.Param):
        given = list(given_to(source, places[0]))
        return [x for x in given if x is not None] if None not in given else []
    return []


codemod = Codemod(
    title="Forward pass and loss run in bfloat16",
    rules=("full_precision_matmul",),
    change=change,
    changes_numbers=True,
)

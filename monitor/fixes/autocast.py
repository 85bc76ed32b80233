"""Forward pass and loss of PyTorch run in bfloat16: ``torch.autocast`` around both.

The backward pass stays outside, and no scaling is needed: bfloat16 has the range of float32. Proved
first: that of the model nothing is used but what autocast knows, that the loss is one that it
computes in float32, and that nothing else sees what is of half precision.
"""

from __future__ import annotations

import ast
from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import (
    inside,
    is_call_of_method,
    is_of_self,
    name_of,
    names_set,
    plain_text,
    sets,
    targets,
)
from whyidle.monitor.code.source import DEEPEST
from whyidle.monitor.fixes._called import given_to
from whyidle.monitor.fixes._change import Change, NotHere, Refused
from whyidle.monitor.fixes._codemod import Codemod, Wanted
from whyidle.monitor.fixes._modules import Modules, set_on_self

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
_DEVICES: Final[set[str | None]] = {"cuda", "cpu", "mps", "xpu"}


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
    found = Change(source)
    device = _device(source, region[0])
    found.wrap(region, f"with {torch}.autocast({device}, dtype={torch}.bfloat16)")
    found.notes.append(
        "Products have 8 bits of a fraction, not 24: losses agree to about a hundredth."
    )
    found.notes.append("To compare them: --verify CMD --tolerance 0.02")
    return found


def _backward(source: Source) -> tuple[ast.Call, str]:
    """Return the one backward pass of the file, and its loss."""
    calls = [x for x in source.calls if is_call_of_method(x, "backward")]
    if not calls:
        raise NotHere
    if len(calls) > 1:
        raise Refused("there is more than one backward pass", calls[1])
    match calls[0]:
        case ast.Call(func=ast.Attribute(ast.Name(id=name)), args=[], keywords=[]):
            return calls[0], name
        case call:
            raise Refused("what the backward pass begins with is no name", call)


def _region(source: Source, modules: Modules, call: ast.Call, loss: str) -> list[ast.stmt]:
    """Return the statements from the first call of a model to the loss."""
    backward = source.statement(call)
    block = source.block(backward)
    before = block[: block.index(backward)] if block else []
    ends = [x for x in before if loss in names_set(x)]
    if len(ends) != 1 or hasattr(ends[0], "body"):
        raise Refused(f"{loss} is not computed by one statement next to its backward pass", call)
    before = before[: before.index(ends[0]) + 1]
    first = next((x for x in before if _calls_model(modules, x)), None)
    if first is None:
        raise Refused("which call is the model's is not certain", ends[0])
    region = before[before.index(first) :]
    for each in region:
        if hasattr(each, "body"):
            raise Refused("more than the model's call comes before the loss", each)
    return region


def _calls_model(modules: Modules, code: ast.AST) -> bool:
    return any(isinstance(x, ast.Call) and modules.is_model(x.func) for x in inside(code))


# What is in it -----------------------------------------------------------------------------------
def _check(source: Source, modules: Modules, region: list[ast.stmt], loss: str) -> None:
    mine = set(inside(*region))
    for statement in region:
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            raise Refused("between model and loss is more than what they need", statement)
        if not all(isinstance(x, ast.Name | ast.Tuple) for x in targets(statement)):
            raise Refused("it writes into what may be of another type", statement)
        if statement is region[-1] and statement.value is not None:
            _check_loss(source, modules, statement.value)
        elif statement.value is not None:
            _check_value(modules, statement.value)
    for name in (x for x in sets(*region) if name_of(x) != loss):
        for use in source.uses(name):
            if use not in mine and not _is_ranked(source, use):
                why = f"{name_of(name)} is used outside, too, and would be of half precision"
                raise Refused(why, use)


def _check_value(modules: Modules, value: ast.expr) -> None:
    """Refuse what is computed with anything but models, and what autocast knows."""
    for call in (x for x in inside(value) if isinstance(x, ast.Call)):
        if modules.is_model(call.func):
            modules.check(call.func)
            if call.keywords:
                raise Refused("the model is called with arguments by name", call)
        elif not _moves(call):
            modules.check_call(call)


def _moves(call: ast.Call) -> bool:
    """Tell whether a tensor is only copied: ``x.to(device)``."""
    says_type = any(x.arg == "dtype" for x in call.keywords)
    return is_call_of_method(call, "to", "cuda") and not says_type


def _check_loss(source: Source, modules: Modules, value: ast.expr) -> None:
    """Refuse a loss that autocast might compute in half precision."""
    if isinstance(value, ast.BinOp):
        for side in (value.left, value.right):
            if any(isinstance(x, ast.Call) for x in inside(side)):
                _check_loss(source, modules, side)
        return
    if not isinstance(value, ast.Call):
        raise Refused(f"{source.code(value)} is no loss that autocast computes in float32", value)
    made = _made(source, value.func)
    if source.means(value.func, *_NOT_IN_HALF) or source.means(made, *_NOT_IN_HALF):
        raise Refused("BCELoss cannot be computed in half precision: BCEWithLogitsLoss can", value)
    if not source.means(value.func, *_SAFE) and not source.means(made, *_SAFE_MODULES):
        raise Refused(f"whether {source.code(value.func)} needs float32 is not certain", value)
    for each in (*value.args, *(x.value for x in value.keywords)):
        _check_value(modules, each)


def _made(source: Source, func: ast.expr) -> ast.expr | None:
    """Return the class of a loss that is an object: ``nn.CrossEntropyLoss()``."""
    made = source.value(func)
    if isinstance(func, ast.Attribute) and is_of_self(func):
        found = set_on_self(source, func)
        made = found[0] if len(found) == 1 else None
    return made.func if isinstance(made, ast.Call) else None


def _is_ranked(source: Source, use: ast.AST) -> bool:
    """Tell whether of a value only the place of the largest is asked: ``scores.argmax(1)``."""
    above = source.parent(use)
    call = None if above is None else source.parent(above)
    return call is not None and is_call_of_method(call, "argmax") and call.func is above  # type: ignore[attr-defined]


# Where it runs -----------------------------------------------------------------------------------
def _device(source: Source, at: ast.AST) -> str:
    """Return the text that says the kind of device."""
    here, elsewhere = set(), set()
    for call in source.calls:
        kind, value = _kind_of(source, call)
        if kind is not None and source.function(call) is source.function(at):
            here.add(kind.format(source.code(value)))
        elif kind is not None and ("{}" not in kind or source.is_of_module(value)):
            # A name of another function says nothing here.
            elsewhere.add(kind.format(source.code(value)))
    found = here or elsewhere
    if len(found) != 1:
        raise Refused("which kind of device it runs on is not certain", at)
    return found.pop()


def _kind_of(source: Source, call: ast.Call) -> tuple[str | None, ast.expr]:
    """Return the kind of device that a call copies to, and what says it."""
    match call:
        case ast.Call(func=ast.Attribute(attr="cuda"), args=[], keywords=[]):
            return '"cuda"', call
        case ast.Call(func=ast.Attribute(attr="to"), args=[value, *_]):
            return _kind(source, value, 0), value
        case _:
            return None, call


def _kind(source: Source, value: ast.expr, depth: int) -> str | None:
    """Return a kind of device, or how it is had of this value: ``{}.type``."""
    known = source.constant(value)
    text = plain_text(known)
    if text is not None:
        kind = text.partition(":")[0]
        return f'"{kind}"' if kind in _DEVICES else None
    match known:
        case ast.Call(func=func) if source.means(func, "torch.device"):
            return "{}.type"
        case ast.IfExp(body=one, orelse=other) if {plain_text(one), plain_text(other)} <= _DEVICES:
            return "{}"
        case _:
            some = _values(source, value) if depth < DEEPEST else []
            kinds = {_kind(source, x, depth + 1) for x in some}
            return kinds.pop() if len(kinds) == 1 else None


def _values(source: Source, value: ast.expr) -> list[ast.expr]:
    """Return all that a parameter is given, or an attribute of ``self`` is set to."""
    if isinstance(value, ast.Attribute) and is_of_self(value):
        return set_on_self(source, value)
    places = source.assigned(value) if isinstance(value, ast.Name) else []
    one = places[0] if len(places) == 1 else None
    given = [*given_to(source, one)] if isinstance(one, ast.arg) else []
    return [x for x in given if x is not None] if None not in given else []


codemod = Codemod(
    title="Forward pass and loss run in bfloat16",
    rules=("full_precision_matmul",),
    framework="pytorch",
    changes_numbers=True,
)

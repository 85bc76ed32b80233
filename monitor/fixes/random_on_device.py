"""Random numbers of a batch are drawn on the device: others than before, so only where allowed."""

from __future__ import annotations

from typing import Final

import libcst as cst

from whyidle.monitor.fixes._codemod import Change, Codemod, NotHere, Refused, Wanted
from whyidle.monitor.fixes._loops import training_loop
from whyidle.monitor.fixes._pieces import argument
from whyidle.monitor.fixes._source import Source

# NumPy's name, the place of its size, and torch's name; ``None``: a dimension an argument.
_KINDS: Final[dict[str, tuple[int | None, str]]] = {
    "normal": (2, "randn"),
    "standard_normal": (0, "randn"),
    "randn": (None, "randn"),
    "uniform": (2, "rand"),
    "random": (0, "rand"),
    "random_sample": (0, "rand"),
    "rand": (None, "rand"),
}
_MAKERS: Final = ("numpy.random.default_rng", "numpy.random.RandomState")
_TO_TORCH: Final = ("torch.from_numpy", "torch.tensor", "torch.as_tensor")


def change(source: Source, wanted: Wanted) -> Change:
    """Draw by torch, on the device, what NumPy draws for a tensor in each step."""
    torch = source.spelt("torch")
    if torch is None:
        raise NotHere
    found = Change()
    for call in source.calls:
        if training_loop(source, call) is None or isinstance(source.parent(call), cst.Attribute):
            continue
        if wanted.lines and not any(source.covers(call, line) for line in wanted.lines):
            continue
        new = _drawn(source, call, torch)
        if new is not None:
            found.replace(call, cst.parse_expression(new))
    if not found.edits:
        raise NotHere
    found.notes.append("The numbers are others than before; torch.manual_seed() repeats them.")
    return found


def _drawn(source: Source, call: cst.Call, torch: str) -> str | None:
    """Return how torch draws it; ``None``: it is nothing of the kind."""
    device, single, at = None, False, call
    while isinstance(at.func, cst.Attribute) and isinstance(at.func.value, cst.Call):
        method = at.func.attr.value
        if method == "cuda" and not at.args:
            device = '"cuda"'
        elif method == "to" and len(at.args) == 1 and at.args[0].keyword is None:
            device = source.code(at.args[0].value)
        elif method == "float" and not at.args:
            single = True
        else:
            return None
        at = at.func.value
    if not source.means(at.func, *_TO_TORCH) or not at.args:
        return None
    dtype = argument(at, "dtype")
    if dtype is not None:
        single = single or source.means(dtype.value, "torch.float32", "torch.float")
    numbers = at.args[0].value
    if isinstance(numbers, cst.Call) and isinstance(numbers.func, cst.Attribute):
        if numbers.func.attr.value == "astype" and len(numbers.args) == 1:
            single = single or source.means(numbers.args[0].value, "numpy.float32")
            numbers = numbers.func.value
    name = _name(source, numbers)
    if name is None or not isinstance(numbers, cst.Call):
        return None
    where = source.line(call)
    if device is None or not single:
        raise Refused("where it goes, and in which precision, is said elsewhere", where)
    size = _size(source, numbers, name)
    if size is None:
        raise Refused("it is drawn from another distribution than the plain one", where)
    return f"{torch}.{_KINDS[name][1]}({size}, device={device})"


def _name(source: Source, numbers: cst.BaseExpression) -> str | None:
    """Return the kind of numbers that NumPy draws here."""
    if not isinstance(numbers, cst.Call) or not isinstance(numbers.func, cst.Attribute):
        return None
    name = numbers.func.attr.value
    if name not in _KINDS:
        return None
    if source.imported(numbers.func) == f"numpy.random.{name}":
        return name
    try:
        made = source.value(numbers.func.value)
    except KeyError:
        return None
    is_made = isinstance(made, cst.Call) and source.means(made.func, *_MAKERS)
    return name if is_made and _KINDS[name][0] is not None else None


def _size(source: Source, numbers: cst.Call, name: str) -> str | None:
    place, _ = _KINDS[name]
    if place is None:
        plain = all(arg.keyword is None and not arg.star for arg in numbers.args)
        return ", ".join(source.code(a.value) for a in numbers.args) if plain else None
    size = argument(numbers, "size", place)
    others = [arg for arg in numbers.args if arg is not size]
    if size is None or any(not _is_float32(source, arg) for arg in others):
        return None
    if isinstance(size.value, cst.Tuple) and size.value.elements:
        return ", ".join(source.code(x.value) for x in size.value.elements)
    return source.code(size.value)


def _is_float32(source: Source, arg: cst.Arg) -> bool:
    named = arg.keyword is not None and arg.keyword.value == "dtype"
    return named and source.means(arg.value, "numpy.float32")


codemod = Codemod(
    title="The numbers are drawn on the device",
    rules=("host_random_numbers",),
    change=change,
    changes_numbers=True,
)

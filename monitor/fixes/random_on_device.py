"""Random numbers of a batch are drawn on the device: others than before, so only where allowed."""

from __future__ import annotations

import ast
from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import argument
from whyidle.monitor.code.source import arguments
from whyidle.monitor.fixes._change import Change, NotHere, Refused
from whyidle.monitor.fixes._codemod import Codemod, Wanted

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
    found = Change(source)
    for call in source.calls:
        is_whole = not isinstance(source.parent(call), ast.Attribute)
        if not is_whole or source.training_loop(call) is None or not wanted.fits(source, call):
            continue
        new = _drawn(source, call, torch)
        if new is not None:
            found.replace(call, new)
    found.notes.append("The numbers are others than before; torch.manual_seed() repeats them.")
    return found


def _drawn(source: Source, call: ast.Call, torch: str) -> str | None:
    """Return how torch draws it; ``None``: it is nothing of the kind."""
    device, single, at = None, False, call
    while isinstance(at.func, ast.Attribute) and isinstance(at.func.value, ast.Call):
        match at.func.attr, arguments(at):
            case "cuda", []:
                device = '"cuda"'
            case "to", [to] if at.args:
                device = source.code(to)
            case "float", []:
                single = True
            case _:
                return None
        at = at.func.value
    if not source.means(at.func, *_TO_TORCH) or not at.args:
        return None
    single = single or source.means(argument(at, "dtype"), "torch.float32", "torch.float")
    numbers = at.args[0]
    if isinstance(numbers, ast.Call) and isinstance(numbers.func, ast.Attribute):
        if numbers.func.attr == "astype" and len(arguments(numbers)) == 1:
            single = single or source.means(arguments(numbers)[0], "numpy.float32")
            numbers = numbers.func.value
    name = _name(source, numbers)
    if name is None or not isinstance(numbers, ast.Call):
        return None
    if device is None or not single:
        raise Refused("where it goes, and in which precision, is said elsewhere", call)
    size = _size(source, numbers, name)
    if size is None:
        raise Refused("it is drawn from another distribution than the plain one", call)
    return f"{torch}.{_KINDS[name][1]}({size}, device={device})"


def _name(source: Source, numbers: ast.expr) -> str | None:
    """Return the kind of numbers that NumPy draws here."""
    if not isinstance(numbers, ast.Call) or not isinstance(numbers.func, ast.Attribute):
        return None
    name = numbers.func.attr
    if name not in _KINDS:
        return None
    if source.imported(numbers.func) == f"numpy.random.{name}":
        return name
    made = source.value(numbers.func.value)
    is_made = isinstance(made, ast.Call) and source.means(made.func, *_MAKERS)
    return name if is_made and _KINDS[name][0] is not None else None


def _size(source: Source, numbers: ast.Call, name: str) -> str | None:
    place, _ = _KINDS[name]
    if place is None:
        plain = not numbers.keywords and not any(isinstance(x, ast.Starred) for x in numbers.args)
        return ", ".join(map(source.code, numbers.args)) if plain else None
    size = argument(numbers, "size", place)
    says_more = any(x is not size for x in numbers.args) or not all(
        x.value is size or (x.arg == "dtype" and source.means(x.value, "numpy.float32"))
        for x in numbers.keywords
    )
    if size is None or says_more:
        return None
    if isinstance(size, ast.Tuple) and size.elts:
        return ", ".join(map(source.code, size.elts))
    return source.code(size)


codemod = Codemod(
    title="The numbers are drawn on the device",
    rules=("host_random_numbers",),
    changes_numbers=True,
)

"""A call for each sample of a batch becomes one call over all of them: ``jax.vmap``.

Proved first: that the function does nothing but compute, that the batch is an array and no list,
and that all results are put together at once, which they only can be where they are of one shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import libcst as cst

from whyidle.monitor.fixes._codemod import Change, Codemod, NotHere, Refused, Wanted
from whyidle.monitor.fixes._over import counted, length_of, zipped
from whyidle.monitor.fixes._pieces import inside
from whyidle.monitor.fixes._pure import Purity
from whyidle.monitor.fixes._source import Source

_STACKS: Final = ("jax.numpy.stack", "jax.numpy.array", "jax.numpy.asarray")
_ARRAYS: Final = ("jax.Array", "jax.numpy.ndarray", "numpy.ndarray")
_MAKES: Final = ("jax.numpy.", "jax.random.", "numpy.", "jax.device_put")


def change(source: Source, wanted: Wanted) -> Change:
    """Map the first such loop that was found."""
    why: Refused | None = None
    for call in source.calls:
        loop = _samples(source, call)
        if loop is None:
            continue
        if wanted.lines and not any(source.covers(call, line) for line in wanted.lines):
            continue
        try:
            return _mapped(source, call, loop)
        except Refused as refused:
            why = why or refused
    raise why or NotHere


def _samples(source: Source, call: cst.Call) -> cst.ListComp | cst.GeneratorExp | None:
    """Return the loop whose results are stacked or added."""
    if len(call.args) != 1 or call.args[0].star or call.args[0].keyword is not None:
        return None
    if not (source.means(call.func, *_STACKS) or source.means(call.func, "sum")):
        return None
    loop = call.args[0].value
    if not isinstance(loop, cst.ListComp | cst.GeneratorExp) or not isinstance(loop.elt, cst.Call):
        return None
    return loop


def _mapped(source: Source, call: cst.Call, loop: cst.ListComp | cst.GeneratorExp) -> Change:
    where = source.line(call)
    each, elt = loop.for_in, cst.ensure_type(loop.elt, cst.Call)
    if each.ifs or each.inner_for_in is not None or each.asynchronous:
        raise Refused("samples are left out, or gone through twice", where)
    _check_function(source, elt)
    names, arrays = _over(source, each, elt, where)
    new: cst.CSTNode = elt
    if isinstance(each.target, cst.Name) and _range_of(source, each.iter) is not None:
        number = each.target.value
        replaced = elt.visit(_Samples(names, number))
        new = replaced if isinstance(replaced, cst.CSTNode) else elt
        if number in {x.value for x in inside(new) if isinstance(x, cst.Name)}:
            raise Refused("the number of the sample is used for more than to pick it", where)
    code = source.code(new)
    found = Change()
    vmap = found.spelling(source, "jax.vmap", call)
    text = f"{vmap}(lambda {', '.join(names.values())}: {code})({', '.join(arrays)})"
    if source.means(call.func, "sum"):
        text += ".sum(0)"
        found.notes.append("The sum is taken in another order: last digits may differ.")
    found.replace(call, cst.parse_expression(text))
    return found


def _check_function(source: Source, call: cst.Call) -> None:
    """Refuse a function that may do more than compute, or needs plain numbers."""
    known = source.definition(call.func)
    if not isinstance(known, cst.FunctionDef):
        raise Refused(f"what {source.code(call.func)} does is not seen here", source.line(call))
    if any("static" in source.code(mark) for mark in known.decorators):
        raise Refused("it is compiled for certain values", source.line(known))
    for arg in call.args:
        if any(isinstance(x, cst.Call | cst.NamedExpr | cst.Await) for x in inside(arg.value)):
            raise Refused("an argument is computed for each sample", source.line(call))
    Purity(source).check(known)


def _over(
    source: Source, each: cst.CompFor, elt: cst.Call, where: int
) -> tuple[dict[str, str], list[str]]:
    """Return each array with the name of its sample, and what is mapped over."""
    whole = _range_of(source, each.iter)
    if whole is not None and isinstance(each.target, cst.Name):
        found = [whole, *_picked(elt, each.target.value)]
        order = list(dict.fromkeys(found))
        for name in order:
            _check_array(source, elt, name, where)
        names = {name: source.fresh(f"one_{name}", f"sample_of_{name}") for name in order}
        return names, [name if name == whole else f"{name}[: len({whole})]" for name in order]
    over = zipped(source, each.iter)
    targets = each.target.elements if isinstance(each.target, cst.Tuple) else [each.target]
    plain = [x.value if isinstance(x, cst.Element) else x for x in targets]
    if len(plain) != len(over) or not all(isinstance(x, cst.Name) for x in (*plain, *over)):
        raise Refused("what the loop goes over is not certain", where)
    for array in over:
        _check_array(source, elt, source.code(array), where)
    return {source.code(a): source.code(b) for a, b in zip(over, plain, strict=True)}, [
        source.code(x) for x in over
    ]


def _range_of(source: Source, value: cst.BaseExpression) -> str | None:
    """Return ``x`` of ``range(len(x))`` and ``range(x.shape[0])``."""
    count = counted(source, value)
    of = None if count is None else length_of(source, count)
    return of[0] if of is not None and of[1] == 0 else None


def _picked(elt: cst.Call, number: str) -> Sequence[str]:
    """Return the names that are picked from by the number of the sample."""
    found = []
    for node in inside(elt):
        if isinstance(node, cst.Subscript) and isinstance(node.value, cst.Name):
            if _picks(node, number):
                found.append(node.value.value)
    return found


def _picks(node: cst.Subscript, number: str) -> bool:
    index = node.slice[0].slice
    return (
        len(node.slice) == 1
        and isinstance(index, cst.Index)
        and isinstance(index.value, cst.Name)
        and index.value.value == number
    )


class _Samples(cst.CSTTransformer):
    """Puts the name of a sample in the place of ``x[i]``."""

    def __init__(self, names: dict[str, str], number: str) -> None:
        super().__init__()
        self._names, self._number = names, number

    def leave_Subscript(  # noqa: N802  as LibCST calls it
        self, original_node: cst.Subscript, updated_node: cst.Subscript
    ) -> cst.BaseExpression:
        """Replace one."""
        of = original_node.value
        name = self._names.get(of.value) if isinstance(of, cst.Name) else None
        if name is None or not _picks(original_node, self._number):
            return updated_node
        return cst.Name(name)


def _check_array(source: Source, near: cst.Call, name: str, where: int) -> None:
    """Refuse a batch that may be a list: its samples may have different shapes."""
    uses: list[Any] = [x for x in source.everything if isinstance(x, cst.Name) and x.value == name]
    scope = source.scope(near)
    mine = [x for x in uses if source.scope(x) is scope or scope in (source.scope(x), None)]
    for use in mine or uses:
        try:
            made = source.value(use)
        except KeyError:
            continue
        of = source.imported(made.func) if isinstance(made, cst.Call) else None
        if of is not None and of.startswith(_MAKES):
            return
        places = source.assigned(use)
        for place in places if len(places) == 1 else ():
            if isinstance(place, cst.Param) and place.annotation is not None:
                if source.means(place.annotation.annotation, *_ARRAYS):
                    return
    raise Refused(f"whether {name} is one array, and no list of them, is not certain", where)


codemod = Codemod(
    title="One call for the whole batch",
    rules=("python_loop_over_batch",),
    change=change,
)

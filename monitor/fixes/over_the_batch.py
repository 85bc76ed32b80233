"""A call for each sample of a batch becomes one call over all of them: ``jax.vmap``.

Proved first: that the function does nothing but compute, that the batch is an array and no list,
and that all results are put together at once, which they only can be where they are of one shape.
"""

from __future__ import annotations

import ast
from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import inside, name_of
from whyidle.monitor.fixes._change import Change, Refused
from whyidle.monitor.fixes._codemod import Codemod, Wanted, first_of
from whyidle.monitor.fixes._over import ARRAYS, counted, length_of, zipped
from whyidle.monitor.fixes._pure import Purity

_STACKS: Final = ("jax.numpy.stack", "jax.numpy.array", "jax.numpy.asarray")
_MAKES: Final = ("jax.numpy.", "jax.random.", "numpy.", "jax.device_put")


def change(source: Source, wanted: Wanted) -> Change:
    """Map the first such loop that was found."""
    calls = [call for call in source.calls if wanted.fits(source, call)]
    some = [(call, *loop) for call in calls if (loop := _samples(source, call)) is not None]
    return first_of(some, lambda each: _mapped(source, *each))


def _samples(source: Source, call: ast.Call) -> tuple[ast.Call, list[ast.comprehension]] | None:
    """Return what is called for each sample, and the loop whose results are stacked or added."""
    match call:
        case ast.Call(
            args=[
                ast.ListComp(elt=ast.Call() as elt, generators=loops)
                | ast.GeneratorExp(elt=ast.Call() as elt, generators=loops)
            ],
            keywords=[],
        ) if source.means(call.func, *_STACKS, "sum"):
            return elt, loops
        case _:
            return None


def _mapped(
    source: Source, call: ast.Call, elt: ast.Call, loops: list[ast.comprehension]
) -> Change:
    each = loops[0]
    if each.ifs or len(loops) > 1 or each.is_async:
        raise Refused("samples are left out, or gone through twice", call)
    _check_function(source, elt)
    names, arrays = _over(source, each, elt, call)
    code = source.code(elt)
    if _range_of(source, each.iter) is not None and isinstance(each.target, ast.Name):
        picked = _picked(elt, each.target.id)
        mine = {x for node in picked for x in inside(node)}
        for node in inside(elt):
            if isinstance(node, ast.Name) and node.id == each.target.id and node not in mine:
                raise Refused("the number of the sample is used for more than to pick it", call)
        code = source.code_with(elt, {node: names[name_of(node.value)] for node in picked})
    found = Change(source)
    vmap = found.spelling("jax.vmap", call)
    text = f"{vmap}(lambda {', '.join(names.values())}: {code})({', '.join(arrays)})"
    if source.means(call.func, "sum"):
        text += ".sum(0)"
        found.notes.append("The sum is taken in another order: last digits may differ.")
    found.replace(call, text)
    return found


def _check_function(source: Source, call: ast.Call) -> None:
    """Refuse a function that may do more than compute, or needs plain numbers."""
    known = source.defined(call.func)
    if known is None:
        raise Refused(f"what {source.code(call.func)} does is not seen here", call)
    if any("static" in source.code(mark) for mark in known.decorator_list):
        raise Refused("it is compiled for certain values", known)
    for node in inside(*call.args, *call.keywords):
        if isinstance(node, ast.Call | ast.NamedExpr | ast.Await):
            raise Refused("an argument is computed for each sample", call)
    Purity(source).check(known)


def _over(
    source: Source, each: ast.comprehension, elt: ast.Call, where: ast.AST
) -> tuple[dict[str, str], list[str]]:
    """Return each array with the name of its sample, and what is mapped over."""
    whole = _range_of(source, each.iter)
    if whole is not None and isinstance(each.target, ast.Name):
        order = dict.fromkeys([whole, *(name_of(x.value) for x in _picked(elt, each.target.id))])
        for name in order:
            _check_array(source, elt, name, where)
        names = {name: source.fresh(f"one_{name}", f"sample_of_{name}") for name in order}
        return names, [name if name == whole else f"{name}[: len({whole})]" for name in order]
    over = zipped(source, each.iter)
    plain = each.target.elts if isinstance(each.target, ast.Tuple) else [each.target]
    if len(plain) != len(over) or not all(isinstance(x, ast.Name) for x in (*plain, *over)):
        raise Refused("what the loop goes over is not certain", where)
    for array in over:
        _check_array(source, elt, source.code(array), where)
    return {source.code(a): source.code(b) for a, b in zip(over, plain, strict=True)}, [
        source.code(x) for x in over
    ]


def _range_of(source: Source, value: ast.expr) -> str | None:
    """Return ``x`` of ``range(len(x))`` and ``range(x.shape[0])``."""
    count = counted(source, value)
    of = None if count is None else length_of(source, count)
    return of[0] if of is not None and of[1] == 0 else None


def _picked(elt: ast.Call, number: str) -> list[ast.Subscript]:
    """Return what is picked by the number of the sample: ``x[i]``."""
    return [
        node
        for node in inside(elt)
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and isinstance(node.slice, ast.Name)
        and node.slice.id == number
    ]


def _check_array(source: Source, near: ast.Call, name: str, where: ast.AST) -> None:
    """Refuse a batch that may be a list: its samples may have different shapes."""
    owner = source.scope(near).owner(name)
    places = [] if owner is None else owner.given[name]
    one = places[0] if len(places) == 1 else None
    made = None if one is None or source.is_shared(one) else source.set_to(one)
    of = source.imported(made.func) if isinstance(made, ast.Call) else None
    is_said = isinstance(one, ast.arg) and source.means(one.annotation, *ARRAYS)
    if not is_said and not (of or "").startswith(_MAKES):
        raise Refused(f"whether {name} is one array, and no list of them, is not certain", where)


codemod = Codemod(title="One call for the whole batch", rules=("python_loop_over_batch",))

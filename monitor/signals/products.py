"""In which types the compiled programs of JAX multiply matrices and convolve.

Arrays that are alive show only what goes in and comes out: a function may compute in another type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from whyidle.monitor.signals.window import Window

DOUBLE: Final = ("f64", "c128")
_FLOATING: Final = re.compile(r"b?f\d+.*|c\d+")
# What does less of the largest one's work hardly decides how long a step takes.
SMALL: Final = 0.1


class Doubles(NamedTuple):
    """What part of the products is of float64."""

    # In the program that has least of it: which one runs most is not known.
    least: float
    share: float
    programs: int


def doubles(window: Window) -> Doubles | None:
    """Return the part by the programs' work; ``None`` where no product of floats is known."""
    programs = window.fact("largest_executables")
    known = programs if isinstance(programs, list | tuple) else ()
    rows = [
        (program, part)
        for program in known
        if isinstance(program, Mapping)
        for part in (_part(program),)
        if part is not None
    ]
    if not rows:
        return None
    work = _work([program for program, _ in rows])
    whole = sum(work)
    main = [part for (_, part), each in zip(rows, work, strict=True) if each >= SMALL * max(work)]
    share = sum(part * each for (_, part), each in zip(rows, work, strict=True)) / whole
    return Doubles(min(main), share, len(main))


def double_share(
    kinds: Mapping[str, float], floating: re.Pattern[str], double: Iterable[str]
) -> float | None:
    """Return what part of the numbers of these types, of those that float, is of double ones."""
    found = {name: n for name, n in kinds.items() if floating.fullmatch(str(name))}
    whole = sum(found.values())
    return sum(found.get(name, 0) for name in double) / whole if whole else None


def _part(program: Mapping[str, Any]) -> float | None:
    products = program.get("products") or {}
    return double_share(products, _FLOATING, DOUBLE)


def _work(programs: list[Mapping[str, Any]]) -> list[float]:
    """Return flops; the numbers of products where a program, often the largest, has no flops."""
    flops = [float(program.get("flops") or 0) for program in programs]
    # Those of a loop's body are counted once, but so they are in the number of products.
    return flops if all(flops) else [float(sum(p["products"].values())) for p in programs]

"""In which types the compiled programs of JAX multiply matrices and convolve.

Arrays that are alive show only what goes in and comes out: a function may compute in another type.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from whyidle.monitor.core.amounts import LITTLE
from whyidle.monitor.signals.window import Window

DOUBLE: Final = ("f64", "c128")
_FLOATING: Final = re.compile(r"b?f\d+.*|c\d+")


class Doubles(NamedTuple):
    """What part of the products is of float64."""

    # In the program that has least of it: which one runs most is not known.
    least: float
    share: float
    programs: int


def doubles(window: Window) -> Doubles | None:
    """Return the part by the programs' work; ``None`` where no product of floats is known."""
    programs = window.fact("largest_executables")
    rows = [
        (program, part)
        for program in (programs if isinstance(programs, list | tuple) else ())
        if isinstance(program, Mapping)
        if (part := double_share(program.get("products") or {}, _FLOATING, DOUBLE)) is not None
    ]
    if not rows:
        return None
    # By flops; by the number of products where a program, often the largest, has no flops. Those of
    # a loop's body are counted once, but so they are in the number of products.
    work = [float(program.get("flops") or 0) for program, _ in rows]
    if not all(work):
        work = [float(sum(program["products"].values())) for program, _ in rows]
    parts = [part for _, part in rows]
    main = [part for part, each in zip(parts, work, strict=True) if each >= LITTLE * max(work)]
    share = sum(map(operator.mul, parts, work)) / sum(work)
    return Doubles(min(main), share, len(main))


def double_share(
    kinds: Mapping[str, float], floating: re.Pattern[str], double: Iterable[str]
) -> float | None:
    """Return what part of the numbers of these types, of those that float, is of double ones."""
    found = {name: n for name, n in kinds.items() if floating.fullmatch(str(name))}
    whole = sum(found.values())
    return sum(found.get(name, 0) for name in double) / whole if whole else None

"""Why a function was traced again: what differs from the earlier times.

JAX can explain that itself (``jax_explain_cache_misses``), but where its explanation fails, the
exception reaches the job's call; TensorFlow only names what it could be. So we compare the types of
the arguments ourselves.
"""

from __future__ import annotations

from .wire import LONGEST_REASON

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    # What the hook notes: the function's name and location, a weak reference to it, its arguments'
    # names, and their types.
    Traced = tuple[Any, Any, Any, Any]
    # One earlier time: the reference, and the types as words.
    Time = tuple[Any, tuple[str, ...]]

# Functions that are remembered, and earlier times of each.
MOST_FUNCTIONS = 500
MOST_TIMES = 4
# Arguments that are compared, and shown.
MOST_ARGUMENTS = 4000
MOST_SHOWN = 3

ANEW = "the function is made anew each time, so that nothing of it is found again"
ITS_OWN = "JAX's own operation, called with other shapes or settings"
OTHER = (
    "all arguments are as before: a static argument, a sharding or a setting of JAX changed, or "
    "its caches were cleared"
)


class Retraces:
    """Remembers the types of the arguments of each function, as words."""

    def __init__(self, folder: str = "\0", other: str = OTHER) -> None:
        # Where JAX lies.
        self._folder = folder
        # What may have changed where no argument has.
        self._other = other
        self._functions: dict[str, list[Time]] = {}

    def reason(self, traced: Traced) -> str | None:
        """Return why it was traced; ``None`` the first time."""
        place, function, names, avals = traced
        types = tuple(map(_words, list(avals or ())[:MOST_ARGUMENTS]))
        before = self._functions.get(str(place))
        if before is None:
            if len(self._functions) >= MOST_FUNCTIONS:
                self._functions.clear()
            self._functions[str(place)] = [(function, types)]
            return None
        if any(types == each for _, each in before):
            why = self._same(str(place), function, before)
        else:
            why = _why(types, names, before)
        before.append((function, types))
        del before[:-MOST_TIMES]
        return why[:LONGEST_REASON]

    def _same(self, place: str, function: Any, before: list[Time]) -> str:
        if f" at {self._folder}" in place:
            # JAX makes a function for each variant of its operations.
            return ITS_OWN
        # While a function lives, there is one weak reference to it.
        known = function is None or any(function is one for one, _ in before)
        return self._other if known else ANEW


def _why(types: tuple[str, ...], names: Any, before: list[Time]) -> str:
    # The nearest: with the same number of arguments, the latest with the fewest that differ.
    alike = [each for _, each in before if len(each) == len(types)]
    if not alike:
        return f"now {len(types)} arrays as arguments, and before {len(before[-1][1])}"
    differs = min((_differing(types, each) for each in reversed(alike)), key=len)
    shown = [
        f"at {_name(names, number)}: now {now}, before {was}"
        for number, now, was in differs[:MOST_SHOWN]
    ]
    more = len(differs) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def _differing(now: tuple[str, ...], before: tuple[str, ...]) -> list[tuple[int, str, str]]:
    return [(i, one, two) for i, (one, two) in enumerate(zip(now, before)) if one != two]


def _name(names: Any, number: int) -> str:
    """Return the argument's name, as ``params['w']``."""
    known = isinstance(names, (tuple, list)) and number < len(names) and names[number]
    return str(known) if known else f"argument {number + 1}"


def _words(aval: Any) -> str:
    if type(aval) is str:
        return aval
    shape = getattr(aval, "shape", None)
    if not isinstance(shape, tuple):
        return str(type(aval).__name__)
    weak = " (weak)" if getattr(aval, "weak_type", False) else ""
    return f"{getattr(aval, 'dtype', '?')}[{','.join(map(str, shape))}]{weak}"

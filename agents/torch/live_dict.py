"""Changing a dict of the job's that its threads may be iterating over at this moment.

An iterator over an ``OrderedDict`` fails at its next step when the dict has changed meanwhile, but
not when that was its last. So a change is safe while there is one item at most; or while nobody
else holds the dict, as every iterator does. The check and the change are made within one call of C:
no thread of the job's runs in between.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import compress, starmap
from operator import delitem, setitem
from sys import getrefcount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


def add(names: dict[str, Any], name: str, key: Any, value: Any) -> bool:
    """Add an item at the end of the dict of that name; returns whether that was possible."""
    return _change(names, name, setitem, key, value)


def remove(names: dict[str, Any], name: str, key: Any) -> bool:
    """Remove an item of the dict; returns whether that was possible."""
    return _change(names, name, delitem, key)


def _change(names: dict[str, Any], name: str, act: Callable[..., Any], *args: Any) -> bool:
    looks: tuple[tuple[int, Callable[[Any], int]], ...] = (1, len), (_alone(), getrefcount)
    for most, look in looks:
        wanted, found = _prepared(names, name, look, args)
        if list(starmap(act, compress(wanted, map(most.__ge__, found)))):
            return True
    return False


def _prepared(
    names: dict[str, Any], name: str, look: Callable[[Any], int], args: tuple[Any, ...]
) -> tuple[Iterator[tuple[Any, ...]], Iterator[int]]:
    """Return iterators that find the dict, and that check it; neither holds it before."""
    find, place = names.__getitem__, (name,)
    return zip(map(find, place), *((each,) for each in args)), map(look, map(find, place))


def _alone() -> int:
    """Return how many references this counts to a dict that only its module holds."""
    wanted, found = _prepared({"": OrderedDict()}, "", getrefcount, ())
    _held = next(wanted)
    return next(found)

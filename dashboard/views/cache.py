"""A cache of answers by question: what has not changed is not computed again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Final, TypeVar

# Enough for a few open pages with many lines.
MOST_KEPT: Final = 256

_T = TypeVar("_T")
# The reader comes first: another store may have a run of the same number.
Question = tuple[Hashable, ...]
_LOCK: Final = Lock()
_KEPT: Final[OrderedDict[Question, Any]] = OrderedDict()


def remember(question: Question, answer: Callable[[], _T]) -> _T:
    """Return the cached answer to this question, or compute and cache it."""
    with _LOCK:
        if question in _KEPT:
            _KEPT.move_to_end(question)
            known: _T = _KEPT[question]
            return known
    # Outside the lock: two threads may compute the same, but none waits for a slow answer.
    found = answer()
    with _LOCK:
        _KEPT[question] = found
        while len(_KEPT) > MOST_KEPT:
            _KEPT.popitem(last=False)
    return found


def forget_others(reader: Hashable) -> None:
    """Drop the answers of other readers: their files are gone."""
    with _LOCK:
        for question in [each for each in _KEPT if each[0] is not reader]:
            del _KEPT[question]

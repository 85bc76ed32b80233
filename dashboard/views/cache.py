"""What was answered last, by its question: what has not changed is not computed again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Final, TypeVar

# What is looked at now: some pages with many lines.
MOST_KEPT: Final = 256

_T = TypeVar("_T")
# Who answers comes first: another file may have a run of the same number.
Question = tuple[Hashable, ...]
_LOCK: Final = Lock()
_KEPT: Final[OrderedDict[Question, Any]] = OrderedDict()


def remember(question: Question, answer: Callable[[], _T]) -> _T:
    """Return what was answered to this question before; else ask, and keep it for a while."""
    with _LOCK:
        if question in _KEPT:
            _KEPT.move_to_end(question)
            known: _T = _KEPT[question]
            return known
    # Not under the lock: two that ask at once both ask, and nobody waits for a slow answer.
    found = answer()
    with _LOCK:
        _KEPT[question] = found
        while len(_KEPT) > MOST_KEPT:
            _KEPT.popitem(last=False)
    return found


def forget_others(reader: Hashable) -> None:
    """Drop what other readers answered: their file is gone, and nobody asks of it again."""
    with _LOCK:
        for question in [each for each in _KEPT if each[0] is not reader]:
            del _KEPT[question]

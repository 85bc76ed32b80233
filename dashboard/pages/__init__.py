"""The pages, one file each: they ask ``views`` and draw with ``figures``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from whyidle.dashboard.frame import Shown
from whyidle.dashboard.pages import compare, fix, memory, now, timeline

# By the end of the address, in the order of the questions that a person has.
PAGES: Final[dict[str, tuple[str, Callable[[Shown], None]]]] = {
    "now": (now.TITLE, now.page),
    "memory": (memory.TITLE, memory.page),
    "timeline": (timeline.TITLE, timeline.page),
    "fix": (fix.TITLE, fix.page),
    "compare": (compare.TITLE, compare.page),
}

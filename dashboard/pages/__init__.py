"""The pages, one file each: they read from ``views`` and draw with ``figures``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from whyidle.dashboard.frame import PageState
from whyidle.dashboard.pages import compare, fix, memory, now, timeline, your_code

# By path, in the order in which users ask.
PAGES: Final[dict[str, tuple[str, Callable[[PageState], None]]]] = {
    "now": (now.TITLE, now.page),
    "code": (your_code.TITLE, your_code.page),
    "memory": (memory.TITLE, memory.page),
    "timeline": (timeline.TITLE, timeline.page),
    "fix": (fix.TITLE, fix.page),
    "compare": (compare.TITLE, compare.page),
}

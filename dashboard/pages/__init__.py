"""The pages, one file each: they read from ``views`` and draw with ``figures``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from whyidle.dashboard.frame import PageState
from whyidle.dashboard.pages import compare, fix, fleet, home, memory, now, timeline, your_code
from whyidle.dashboard.views.fleet import is_configured

# By path, in the order in which users ask.
PAGES: Final[dict[str, tuple[str, Callable[[PageState], None]]]] = {
    "now": (now.TITLE, now.page),
    "code": (your_code.TITLE, your_code.page),
    "memory": (memory.TITLE, memory.page),
    "timeline": (timeline.TITLE, timeline.page),
    "fix": (fix.TITLE, fix.page),
    "compare": (compare.TITLE, compare.page),
}


def of_no_run() -> dict[str, tuple[str, Callable[[], None]]]:
    """Return the pages that are about no run in particular."""
    found: dict[str, tuple[str, Callable[[], None]]] = {home.PATH: (home.TITLE, home.page)}
    if is_configured():
        found[fleet.PATH] = fleet.TITLE, fleet.page
    return found

"""What a Julia program's text says: no stack of it is sampled, so its lines have no shares."""

from __future__ import annotations

import re
from typing import Final

from whyidle.monitor.code import source
from whyidle.monitor.core.finding import Place
from whyidle.monitor.signals.window import Window

# Pages name a few lines.
MOST_LINES: Final = 3
# Words in quotes and comments are no code.
_NO_CODE: Final = re.compile(r'"(?:[^"\\]|\\.)*"|#.*')


def is_julia(window: Window) -> bool:
    """Tell whether the job runs Julia, and nothing else that we know."""
    return window.frameworks == ("flux",)


def lines(window: Window, like: re.Pattern[str]) -> tuple[Place, ...]:
    """Return the lines of the job's own script with such code; files that it includes are not read.

    They may be called in every step, or once: nothing but the text is known.
    """
    script = window.fact("script")
    text = source.text_of(script) if isinstance(script, str) else None
    if text is None or not isinstance(script, str):
        return ()
    code = [_NO_CODE.sub("", line) for line in text.splitlines()]
    found = [number for number, line in enumerate(code, 1) if like.search(line)]
    return tuple(Place(script, number, "the script") for number in found[:MOST_LINES])

"""Text from a job, made safe for a screen."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return the text with escapes in place of anything that could control a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)

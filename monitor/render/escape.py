"""Text that comes from a job, made fit for a screen."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return text that cannot steer a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)

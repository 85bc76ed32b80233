"""Whose line called into JAX: plain words taken on the job's thread, judged on the agent's."""

from __future__ import annotations

from ..wire import LONGEST_FILE, LONGEST_NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    from ..code_owner import CodeOwner

    Line = tuple[str, int | None, str]

# Lines outside of JAX: a library of layers calls through a few of its own.
MOST_LINES = 16
# Frames that are looked at.
MOST_FRAMES = 300


def lines(frame: FrameType | None, skipped: str) -> list[Line]:
    """Return the lines from a frame out that are not in a folder; runs on the job's threads."""
    found: list[Line] = []
    looked = 0
    while frame is not None and looked < MOST_FRAMES and len(found) < MOST_LINES:
        code = frame.f_code
        if not code.co_filename.startswith(skipped):
            found.append((code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
        looked += 1
    return found


def users(found: list[Line], owner: CodeOwner) -> list[Any] | None:
    """Return the first line that is the user's own."""
    for file, line, name in found:
        if owner.is_users(file):
            return [file[-LONGEST_FILE:], line or 0, name[:LONGEST_NAME]]
    return None

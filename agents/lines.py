"""The user's line that called into a framework: lines taken on its thread, judged on ours."""

from __future__ import annotations

from .wire import LONGEST_FILE, LONGEST_NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    from .code_owner import CodeOwner

    Line = tuple[str, int | None, str]

# Lines outside of the framework: a library of layers has a few of its own on the way.
MOST_LINES = 16
# Frames that are walked.
MOST_FRAMES = 300


def lines(frame: FrameType | None, skipped: str | tuple[str, ...]) -> list[Line]:
    """Return the lines from a frame out that lie in no such folder; runs on the job's threads."""
    found: list[Line] = []
    walked = 0
    while frame is not None and walked < MOST_FRAMES and len(found) < MOST_LINES:
        code = frame.f_code
        if not code.co_filename.startswith(skipped):
            found.append((code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
        walked += 1
    return found


def users(found: list[Line], owner: CodeOwner) -> list[Any] | None:
    """Return the first line that is the user's own."""
    for file, line, name in found:
        if owner.is_users(file):
            return [file[-LONGEST_FILE:], line or 0, name[:LONGEST_NAME]]
    return None

"""The store as the pages see it: opened once, read only; what is wrong is a page of help."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import streamlit as st

from whyidle.dashboard import settings
from whyidle.dashboard.views.cache import forget_others
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.store import Reader

# No run has it.
_NOBODY: Final = -1


def _is_whole(opened: Reader) -> bool:
    """Tell whether what was opened still answers."""
    try:
        opened.run(_NOBODY)
    except Problem:
        return False
    return True


@st.cache_resource(show_spinner=False, max_entries=2, validate=_is_whole)
def _opened(path: str, device: int, inode: int) -> Reader:
    # Both tell one file from the next; an argument that began with _ would not count.
    del device, inode
    opened = Reader.open(Path(path))
    forget_others(opened)
    return opened


def reader() -> Reader:
    """Return the store, opened. A ``Problem`` says what to type where it cannot be read."""
    path = settings.current().store
    try:
        # A file that took the place of another has another number while we hold that one open.
        found = path.stat()
    except FileNotFoundError:
        raise Problem(
            f"Nothing is recorded yet: there is no {path}.", "monitor attach PID"
        ) from None
    except OSError as error:
        what = f"{path} cannot be read: {error.strerror}."
        raise Problem(what, "Read it as the user who recorded it.") from error
    return _opened(str(path), found.st_dev, found.st_ino)

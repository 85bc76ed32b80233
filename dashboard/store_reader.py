"""The store as pages see it: opened once, read-only; a failure becomes a page of help."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import streamlit as st

from whyidle.dashboard import settings
from whyidle.dashboard.views.cache import forget_others
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.store import Reader

# The id of no run.
_NOBODY: Final = -1


def _is_whole(opened: Reader) -> bool:
    """Return whether the open store still answers."""
    try:
        opened.run(_NOBODY)
    except Problem:
        return False
    return True


@st.cache_resource(show_spinner=False, max_entries=2, validate=_is_whole, on_release=Reader.close)
def _opened(path: str, device: int, inode: int) -> Reader:
    # Both identify the file; Streamlit would ignore arguments that begin with _.
    del device, inode
    opened = Reader.open(Path(path))
    forget_others(opened)
    return opened


def reader() -> Reader:
    """Return the open store. A ``Problem`` says what to type if it cannot be read."""
    path = settings.current().store
    try:
        # A replaced file has another inode, since we hold the old one open.
        found = path.stat()
    except FileNotFoundError:
        raise Problem(
            f"Nothing is recorded yet: there is no {path}.", "monitor attach PID"
        ) from None
    except OSError as error:
        what = f"{path} cannot be read: {error.strerror}."
        raise Problem(what, "Read it as the user who recorded it.") from error
    return _opened(str(path), found.st_dev, found.st_ino)

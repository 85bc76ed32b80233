"""Where recordings live: WHYIDLE_STATE_DIR, else $XDG_STATE_HOME/whyidle, else ~/.local/state."""

from __future__ import annotations

import os
from pathlib import Path

from whyidle.monitor.core.errors import StorageProblem

VARIABLE = "WHYIDLE_STATE_DIR"
DATABASE = "whyidle.db"


def state_dir() -> Path:
    """Return the folder; it may not exist yet."""
    if named := os.environ.get(VARIABLE):
        return Path(named).expanduser().absolute()
    if base := os.environ.get("XDG_STATE_HOME"):
        return Path(base) / "whyidle"
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  Path.home() raises where this gives "~"
    if not home.is_absolute() or not home.is_dir():
        raise StorageProblem(
            "There is no home folder to keep recordings in.",
            f"Name a folder of your own: export {VARIABLE}=/tmp/whyidle",
        )
    return home / ".local" / "state" / "whyidle"


def database() -> Path:
    """Return the path of the store."""
    return state_dir() / DATABASE

"""Where recordings live: WHYIDLE_STATE_DIR, else $XDG_STATE_HOME/whyidle, else ~/.local/state.

By sudo a command has those of the user who typed it, and what it makes there belongs to that user:
a job that only root may enter is recorded as root, and looked at as everybody looks at theirs.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
from itertools import takewhile
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
    user = _typed_sudo()
    # Path.home() raises where this gives "~".
    home = Path(os.path.expanduser("~") if user is None else user.pw_dir)  # noqa: PTH111
    if not home.is_absolute() or not home.is_dir():
        raise StorageProblem(
            "There is no home folder to keep recordings in.",
            f"Name a folder of your own: export {VARIABLE}=/tmp/whyidle",
        )
    return home / ".local" / "state" / "whyidle"


def database() -> Path:
    """Return the path of the store."""
    return state_dir() / DATABASE


def as_root(words: str) -> str:
    """Return the line that runs a command as root, with the recordings of who types it."""
    named = {VARIABLE, "XDG_STATE_HOME"} & os.environ.keys()
    kept = f"{VARIABLE}={shlex.quote(str(state_dir()))} " if named else ""
    return f'sudo {kept}"$(command -v monitor)" {words}'


def hand_over() -> None:
    """Give what root has made among the recordings of a user to that user. Never raises."""
    user = _typed_sudo()
    if user is None:
        return
    with contextlib.suppress(OSError):
        folder = state_dir()
        made = list(takewhile(lambda place: place.stat().st_uid == 0, (folder, *folder.parents)))
        above = made[-1].parent if made else folder
        # A service's own folder, say: it is nobody's home.
        if above.stat().st_uid != user.pw_uid:
            return
        for place in made:
            os.chown(place, user.pw_uid, user.pw_gid, follow_symlinks=False)
        for _, folders, files, handle in os.fwalk(folder):
            for name in (*folders, *files):
                found = os.stat(name, dir_fd=handle, follow_symlinks=False)
                # A second name would be one of a file elsewhere.
                if found.st_uid == 0 and (name in folders or found.st_nlink == 1):
                    os.chown(name, user.pw_uid, user.pw_gid, dir_fd=handle, follow_symlinks=False)


def _typed_sudo() -> pwd.struct_passwd | None:
    """Return the user who became root by sudo for this command."""
    number = os.environ.get("SUDO_UID", "")
    if os.geteuid() != 0 or not number.isdecimal() or int(number) == 0:
        return None
    with contextlib.suppress(KeyError, OverflowError):
        return pwd.getpwuid(int(number))
    return None

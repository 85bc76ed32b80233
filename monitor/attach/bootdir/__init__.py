"""What `monitor run` puts on a job's PYTHONPATH: a copy of ``sitecustomize.py``, and the agent."""

from __future__ import annotations

import ast
import atexit
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from whyidle.agents import wire
from whyidle.monitor.attach.answers import RUN
from whyidle.monitor.attach.payload import payload
from whyidle.monitor.core.errors import StorageProblem
from whyidle.monitor.core.paths import state_dir

# How long an agent stays without a client: the recording of the job begins with the job.
GRACE_SECONDS = 30
# A job that runs for longer may still start Pythons; then they go without the agent.
KEEP_SECONDS = 30 * 24 * 3600.0
_ENTRY, _AGENT = "sitecustomize.py", "agent.py"
# What the agent needs of Python is imported with the job's own import, not by a thread beside it: a
# child forked in the middle would keep half a module for good.
_FIRST = """\
for name in {names}:
    try:
        __import__(name)
    except Exception:
        pass
"""
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def make(agent: str | None = None) -> Path | None:
    """Return the folder, new or existing; ``None`` where none can be made: the job goes without."""
    if agent is None:
        first = _FIRST.format(names=needed(Path(wire.__file__).parent))
        agent = first + payload({"method": RUN, "grace": GRACE_SECONDS})
    entry = Path(__file__).with_name(_ENTRY).read_text("utf-8")
    files = {_ENTRY: entry.encode(), _AGENT: agent.encode()}
    with suppress(OSError, StorageProblem):
        boot = state_dir() / "boot"
        # An entry of PYTHONPATH cannot hold a colon.
        if os.pathsep not in str(boot):
            return _kept(boot, files)
    with suppress(OSError):
        return _temporary(files)
    return None


def needed(agents: Path) -> tuple[str, ...]:
    """Return the modules of Python that the agent imports."""
    found = set()
    for path in agents.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                found.add(node.module)
    return tuple(sorted(found))


def _kept(boot: Path, files: Mapping[str, bytes]) -> Path:
    """Return the folder of this content in the state folder, shared by all jobs that have it."""
    for folder in (boot.parent, boot):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_ours(folder)
    kept = boot / hashlib.sha256(b"\0".join(files.values())).hexdigest()[:16]
    if not _is_whole(kept, files):
        _put(kept, files)
    os.utime(kept)
    _drop_old(boot)
    return kept


def _check_ours(folder: Path) -> None:
    """Refuse a folder where somebody else may put what the job would run."""
    found = folder.lstat()
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not ours or found.st_mode & _OTHERS_MAY_WRITE:
        raise PermissionError(f"{folder} is open to others")


def _is_whole(folder: Path, files: Mapping[str, bytes]) -> bool:
    try:
        _check_ours(folder)
        return all((folder / name).read_bytes() == text for name, text in files.items())
    except OSError:
        return False


def _put(folder: Path, files: Mapping[str, bytes]) -> None:
    """Put the folder in its place in one step; what is there instead goes."""
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    aside = folder / "damaged"
    try:
        _fill(new, files)
        with suppress(OSError):
            new.rename(folder)
        # Another `monitor run` may have been faster: then it is there, and whole.
        if not _is_whole(folder, files):
            folder.rename(new / aside.name)
            new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(aside, ignore_errors=True)


def _fill(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, text in files.items():
        file = folder / name
        file.touch(0o600, exist_ok=False)
        file.write_bytes(text)


def _drop_old(boot: Path) -> None:
    """Remove what no job was started with for a long time."""
    limit = time.time() - KEEP_SECONDS
    for folder in boot.iterdir():
        with suppress(OSError):
            if folder.lstat().st_mtime < limit:
                shutil.rmtree(folder, ignore_errors=True)


def _temporary(files: Mapping[str, bytes]) -> Path | None:
    """Return a folder that is removed when the monitor ends."""
    folder = Path(tempfile.mkdtemp(prefix="whyidle-boot-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if os.pathsep in str(folder):
        return None
    _fill(folder, files)
    return folder

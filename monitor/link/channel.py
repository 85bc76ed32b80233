"""An agent's files, found through the job's own root and opened so that no trick of the job works.

A job may be hostile: folders are opened one by one without following links, each file is checked
before it is opened, and everything must belong to the user that the process runs as.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from whyidle.agents import wire
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.link.sweeping import sweep
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_CREDENTIALS = struct.Struct("3i")


class LinkRefused(Problem):
    """Something that cannot be trusted lies where an agent's files should be."""


def _untrusted(pid: int, what: str) -> LinkRefused:
    return LinkRefused(
        f"Process {pid} keeps {what} where an agent's files should lie: it is left alone.",
        f"Watch it from outside: monitor attach {pid} --observe",
    )


@dataclass(frozen=True, slots=True)
class Address:
    """Names of an agent's files, as the job sees them; ``uid`` is its user as we see it."""

    key: ProcessKey
    root: str
    uid: int
    folder: str
    spool: str
    socket: str

    @classmethod
    def of(cls, key: ProcessKey, fs: ProcFs) -> Address | None:
        """Return where the files of a process's agent would be; ``None`` once it is gone."""
        status = fs.fields(f"{key.pid}/status")
        users = status.get("Uid", "").split()
        if len(users) < 2:
            return None
        uid = int(users[1])
        own_pid = int(status.get("NSpid", str(key.pid)).split()[-1])
        return cls(
            key,
            f"{fs.root}/{key.pid}/root",
            uid,
            wire.folder_name(_own_uid(fs.text(f"{key.pid}/uid_map"), uid)),
            wire.spool_name(own_pid),
            wire.socket_name(own_pid),
        )

    def is_there(self) -> bool:
        """Tell whether a socket of its user's is there: cheap, and no reason to trust it."""
        return any(self._is_in(parent) for parent in wire.FOLDERS)

    def _is_in(self, parent: str) -> bool:
        folder = _walk(self, parent)
        if folder is None:
            return False
        try:
            found = os.stat(self.socket, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return False
        finally:
            os.close(folder)
        return stat.S_ISSOCK(found.st_mode) and found.st_uid == self.uid


def _own_uid(uid_map: str | None, uid: int) -> int:
    """Return a user's number inside the process's user namespace."""
    for line in (uid_map or "").splitlines():
        inside, outside, count = (int(word) for word in line.split())
        if outside <= uid < outside + count:
            return inside + uid - outside
    return uid


class Channel:
    """An agent's folder, held open: it stays reachable once the process is gone."""

    def __init__(self, address: Address, folder: int) -> None:
        self.address = address
        self._folder = folder
        self._ours: dict[str, tuple[int, int]] = {}

    @classmethod
    def candidates(cls, address: Address) -> Iterator[Channel]:
        """Yield the folders that an agent of this process may have made, each opened when reached.

        The caller closes each.
        """
        for parent in wire.FOLDERS:
            handle = _walk(address, parent)
            if handle is not None:
                yield cls(address, handle)

    def connect(self, seconds: float) -> socket.socket | None:
        """Return a connection to the process's own agent; ``None`` where none answers."""
        name = self.address.socket
        handle = self._open_checked(
            name, stat.S_ISSOCK, "something that is no socket of its user's"
        )
        if handle is None:
            return None
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            peer.settimeout(seconds)
            # This connects to what was checked, and the path is always short.
            peer.connect(f"/proc/self/fd/{handle}")
            self._check_peer(peer)
        except OSError:
            peer.close()
            return None
        except LinkRefused:
            peer.close()
            raise
        finally:
            os.close(handle)
        peer.setblocking(False)
        return peer

    def open_spool(self) -> int | None:
        """Return the spool's descriptor; ``None`` where there is none."""
        return self.open_file(self.address.spool)

    def open_file(self, name: str) -> int | None:
        """Return a descriptor of one of the agent's files; ``None`` where there is none."""
        handle = self._open_checked(name, stat.S_ISREG, "something that is no file of its user's")
        if handle is None:
            return None
        try:
            return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        finally:
            os.close(handle)

    def remove_leftovers(self) -> None:
        """Remove what a dead process left, unless another one put its own there since."""
        for name, identity in self._ours.items():
            with contextlib.suppress(OSError):
                if _identity(os.lstat(name, dir_fd=self._folder)) == identity:
                    os.unlink(name, dir_fd=self._folder)

    def sweep(self, proc: str) -> None:
        """Remove what other dead processes left; only where pids mean the same to us."""
        sweep(self._folder, self.address.uid, proc)

    def close(self) -> None:
        """Let go of the folder."""
        os.close(self._folder)

    def _open_checked(self, name: str, fits: object, otherwise: str) -> int | None:
        """Return a handle that only names a file, after checking what it is."""
        try:
            handle = os.open(name, _LOOK, dir_fd=self._folder)
        except OSError:
            return None
        found = os.fstat(handle)
        assert callable(fits)  # noqa: S101
        if not fits(found.st_mode) or found.st_uid != self.address.uid:
            os.close(handle)
            raise _untrusted(self.address.key.pid, otherwise)
        self._ours[name] = _identity(found)
        return handle

    def _check_peer(self, peer: socket.socket) -> None:
        raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(raw)
        if pid != self.address.key.pid or uid != self.address.uid:
            raise _untrusted(self.address.key.pid, "a socket of another process")


def _walk(address: Address, parent: str) -> int | None:
    """Open the folder step by step below the process's root; ``None`` where there is none."""
    try:
        handle = os.open(address.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    for name in (*parent.strip("/").split("/"), address.folder):
        above = handle
        try:
            handle = os.open(name, _FOLDER, dir_fd=above)
        except OSError:
            return None
        finally:
            os.close(above)
    found = os.fstat(handle)
    if found.st_uid != address.uid or found.st_mode & 0o077:
        # Anybody may have made a folder of this name in /tmp: an agent would not have taken it.
        os.close(handle)
        return None
    return handle


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino

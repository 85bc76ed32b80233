"""Where a process's agent can be reached: its folder, spool and socket, opened all or none."""

from __future__ import annotations

import os

from .control import Control, is_listening
from .folder import folders
from .spool import Spool
from .trace_files import is_trace
from .wire import TRACE_FILE_SECONDS, socket_name, spool_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .fds import WakePipe
    from .folder import Folder

# An agent that is just beginning has a file before it answers.
STALE_SECONDS = 60.0
_ENDINGS = (".spool", ".sock")


class Endpoint:
    """An open folder with our spool and our socket in it."""

    __slots__ = ("control", "folder", "spool", "spool_path")

    def __init__(self, folder: Folder, wake: WakePipe) -> None:
        pid = os.getpid()
        name = socket_name(pid)
        if is_listening(f"{folder.path}/{name}"):
            # The same pid in another container that shares the folder.
            raise OSError(folder.path)
        folder.clear(name)
        self.folder = folder
        self.spool = Spool(folder, spool_name(pid))
        self.spool_path = f"{folder.path}/{spool_name(pid)}"
        try:
            self.control = Control(folder, name, wake)
        except OSError:
            self.spool.remove()
            raise

    def is_ours(self) -> bool:
        """Tell whether the job has left our descriptors alone."""
        return self.spool.is_ours() and self.control.are_ours()

    def tidy(self) -> None:
        """Remove what killed agents left. One that runs writes every second."""
        for name in filter(is_trace, self.folder.names()):
            if self.folder.age(name) > STALE_SECONDS + TRACE_FILE_SECONDS:
                self.folder.remove(name, self.folder.identity(name))
        stems = {os.path.splitext(n)[0] for n in self.folder.names() if n.endswith(_ENDINGS)}
        for stem in stems:
            old = all(self.folder.age(stem + e) > STALE_SECONDS for e in _ENDINGS)
            if old and not is_listening(f"{self.folder.path}/{stem}.sock"):
                for ending in _ENDINGS:
                    self.folder.remove(stem + ending, self.folder.identity(stem + ending))

    def close(self) -> None:
        """Remove everything, the connections last: their end says that all is done."""
        self.spool.remove()
        self.control.close()
        self.folder.close()

    def drop(self) -> None:
        """Let go of what a fork copied; the files are the parent's."""
        self.control.drop()
        self.spool.close()
        self.folder.close()


def open_endpoint(wake: WakePipe) -> Endpoint | None:
    """Return an endpoint in the first folder that works."""
    return next((found for found in (_try(folder, wake) for folder in folders()) if found), None)


def _try(folder: Folder, wake: WakePipe) -> Endpoint | None:
    try:
        return Endpoint(folder, wake)
    except OSError:
        folder.close()
        return None

"""Run by each Python that a job of `monitor run` starts, whatever its version: do next to nothing.

This file takes itself off sys.path, leaves a hook that waits for jax, torch or tensorflow, and runs
the sitecustomize that would have run without it. It keeps to the syntax of Python 2.7, and imports
nothing that is not there already.
"""

import sys

_FRAMEWORKS = frozenset(("jax", "jaxlib", "torch", "tensorflow"))


def _nameless(function):
    """Take the file's name off a function: a coverage tool must not count it as the job's."""
    function.__code__ = function.__code__.replace(co_filename="<whyidle>")
    return function


class _Hook(object):
    """A finder of modules that waits for the first import of an installed framework."""

    def __init__(self, folder):
        self.names = _FRAMEWORKS
        self.agent = folder + "/agent.py"

    def find_spec(self, name, path=None, target=None):
        """Find nothing; for a framework, what the finders after this one find."""
        if name not in self.names:
            return None
        spec = None
        try:
            if _is_import(name, sys._getframe(1)):
                spec = self.find(name, path, target)
            if spec is not None:
                self.names = frozenset()
                self.leave()
                self.start()
        except Exception:
            pass
        return spec

    def find(self, name, path, target):
        """Ask the other finders, as Python would; one that fails will fail again when it asks."""
        finders = sys.meta_path
        for finder in finders[finders.index(self) + 1 :]:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return spec
        return None

    def leave(self):
        """Leave sys.meta_path, unless another thread may iterate over it: it would skip one."""
        if len(sys._current_frames()) == 1:
            sys.meta_path.remove(self)

    def start(self):
        """Run the agent's text beside this file; it starts a thread of its own."""
        with open(self.agent, "rb") as file:
            text = file.read()
        exec(compile(text, "<whyidle>", "exec"), {"__name__": "_whyidle_boot"})


def _is_import(name, frame):
    """Tell an import from a mere check whether the module exists: importlib.util.find_spec()."""
    for _ in range(16):
        if frame is None:
            break
        if frame.f_code.co_name == "_find_and_load_unlocked" and frame.f_locals["name"] == name:
            return True
        frame = frame.f_back
    return False


def _wait(folder):
    """Install the hook where the agent can run at all."""
    if sys.version_info < (3, 9) or sys.implementation.name != "cpython":
        return
    for function in (_Hook.find_spec, _Hook.find, _Hook.leave, _Hook.start, _is_import):
        _nameless(function)
    hook = _Hook(folder)
    if _FRAMEWORKS.isdisjoint(sys.modules):
        sys.meta_path.insert(0, hook)
    else:
        hook.start()


def _give_way(name):
    """Have Python run the sitecustomize that this one hides; its errors go to the importer."""
    # In Python 2 this module would die with its entry: it is held until the import is done.
    held = sys.modules.pop(name)
    __import__(name)
    del held


if __name__ == "sitecustomize":
    try:
        _here = __file__.rpartition("/")[0]
        while _here in sys.path:
            sys.path.remove(_here)
        sys.path_importer_cache.pop(_here, None)
        _wait(_here)
    except Exception:
        pass
    _give_way(__name__)

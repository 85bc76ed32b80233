"""What a public program gets before its first line: counters of its steps, and torchvision.

The counters are memory that the bench reads; lines of the program, or the end of a call in a
library, add one to them. Torchvision's own build may not fit the torch at hand: its operators are
declared, so that its datasets, transforms and models work without them.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import mmap
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_OPERATORS = (
    "nms", "qnms", "roi_align", "qroi_align", "roi_pool", "ps_roi_align", "ps_roi_pool",
    "deform_conv2d", "_roi_align_backward", "_roi_pool_backward", "_ps_roi_align_backward",
    "_ps_roi_pool_backward", "_deform_conv2d_backward",
)  # fmt: skip
# It seems to stand in the library's own file, so that no sample takes it for a line of the user's.
_COUNTING = """
def counted(original):
    def call(*args, **named):
        try:
            return original(*args, **named)
        finally:
            counter[0] += 1
    return call
"""


def _counter() -> object | None:
    folder = os.environ.get("STRANGERS_TICKS")
    if folder is None:
        return None
    file = os.open(f"{folder}/{os.getpid()}", os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(file, 16)
    view = memoryview(mmap.mmap(file, 16)).cast("Q")
    # Among the builtins a library may look for what it knows: it can be hashed, as a view can not.
    methods = {"__getitem__": view.__getitem__, "__setitem__": view.__setitem__}
    return type("Counter", (), methods)()


class _After:
    """Runs something right after a module was imported."""

    def __init__(self, acts: dict[str, Callable[[ModuleType], None]]) -> None:
        self._acts = acts

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        act = self._acts.pop(name, None)
        if act is None:
            return None
        spec = importlib.util.find_spec(name)
        # Who only asks whether it is there does not import it yet.
        self._acts[name] = act
        if spec is None or spec.loader is None:
            return spec
        runs = spec.loader.exec_module

        def run(module: ModuleType) -> None:
            self._acts.pop(name, None)
            runs(module)
            act(module)

        spec.loader.exec_module = run  # type: ignore[method-assign]
        return spec


def _counts(counter: object, path: str) -> Callable[[ModuleType], None]:
    def patch(module: ModuleType) -> None:
        *owners, name = path.split(".")
        owner = module
        for each in owners:
            owner = getattr(owner, each)
        made: dict[str, object] = {"counter": counter}
        exec(compile(_COUNTING, module.__file__ or "", "exec"), made)
        setattr(owner, name, made["counted"](getattr(owner, name)))  # type: ignore[operator]

    return patch


def _torchvision() -> None:
    """Declare the operators once torch is there."""

    def declare(module: ModuleType) -> None:
        library = module.library.Library("torchvision", "DEF")
        for name in _OPERATORS:
            library.define(f"{name}(Tensor x) -> Tensor")
        _kept.append(library)

    _acts["torch"] = declare


_kept: list[object] = []
_acts: dict[str, Callable[[ModuleType], None]] = {}
_ticks = _counter()
if _ticks is not None:
    builtins.__tick__ = _ticks  # type: ignore[attr-defined]
    _call = os.environ.get("STRANGERS_TICK_CALL", "")
    if _call:
        _module, _, _path = _call.partition(":")
        _acts[_module] = _counts(_ticks, _path)
if os.environ.get("STRANGERS_TORCHVISION"):
    _torchvision()
if _acts:
    sys.meta_path.insert(0, _After(_acts))

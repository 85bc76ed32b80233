"""Which frames are the user's own code, by how profilers name them.

Kineto names a frame ``train.py(45): main`` and cuts off the folder of ``sys.path`` that the file
is in, so a package reads ``torch/nn/functional.py``, as does a package of the user's. JAX keeps
the last part of a path only, ``$train.py:12 main``: there a file is the user's unless a framework
has a file of that name: a missing line is better than a wrong one, and what is left out counts
for the user's frame around it.
"""

from __future__ import annotations

import re
from typing import Final

from whyidle.monitor.libraries.names import FRAMEWORK_FILES, STDLIB_FILES
from whyidle.monitor.libraries.table import PACKAGES
from whyidle.monitor.libraries.users import is_users
from whyidle.monitor.traces.model import Site

_KINETO = re.compile(r"^(.+?)\((\d{1,9})\): (.+)$", re.DOTALL)
_JAX = re.compile(r"^\$(.+?):(\d{1,9}) (.+)$", re.DOTALL)
_NO_FILE: Final = ("$", "<built-in ", "nn.Module: ")
# Wrappers say nothing: what they call is what the user's code called.
_WRAPPER = re.compile(
    r"^\$traceback_util\.py:\d+ "
    r"|^torch/(_compile|utils/_contextlib|autograd/grad_mode)\.py\(\d+\): "
    r"|^torch/_dynamo/eval_frame\.py\(\d+\): _fn$"
    r"|^torch/optim/optimizer\.py\(\d+\): (wrapper|_use_grad)$"
)


def is_frame(name: str) -> bool:
    """Whether a host span is a Python frame worth showing, or a call from Python."""
    if _WRAPPER.match(name):
        return False
    return name.startswith(_NO_FILE) or _KINETO.match(name) is not None


def site_of(name: str) -> Site | None:
    """Return the place that a frame of the user's names; None for any other span."""
    if name.startswith(_NO_FILE):
        found = _JAX.match(name)
        mine = found is not None and _is_users_file(found[1])
    else:
        found = _KINETO.match(name)
        mine = found is not None and is_users(found[1])
    return Site(found[1], int(found[2]), found[3]) if found and mine else None


def site_in(stack: str) -> Site | None:
    """Return the innermost user's frame of a call stack, which begins with the innermost one."""
    return next((site for frame in stack.split(";") if (site := site_of(frame.strip()))), None)


def _is_users_file(file: str) -> bool:
    """Whether a file of this name, its folder unknown, can only be the user's."""
    stem = file.removesuffix(".py")
    if stem.startswith(("_", "<")) or not file.endswith(".py"):
        return False
    return not (stem in FRAMEWORK_FILES or stem in PACKAGES or stem in STDLIB_FILES)

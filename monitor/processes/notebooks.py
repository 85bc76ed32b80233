"""Which notebook a kernel of Jupyter belongs to, by the environment that it was started with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import Final

# Jupyter's server puts the notebook's path there; editors that start kernels themselves do not.
_SESSION: Final = "JPY_SESSION_NAME"
_KERNELS: Final = frozenset({"ipykernel_launcher", "ipykernel", "colab_kernel_launcher"})
_SUFFIX: Final = ".ipynb"


def notebook_of(
    arguments: Sequence[str], environment: Mapping[str, str], folder: str | None
) -> str | None:
    """Return what a person would call a kernel; ``None`` for any other process."""
    if not _is_kernel(arguments):
        return None
    session = PurePath(environment.get(_SESSION, "")).name
    if session.endswith(_SUFFIX):
        return f"notebook {session}"
    return f"a notebook in {PurePath(folder).name or folder}" if folder else "a notebook"


def _is_kernel(arguments: Sequence[str]) -> bool:
    by_module = any(one == "-m" and two in _KERNELS for one, two in pairwise(arguments))
    return by_module or any(PurePath(each).stem in _KERNELS for each in arguments[1:2])

"""TensorFlow's internals: where it lies, and how ours are kept out of its graphs."""

from __future__ import annotations

import os
from contextlib import suppress

from ..modules import loaded, need

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CONTEXT = "tensorflow.python.eager.context"


def folders() -> tuple[str, ...]:
    """Return the folders of TensorFlow and Keras, with a slash."""
    found = []
    for name in ("tensorflow", "keras", "tf_keras"):
        file = (loaded(name) or {}).get("__file__")
        if isinstance(file, str) and "/" in file:
            found.append(os.path.dirname(file) + "/")
    return tuple(found)


def is_eager() -> Callable[[], bool]:
    """Return TensorFlow's function that is false while a graph is built."""
    found: Callable[[], bool] = need(CONTEXT, "executing_eagerly")
    return found


def backend() -> str | None:
    """Return the kind of devices that it computes on; ``None`` before the first use."""
    context = (loaded(CONTEXT) or {}).get("_context")
    devices = list(getattr(context, "_logical_devices", None) or ())
    kinds = {each.device_type for each in devices}
    return next((kind for kind in ("TPU", "GPU", "CPU") if kind in kinds), None)


def dress(ours: Any, theirs: Any) -> Any:
    """Give ours the names of theirs, and tell AutoGraph that there is nothing in it to convert."""
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        with suppress(AttributeError, TypeError):
            setattr(ours, name, getattr(theirs, name))
    # What AutoGraph made itself has this; it is called as it is.
    ours.autograph_info__ = {}
    return ours

"""Where things are in JAX: its clients, its folder, and putting something of ours in its place."""

from __future__ import annotations

import os

from ..modules import Missing, loaded, need

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..hooks import Hooks


def clients() -> dict[str, Any]:
    """Return the clients that the job has made, by platform; none is made for us."""
    found = need("jax._src.xla_bridge", "_backends")
    if not isinstance(found, dict):
        raise Missing("no dict jax._src.xla_bridge._backends")
    return dict(found)


def folder() -> str:
    """Return where JAX lies, with a slash; a path that no file has where that is unknown."""
    file = (loaded("jax") or {}).get("__file__")
    return os.path.dirname(file) + "/" if isinstance(file, str) and "/" in file else "\0"


def own(kind: type, name: str) -> Any:
    """Return what a class itself has under a name, as it lies there."""
    found = vars(kind)
    if name not in found:
        raise Missing(f"no {kind.__module__}.{kind.__qualname__}.{name}")
    return found[name]


def replace_in_module(hooks: Hooks, module: str, name: str, ours: Any) -> None:
    """Put a function of ours in the place of a module's own."""
    names, was = need(module), need(module, name)

    def put_back() -> None:
        # Somebody else may have taken the place since: theirs goes on, through ours.
        if names.get(name) is ours:
            names[name] = was

    hooks.add(put_back)
    names[name] = ours


def replace_in_class(hooks: Hooks, kind: type, name: str, ours: Any) -> None:
    """Put an attribute of ours in the place of a class's own."""
    was = vars(kind)[name]

    def put_back() -> None:
        if vars(kind).get(name) is ours:
            setattr(kind, name, was)

    hooks.add(put_back)
    setattr(kind, name, ours)

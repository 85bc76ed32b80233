"""JAX's internals: its clients, its folder, and replacing a function of its own by one of ours."""

from __future__ import annotations

import os

from ..modules import Missing, loaded, need

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..hooks import Hooks


# The threads that have computed with JAX, and when they last did: read a value, or compiled.
users: dict[int, int] = {}
# The bytes of the constants in compiled programs that are alive, of those examined, by name.
constants: dict[str, int] = {}


def clients() -> dict[str, Any]:
    """Return the clients that the job has made, by platform; this makes none."""
    found = need("jax._src.xla_bridge", "_backends")
    if not isinstance(found, dict):
        raise Missing("no dict jax._src.xla_bridge._backends")
    return dict(found)


def folder() -> str:
    """Return JAX's folder, with a slash; where it is unknown, a path that no file has."""
    file = (loaded("jax") or {}).get("__file__")
    return os.path.dirname(file) + "/" if isinstance(file, str) and "/" in file else "\0"


def own(kind: Any, name: str) -> Any:
    """Return what a class, or an object, itself has under a name, unbound."""
    found = vars(kind)
    if name not in found:
        raise Missing(f"no {kind.__module__}.{getattr(kind, '__qualname__', kind)}.{name}")
    return found[name]


def replace_in_module(hooks: Hooks, module: str, name: str, ours: Any) -> None:
    """Replace a function of a module's by one of ours."""
    names, was = need(module), need(module, name)

    def put_back() -> None:
        # Somebody else may have replaced it since: theirs stays, and calls ours.
        if names.get(name) is ours:
            names[name] = was

    hooks.add(put_back)
    names[name] = ours


def replace_in_class(hooks: Hooks, kind: Any, name: str, ours: Any) -> None:
    """Replace an attribute of a class, or of an object that has it itself, by one of ours."""
    was = vars(kind)[name]

    def put_back() -> None:
        if vars(kind).get(name) is ours:
            setattr(kind, name, was)

    hooks.add(put_back)
    setattr(kind, name, ours)

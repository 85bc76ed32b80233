"""Looks at the job's objects that run no line of their classes."""

from __future__ import annotations

from types import GetSetDescriptorType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# How ``type`` itself reads these of a class, whatever the class of that class says.
_order: Any = vars(type)["__mro__"].__get__
_inside: Any = vars(type)["__dict__"].__get__
_name: Any = vars(type)["__name__"].__get__


def attributes(thing: Any) -> dict[str, Any]:
    """Return what an object keeps, nothing for one that keeps it in another way."""
    owner = definer(type(thing), "__dict__")
    if owner is None:
        return {}
    place = members(owner)["__dict__"]
    found = place.__get__(thing) if type(place) is GetSetDescriptorType else None
    return found if type(found) is dict else {}


def definer(kind: Any, name: str) -> Any:
    """Return the class from which a class has this, ``None`` where none of them does."""
    return next((each for each in _order(kind) if name in _inside(each)), None)


def members(kind: Any) -> Mapping[str, Any]:
    """Return what is written in a class."""
    found: Mapping[str, Any] = _inside(kind)
    return found


def class_name(kind: Any) -> str:
    """Return the name of a class."""
    return str(_name(kind))

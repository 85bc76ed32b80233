"""Reading the job's objects without running a line of their classes."""

from __future__ import annotations

from types import GetSetDescriptorType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# As ``type`` itself reads these of a class, whatever its metaclass defines.
_order: Any = vars(type)["__mro__"].__get__
_inside: Any = vars(type)["__dict__"].__get__
_name: Any = vars(type)["__name__"].__get__


def attributes(thing: Any) -> dict[str, Any]:
    """Return an object's attributes; none for one that has no plain ``__dict__``."""
    owner = definer(type(thing), "__dict__")
    if owner is None:
        return {}
    place = members(owner)["__dict__"]
    found = place.__get__(thing) if type(place) is GetSetDescriptorType else None
    return found if type(found) is dict else {}


def definer(kind: Any, name: str) -> Any:
    """Return the class that defines a name for this class; ``None`` where none does."""
    return next((each for each in _order(kind) if name in _inside(each)), None)


def is_a(kind: Any, base: Any) -> bool:
    """Tell whether a class is another one, or derives from it."""
    return any(each is base for each in _order(kind))


def members(kind: Any) -> Mapping[str, Any]:
    """Return what a class itself defines."""
    found: Mapping[str, Any] = _inside(kind)
    return found


def class_name(kind: Any) -> str:
    """Return the name of a class."""
    return str(_name(kind))

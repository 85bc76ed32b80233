"""The part ``optimizers``: how each that has stepped goes through its parameters, and where.

Torch's own keep two flags in their groups: ``foreach`` (all tensors of a kind in one call) and
``fused`` (all of it in one kernel); ``None`` is torch's own choice.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress

from ..framework import Part
from ..modules import need
from .introspect import attributes, class_name, is_a, members
from .parameters import Getters
from .stepped_optimizers import stepped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The optimizers that are described: those with the most tensors.
MOST = 8
# Tensors of one parameter's state that are looked at.
MOST_OF_STATE = 8
FLAGS = ("foreach", "fused")
HOME = "torch.optim."


class Optimizers(Part):
    """Reads a few plain attributes of each, every few seconds."""

    name = "optimizers"

    def begin(self) -> None:
        """Find torch's getters, and what keeps a class of the user's from noticing our reads."""
        self._ask = Getters()
        self._quiet = need("torch._C", "DisableTorchFunctionSubclass")

    def facts(self) -> dict[str, Any]:
        """Return the largest."""
        known = [each() for each in list(stepped.values())]
        # Only the largest are looked at more closely: one takes 10 us of Python's lock.
        sized = sorted(((_sizes(each), each) for each in known), key=lambda one: -sum(one[0]))
        found = []
        for sizes, optimizer in sized[:MOST]:
            # The job may change it while we look.
            with suppress(Exception), self._quiet():
                if sum(sizes):
                    found.append(self._describe(optimizer, sizes))
        return {"optimizers": found} if found else {}

    def _describe(self, optimizer: Any, sizes: list[int]) -> dict[str, Any]:
        inside, kind = attributes(optimizer), type(optimizer)
        largest = _groups(optimizer)[sizes.index(max(sizes))]
        home = members(kind).get("__module__")
        said: dict[str, Any] = {
            "kind": class_name(kind),
            "of_torch": type(home) is str and home.startswith(HOME),
            "tensors": sum(sizes),
            "device": self._device(largest["params"][:1]),
            "state_device": self._device(_first_state(inside.get("state"))),
        }
        for name in FLAGS:
            value = largest.get(name, "absent")
            said[name] = value if value is None or type(value) is bool else "absent"
        return said

    def _device(self, tensors: list[Any]) -> str | None:
        """Return where the largest is: counters of steps are on the CPU wherever the rest is."""
        known = [each for each in tensors if self._may_ask(type(each))]
        if not known:
            return None
        largest = max(known, key=self._ask.number)
        return str(self._ask.device.__get__(largest)).partition(":")[0]

    def _may_ask(self, kind: Any) -> bool:
        return is_a(kind, self._ask.tensor) and self._ask.may_ask(kind)


def _groups(optimizer: Any) -> list[dict[str, Any]]:
    groups = attributes(optimizer).get("param_groups")
    return [each for each in list(groups) if type(each) is dict] if type(groups) is list else []


def _sizes(optimizer: Any) -> list[int]:
    """Return the number of tensors in each group."""
    them = [group.get("params") for group in _groups(optimizer)]
    return [len(params) if type(params) is list else 0 for params in them]


def _first_state(state: Any) -> list[Any]:
    """Return what is kept beside one of the parameters."""
    if type(state) not in {dict, defaultdict}:
        return []
    first = next(iter(state.values()), None)
    return list(first.values())[:MOST_OF_STATE] if type(first) is dict else []

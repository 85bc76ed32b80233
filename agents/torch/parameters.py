"""The part ``parameters``: what the optimizers update, by number, size, type and device.

A model has many, and reading one takes a microsecond of Python's lock: so a scan reads some of them
each second, and begins again when it is done and something may have changed.
"""

from __future__ import annotations

from contextlib import suppress
from types import GetSetDescriptorType, MethodDescriptorType

from ..framework import Part
from ..modules import Missing, need
from .introspect import attributes, class_name, definer, members
from .stepped_optimizers import stepped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# Parameters that are read in one second, and in all.
MOST_AT_ONCE = 200
MOST = 100_000
# Types may change where numbers do not.
SECONDS_BETWEEN = 60
# Names of types and devices that are told apart.
MOST_NAMES = 16
# How parallel programs keep them.
SHARDED = {"FlatParameter": "FullyShardedDataParallel", "DTensor": "DTensor"}
# The class of torch's own that sees whatever is asked of a tensor, and where it is written.
TORCHS = ("DTensor", "torch.distributed.")


class Getters:
    """Torch's own getters of a tensor: in C, which no class of the user's replaces."""

    def __init__(self) -> None:
        self.number, self.size, self.dtype, self.device = (
            of_c(name) for name in ("numel", "element_size", "dtype", "device")
        )
        self.tensor = need("torch", "Tensor")
        self._parameter = need("torch.nn.parameter", "Parameter")

    def may_ask(self, kind: Any) -> bool:
        """Tell whether the getters run no Python of the user's."""
        if kind is self._parameter or kind is self.tensor:
            return True
        sees = definer(kind, "__torch_dispatch__")
        if sees is None or sees is self.tensor:
            return True
        name, where = TORCHS
        module = members(sees).get("__module__")
        return class_name(sees) == name and type(module) is str and module.startswith(where)


class Tally:
    """What one scan found."""

    def __init__(self) -> None:
        # Those that may not be read.
        self.unseen = 0
        self.number = 0
        self.bytes = 0
        self.dtypes: dict[Any, int] = {}
        self.devices: dict[Any, int] = {}
        self.kinds: set[str] = set()

    def add(self, parameter: Any, ask: Getters) -> None:
        """Count one in."""
        if not ask.may_ask(type(parameter)):
            self.unseen += 1
            return
        kind = class_name(type(parameter))
        if kind in SHARDED:
            self.kinds.add(SHARDED[kind])
        number = int(ask.number(parameter))
        self.number += number
        self.bytes += number * int(ask.size(parameter))
        dtype, device = ask.dtype.__get__(parameter), ask.device.__get__(parameter)
        for names, name in ((self.dtypes, dtype), (self.devices, device)):
            if name in names or len(names) < MOST_NAMES:
                names[name] = names.get(name, 0) + number


class Parameters(Part):
    """Scans the parameters of all optimizers that have stepped."""

    name = "parameters"

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self._shape: list[int] = []
        # How far a scan has come, of how many, and the seconds until the next one.
        self._at = self._end = self._rests = 0
        self._tally = Tally()
        self._done: Tally | None = None

    def begin(self) -> None:
        """Find what keeps a class of the user's from noticing our reads."""
        self._ask = Getters()
        self._quiet = need("torch._C", "DisableTorchFunctionSubclass")

    def second(self, _now: int) -> dict[str, int | None]:
        """Read the next few."""
        groups = [group for optimizer in list(stepped.values()) for group in _groups(optimizer())]
        shape = [len(group) for group in groups]
        self._rests -= 1
        if shape != self._shape or (self._rests < 0 and self._at >= self._end):
            self._begin_anew(shape)
        if self._at < self._end:
            at, self._at = self._at, min(self._at + MOST_AT_ONCE, self._end)
            with self._quiet():
                for parameter in _slice(groups, at, self._at):
                    self._add(parameter)
            if self._at == self._end:
                self._done, self._rests = self._tally, SECONDS_BETWEEN
        return {}

    def facts(self) -> dict[str, Any]:
        """Return what the last whole scan found."""
        done = self._done
        if done is None:
            return {}
        devices = {str(device): number for device, number in done.devices.items()}
        dtypes = {str(dtype).rpartition(".")[2]: n for dtype, n in done.dtypes.items()}
        found: dict[str, Any] = {"dtypes": dtypes, "parameter_devices": devices}
        if not done.unseen:
            found.update({"parameters": done.number, "parameter_bytes": done.bytes})
        if devices:
            found["backend"] = max(devices, key=devices.__getitem__).partition(":")[0]
        if done.kinds:
            found["sharded"] = sorted(done.kinds)
        return found

    def _begin_anew(self, shape: list[int]) -> None:
        self._shape = shape
        self._end = min(sum(shape), MOST)
        self._at = self._rests = 0
        self._tally = Tally()

    def _add(self, parameter: Any) -> None:
        # One without a shape yet raises.
        with suppress(Exception):
            self._tally.add(parameter, self._ask)


def of_c(name: str) -> Any:
    """Return one of the getters; raises Missing where somebody has put Python in its place."""
    found = need("torch", "Tensor", name)
    if type(found) not in {MethodDescriptorType, GetSetDescriptorType}:
        raise Missing(f"torch.Tensor.{name} is not of C")
    return found


def _groups(optimizer: Any) -> list[list[Any]]:
    groups = attributes(optimizer).get("param_groups")
    if type(groups) is not list:
        return []
    found = [group.get("params") for group in list(groups) if type(group) is dict]
    return [params for params in found if type(params) is list]


def _slice(groups: list[list[Any]], begin: int, end: int) -> Iterator[Any]:
    at = 0
    for group in groups:
        yield from group[max(begin - at, 0) : max(end - at, 0)]
        at += len(group)

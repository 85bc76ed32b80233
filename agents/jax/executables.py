"""The compiled programs that are alive: how many of one name, how large, what they are made of.

Each is examined once, its costly part a little at a time. Nothing of a program is kept but figures;
its text (HLO) is never printed whole, since that would hold the job's lock for long.
"""

from __future__ import annotations

from time import monotonic_ns

from ..framework import Part
from ..wire import EXECUTABLES
from .arrays import rounded
from .internals import clients, constants
from .operations import Operations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The agent's time for this in one second.
SECOND_NS = 2_000_000
# A slow call is followed by a pause: examining may take this share of the time.
SHARE = 1 / 400
# Programs that are remembered, and of one name examined; a job that compiles in each step has
# thousands, all alike.
MOST_KNOWN = 4000
MOST_OF_A_NAME = 4
LARGEST = 5
# Computing flops holds the job's lock, about a microsecond an operation.
MOST_FOR_FLOPS = 5000
# Its memory figures are computed from the whole program, without the lock.
MOST_FOR_MEMORY = 60_000
# Of constants fewer bytes in a program are not worth a word.
CONSTANTS = 100_000
SIZES = {
    "argument_bytes": "argument_size_in_bytes",
    "output_bytes": "output_size_in_bytes",
    "aliased_bytes": "alias_size_in_bytes",
    "temporary_bytes": "temp_size_in_bytes",
}


class Executables(Part):
    """The programs that the clients list, and the figures of each."""

    name = "compiled programs"

    def begin(self) -> None:
        """Check that the clients can be found."""
        clients()
        self.hooks.add(constants.clear)
        # By identity: the figures, empty where a program was not examined.
        self._known: dict[tuple[int, Any], dict[str, Any]] = {}
        # Of a few of them.
        self._constants: dict[tuple[int, Any], int] = {}
        self._reading: tuple[tuple[int, Any], Operations] | None = None
        self._rest_until = 0
        self._number: int | None = None

    def second(self, now: int) -> dict[str, int | None]:
        """Count them, and examine some new ones."""
        programs: dict[tuple[int, Any], Any] = {}
        known = clients()
        if not known and self._number:
            # JAX releases them when the job ends: the last figures stand.
            return {}
        for client in known.values():
            for program in client.live_executables():
                programs[id(program), program.fingerprint] = program
        self._number = len(programs)
        if len(self._known) > self._number:
            self._known = {key: self._known[key] for key in self._known if key in programs}
            self._constants = {key: n for key, n in self._constants.items() if key in programs}
        if now >= self._rest_until:
            self._examine(programs, now)
        self._add_constants()
        return {EXECUTABLES: self._number}

    def facts(self) -> dict[str, Any]:
        """Return the largest ones, and the most frequent names."""
        known = [figures for figures in self._known.values() if figures]
        if not known or self._number is None:
            return {}
        names = self._names()
        often = sorted(names, key=names.__getitem__, reverse=True)[:LARGEST]
        measured = [figures for figures in known if "operations" in figures]
        return {
            "executables": rounded(self._number),
            "executables_known": rounded(len(known)),
            "executables_by_name": {name: rounded(names[name]) for name in often},
            "largest_executables": _largest(measured),
            "collectives": sum(figures["collectives"] for figures in measured),
        }

    def _names(self) -> dict[str, int]:
        names: dict[str, int] = {}
        for figures in self._known.values():
            if figures:
                names[figures["name"]] = names.get(figures["name"], 0) + 1
        return names

    def _examine(self, programs: dict[tuple[int, Any], Any], now: int) -> None:
        began = monotonic_ns()
        names = self._names()
        for key, program in programs.items():
            if monotonic_ns() - began >= SECOND_NS:
                break
            if self._reading is not None:
                self._read(programs, began)
            elif key not in self._known and len(self._known) < MOST_KNOWN:
                self._begin(key, program, names)
        if self._reading is not None:
            self._read(programs, began)
        took = monotonic_ns() - began
        self._rest_until = now + (int(took / SHARE) if took > 2 * SECOND_NS else 0)

    def _add_constants(self) -> None:
        """Say what the programs hold that are alive."""
        found: dict[str, int] = {}
        for key, size in self._constants.items():
            if key in self._known:
                name = self._known[key]["name"]
                found[name] = found.get(name, 0) + size
        if found != constants:
            constants.clear()
            constants.update(found)

    def _begin(self, key: tuple[int, Any], program: Any, names: dict[str, int]) -> None:
        modules = program.hlo_modules()
        if not modules:
            self._known[key] = {}
            return
        module = modules[0]
        name = str(module.name)
        self._known[key] = {"name": name}
        names[name] = names.get(name, 0) + 1
        if names[name] <= MOST_OF_A_NAME:
            self._reading = key, Operations(module)

    def _read(self, programs: dict[tuple[int, Any], Any], began: int) -> None:
        """Go on where the last second ended; note the figures once all of it is read."""
        if self._reading is None:
            return
        key, operations = self._reading
        program = programs.get(key)
        if program is None:
            self._reading = None
        elif operations.read(began + SECOND_NS):
            self._reading = None
            self._known[key].update(operations.facts())
            if operations.constant_bytes > CONSTANTS:
                self._constants[key] = operations.constant_bytes
            self._known[key].update(_figures(program, operations.number))


def _largest(measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return those that compute most, and those that move most: a copy of much has no flops."""
    found = sorted(measured, key=_work, reverse=True)[:LARGEST]
    known = {id(figures) for figures in found}
    heavy = sorted(measured, key=_moved, reverse=True)[:LARGEST]
    return found + [figures for figures in heavy if id(figures) not in known and _moved(figures)]


def _work(figures: dict[str, Any]) -> tuple[int, int]:
    return figures.get("flops") or 0, figures["operations"]


def _moved(figures: dict[str, Any]) -> int:
    return (figures.get("argument_bytes") or 0) + (figures.get("output_bytes") or 0)


def _figures(program: Any, operations: int) -> dict[str, Any]:
    """Return the sizes and the flops; ``None`` where too large, or where a backend has none."""
    found: dict[str, Any] = dict.fromkeys((*SIZES, "flops"))
    if operations <= MOST_FOR_MEMORY:
        found.update(_sizes(program))
    if operations <= MOST_FOR_FLOPS:
        found["flops"] = _flops(program)
    return found


def _sizes(program: Any) -> dict[str, int]:
    try:
        stats = program.get_compiled_memory_stats()
    except Exception:
        # A backend need not have it.
        return {}
    return {name: getattr(stats, there) for name, there in SIZES.items() if hasattr(stats, there)}


def _flops(program: Any) -> int | None:
    try:
        costs = program.cost_analysis()
    except Exception:
        return None
    # Some versions have one for each module.
    costs = costs[0] if isinstance(costs, (list, tuple)) and costs else costs
    flops = costs.get("flops") if isinstance(costs, dict) else None
    return int(flops) if isinstance(flops, (int, float)) and flops >= 0 else None

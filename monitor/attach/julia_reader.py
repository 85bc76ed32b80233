"""Reads the counters of Julia's garbage collector from outside: nothing stops, nothing goes in.

``jl_gc_total_hrtime`` is exported, and all that it does is to load one global variable. So its code
says where that lies, at once or by the address of its struct. That struct is ``gc_num``, whose
other fields are known for the versions in ``LAYOUTS``. What looks otherwise than we know it is not
read: the reason is said.
"""

from __future__ import annotations

import contextlib
import platform
import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from whyidle.monitor.attach.ptrace import elf, maps
from whyidle.monitor.attach.ptrace.elf import Image
from whyidle.monitor.attach.ptrace.maps import Mapping
from whyidle.monitor.attach.ptrace.memory import Memory
from whyidle.monitor.attach.stack_reader.unreadable import Unreadable
from whyidle.monitor.processes.process import JULIA_LIBRARY
from whyidle.monitor.processes.target import Target

# From 1.6 on the code is in libjulia-internal; what libjulia exports only jumps there.
_INTERNAL: Final = "-internal"
# From 1.8 on exported names begin with an i.
_PREFIXES: Final = ("", "i")
TOTAL, VERSION, ALIVE = "jl_gc_total_hrtime", "jl_ver_string", "jl_gc_live_bytes"
# In x86-64's code: mov or lea rax from what lies so far behind it, then return; some builds mark
# where jumps may land, and keep the frame pointer.
_BEGINS: Final = rb"(?:\xf3\x0f\x1e\xfa)?(?:\x55\x48\x89\xe5)?"
_LOADS: Final = re.compile(_BEGINS + rb"\x48\x8b\x05(....)\x5d?\xc3", re.DOTALL)
_LOADS_BY_ADDRESS: Final = re.compile(
    _BEGINS + rb"\x48\x8b\x05(....)\x48\x8b\x40(.)\x5d?\xc3", re.DOTALL
)
_POINTS: Final = re.compile(_BEGINS + rb"\x48\x8d\x05(....)\x5d?\xc3", re.DOTALL)
_CODE_BYTES, _AFTER_DISTANCE = 21, 4
_IN_NAME: Final = re.compile(r"\.so\.(\d+)\.(\d+)")
_IN_TEXT: Final = re.compile(rb"(\d{1,3})\.(\d{1,3})\.\d{1,5}[-+.\w]*")
_LONGEST_VERSION: Final = 32


class Layout(NamedTuple):
    """Where other fields of ``gc_num`` lie, in bytes after the total time."""

    allocated: int
    # Two numbers of 32 bits.
    pauses: int
    full: int


# src/gc.h of JuliaLang/julia, since 1.11 src/gc-interface.h or gc-common.h: a field between the
# two, ``since_sweep``, went with pull request 49195, before 1.10. Seen alive: 1.5.3, 1.13.1.
_WITH_SWEEP, _WITHOUT = Layout(8, 32, 36), Layout(8, 24, 28)
LAYOUTS: Final = {
    **{(1, minor): _WITH_SWEEP for minor in range(5, 10)},
    **{(1, minor): _WITHOUT for minor in range(10, 14)},
}


@dataclass(frozen=True, slots=True)
class Counters:
    """What the collector has done since the process began; ``None``: not known of its version."""

    pause_ns: int
    pauses: int | None = None
    full: int | None = None
    # Counted at each collection, not between two.
    allocated: int | None = None
    # On its heap, as of the last collection.
    alive: int | None = None


class JuliaReader:
    """Opens one process, or raises ``Unreadable``; each call of ``read`` takes microseconds."""

    def __init__(self, target: Target) -> None:
        self.version: str | None = None
        # Why no more than the total is read; ``None``: all of it is.
        self.only_total: str | None = None
        try:
            self._memory = Memory(target.pid, root=target.fs.root)
        except OSError as error:
            raise Unreadable(
                f"The memory of process {target.pid} may not be read: {error.strerror}.",
                f'sudo "$(command -v monitor)" attach {target.pid}',
            ) from None
        try:
            self._find(target)
        except Unreadable:
            self._memory.close()
            raise
        except (OSError, OverflowError, struct.error) as error:
            self._memory.close()
            raise Unreadable(
                f"The Julia of process {target.pid} cannot be read: {error}."
            ) from None

    def close(self) -> None:
        """Let go of the process."""
        self._memory.close()

    def read(self) -> Counters | None:
        """Return the counters; ``None`` once the process has ended, or runs another program."""
        try:
            return self._read()
        except OSError:
            return None

    def _read(self) -> Counters:
        total = self._signed(self._total)
        alive = None if self._alive is None else self._signed(self._alive)
        if self._layout is None:
            return Counters(total, alive=alive)
        at = self._total
        pauses, full = struct.unpack("<ii", self._memory.read(at + self._layout.pauses, 8))
        return Counters(total, pauses, full, self._signed(at + self._layout.allocated), alive)

    def _signed(self, address: int) -> int:
        (value,) = struct.unpack("<q", self._memory.read(address, 8))
        return int(value)

    # Once --------------------------------------------------------------------------------------
    def _find(self, target: Target) -> None:
        if platform.machine() != "x86_64":
            raise Unreadable(f"Julia's collector is not read from outside on {platform.machine()}.")
        mapped = maps.parse(target.maps or "")
        images = list(_images(self._memory.read, mapped))
        if not images:
            raise Unreadable(f"No library of Julia's was found in process {target.pid}.")
        total, image, path = self._address(images, mapped, target.pid)
        self._total = total
        self._alive = self._variable(image, ALIVE, mapped)
        self.version = self._version(image, path, mapped)
        self._layout = self._known(target)

    def _address(
        self, images: Iterable[tuple[Image, str]], mapped: tuple[Mapping, ...], pid: int
    ) -> tuple[int, Image, str]:
        for image, path in images:
            address = self._variable(image, TOTAL, mapped)
            if address is not None:
                return address, image, path
        raise Unreadable(
            f"The collector of the Julia in process {pid} is not read: the code of {TOTAL} is not"
            " the one load that we know."
        )

    def _variable(self, image: Image, name: str, mapped: tuple[Mapping, ...]) -> int | None:
        """Return the address of the variable that a function loads, if that is all it does."""
        address = self._pointed(image, name, _LOADS)
        if address is None and (by := self._hit(image, name, _LOADS_BY_ADDRESS)) is not None:
            address = self._memory.words(_distant(*by), 1)[0] + by[1][2][0]
        place = None if address is None else maps.at(mapped, address)
        return address if place is not None and place.rights.startswith("rw") else None

    def _pointed(self, image: Image, name: str, does: re.Pattern[bytes]) -> int | None:
        hit = self._hit(image, name, does)
        return None if hit is None else _distant(*hit)

    def _hit(
        self, image: Image, name: str, does: re.Pattern[bytes]
    ) -> tuple[int, re.Match[bytes]] | None:
        """Return where a function begins, and its code, where that is all that it does."""
        for prefix in _PREFIXES:
            begin = image.function(prefix + name)
            hit = None if begin is None else does.match(self._memory.read(begin, _CODE_BYTES))
            if begin is not None and hit is not None:
                return begin, hit
        return None

    def _version(self, image: Image, path: str, mapped: tuple[Mapping, ...]) -> str | None:
        """Return the version, as the library says it itself; else as its name does."""
        address = self._pointed(image, VERSION, _POINTS)
        if address is not None and maps.at(mapped, address) is not None:
            with contextlib.suppress(OSError):
                said = _IN_TEXT.match(self._memory.read(address, _LONGEST_VERSION))
                if said is not None:
                    return said[0].decode()
        named = _IN_NAME.search(path)
        return None if named is None else f"{named[1]}.{named[2]}"

    def _known(self, target: Target) -> Layout | None:
        numbers = tuple(map(int, (self.version or "").split(".")[:2])) if self.version else ()
        layout = LAYOUTS.get(numbers) if len(numbers) == 2 else None
        if layout is None:
            said = (
                "an unknown version of Julia" if self.version is None else f"Julia {self.version}"
            )
            self.only_total = f"the layout of {said} is not known: only the collector's time is"
            return None
        self._layout = layout
        counters = self._read()
        if makes_sense(counters):
            return layout
        self.only_total = (
            f"the counters of process {target.pid} are not what Julia {self.version} has there:"
            " only the collector's time is read"
        )
        return None


def _distant(begin: int, hit: re.Match[bytes]) -> int:
    """Return the address that code names by how far it is from the next instruction."""
    (distance,) = struct.unpack("<i", hit[1])
    return int(begin + hit.start(1) + _AFTER_DISTANCE + distance)


def makes_sense(counters: Counters) -> bool:
    """Tell whether the fields can be what we take them for: whoever pauses has spent time."""
    pauses, full, allocated = counters.pauses, counters.full, counters.allocated
    if pauses is None or full is None or allocated is None:
        return False
    return 0 <= full <= pauses and allocated >= 0 and (pauses > 0) == (counters.pause_ns > 0)


def _images(
    read: Callable[[int, int], bytes], mapped: Iterable[Mapping]
) -> Iterable[tuple[Image, str]]:
    """Yield the libraries of Julia's, the one with the code first."""
    found = [x for x in mapped if x.offset == 0 and JULIA_LIBRARY.search(x.path)]
    for mapping in sorted(found, key=lambda x: _INTERNAL not in x.path):
        with contextlib.suppress(elf.NotElf):
            yield elf.image(read, mapping.start), mapping.path

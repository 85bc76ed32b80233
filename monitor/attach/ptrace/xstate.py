"""The vector registers as a signal frame needs them.

The kernel takes back a frame's vector registers only if its size is no more than this very thread
uses (one that never touched AMX tiles has 8 KB less than the processor could save); of a frame
that is too large it restores the old SSE part alone. So the state is cut after the last component
in use. Where components lie, the processor itself says.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from functools import cache

_HEADER = 512  # of the XSAVE area: which components are in use
_PLAIN = 576  # the old part and the header
_SOFTWARE = 464  # what the kernel writes into the old part's unused end
_MAGIC_1, _MAGIC_2 = 0x46505853, 0x46505845
_OLD = 0b11  # x87 and SSE lie in the old part
_PROTECTION_KEYS = 9
_CPUID = bytes.fromhex(
    "53"  # push rbx, which cpuid overwrites
    "b8 0d 00 00 00"  # mov eax, 13: the leaf of extended states
    "89 f9"  # mov ecx, edi: the component
    "0f a2"  # cpuid
    "48 c1 e3 20"  # shl rbx, 32: the offset ...
    "48 09 d8"  # or rax, rbx: ... above the size
    "5b c3"  # pop rbx; ret
)


@cache
def components() -> dict[int, int]:
    """Return where each component ends, by its bit."""
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(_CPUID)
    start = ctypes.addressof(ctypes.c_char.from_buffer(code))
    ask = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint32)(start)
    words = {bit: int(ask(bit)) for bit in range(2, 63)}
    # A processor without a component answers zeros. The memory stays ours.
    _kept.append(code)
    return {bit: (word >> 32) + (word & 0xFFFFFFFF) for bit, word in words.items() if word >> 32}


_kept: list[mmap.mmap] = []


def sealed(raw: bytes, ends: dict[int, int]) -> bytes:
    """Return the state as a signal frame must hold it."""
    (enabled,) = struct.unpack_from("<Q", raw, _SOFTWARE)
    (used,) = struct.unpack_from("<Q", raw, _HEADER)
    # Keys that are not marked as used would become "everything is allowed".
    used |= enabled & (1 << _PROTECTION_KEYS)
    size = max([_PLAIN, *(ends[bit] for bit in range(2, 63) if used >> bit & 1)])
    state = bytearray(raw[:size])
    software = struct.pack("<IIQI", _MAGIC_1, size + 4, used | _OLD, size)
    state[_SOFTWARE:_HEADER] = software.ljust(_HEADER - _SOFTWARE, b"\0")
    struct.pack_into("<Q", state, _HEADER, used)
    return bytes(state) + struct.pack("<I", _MAGIC_2)

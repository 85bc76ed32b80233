"""The machine code that runs in the job, a few dozen bytes each, and the block that it works on.

The block is a page of plain memory. Every routine gets its address and finds the functions to call
there; nothing else is shared. The code is never changed once it is there.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass

# At these offsets of the text page.
RESTORER, CALLER, THREAD, PENDING = 0, 64, 192, 256

MAGIC = int.from_bytes(b"whyidle1", "little")
# Values of the block's state: a run is prepared before its thread is launched.
FREE, ARMED = 0, 1
CALLED, NO_INTERPRETER = 1, 2
# Values of ``done``: the text has run, or there was no new thread to run it.
RUN, NO_THREAD = 1, 2
_BLOCK = struct.Struct("<14QIIiI")
BLOCK_BYTES = _BLOCK.size


@dataclass(slots=True)
class Block:
    """The values of the block, in their order in memory, 8 bytes each but for the last four."""

    magic: int = MAGIC
    size: int = 0  # of the writable part
    ensure: int = 0  # 16: PyGILState_Ensure
    run: int = 0  # 24: PyRun_SimpleString
    release: int = 0  # 32: PyGILState_Release
    source: int = 0  # 40: the text to run
    errno: int = 0  # 48: __errno_location
    initialized: int = 0  # 56: Py_IsInitialized
    function: int = 0  # 64: what CALLER calls ...
    first: int = 0  # 72
    second: int = 0  # 80: ... with what
    result: int = 0  # 88: and what that returned
    body: int = 0  # 96: THREAD, for PENDING
    begin: int = 0  # 104: PyThread_start_new_thread
    state: int = FREE  # 112
    called: int = 0  # 116: CALLER is done
    status: int = 0  # 120: what PyRun_SimpleString returned
    done: int = 0  # 124

    def packed(self) -> bytes:
        """Return its bytes in memory."""
        return _BLOCK.pack(*astuple(self))

    @property
    def is_free(self) -> bool:
        """Tell whether nothing in the job will use it any more."""
        if self.called == CALLED:
            return bool(self.done) or self.failed
        return self.state == FREE or self.called == NO_INTERPRETER

    @property
    def failed(self) -> bool:
        """Tell that the call was refused: no thread, or no room among the pending calls."""
        refused = self.result & 0xFFFFFFFF == 0xFFFFFFFF
        return self.called == CALLED and (refused or self.done == NO_THREAD)


def unpack(raw: bytes) -> Block:
    """Read a block."""
    return Block(*_BLOCK.unpack(raw))


# A return into it hands the thread back to the kernel, which reads the frame at the stack pointer.
# These very bytes are known to unwinders as the end of a signal handler.
RESTORER_CODE = bytes.fromhex(
    "48 c7 c0 0f 00 00 00"  # mov rax, 15: rt_sigreturn
    "0f 05"  # syscall
)
# Calls one function for us, if there is a Python by now; errno stays what it was.
_CALLER_CODE = bytes.fromhex(
    "f3 0f 1e fa"  # endbr64
    "53 41 54 41 55"  # push rbx; push r12; push r13: the stack is aligned by that, too
    "48 89 fb"  # mov rbx, rdi: the block
    "ff 53 30"  # call [rbx+48]: __errno_location
    "49 89 c4"  # mov r12, rax
    "45 8b 2c 24"  # mov r13d, [r12]
    "ff 53 38"  # call [rbx+56]: Py_IsInitialized
    "85 c0"  # test eax, eax
    "b8 02 00 00 00"  # mov eax, 2: NO_INTERPRETER
    "74 14"  # jz over the next five
    "48 8b 7b 48"  # mov rdi, [rbx+72]
    "48 8b 73 50"  # mov rsi, [rbx+80]
    "ff 53 40"  # call [rbx+64]
    "48 89 43 58"  # mov [rbx+88], rax: result
    "b8 01 00 00 00"  # mov eax, 1: CALLED
    "89 43 74"  # mov [rbx+116], eax: called
    "45 89 2c 24"  # mov [r12], r13d
    "41 5d 41 5c 5b c3"  # pop r13; pop r12; pop rbx; ret
)
# The body of a new thread: run the text with the GIL held. By the time that it gets a core the
# program may be ending, and a Python without an interpreter must not be asked for its lock.
_THREAD_CODE = bytes.fromhex(
    "f3 0f 1e fa"  # endbr64
    "53 41 54 48 83 ec 08"  # push rbx; push r12; sub rsp, 8
    "48 89 fb"  # mov rbx, rdi
    "ff 53 38"  # call [rbx+56]: Py_IsInitialized
    "85 c0"  # test eax, eax
    "74 16"  # jz over the next seven
    "ff 53 10"  # call [rbx+16]: PyGILState_Ensure
    "41 89 c4"  # mov r12d, eax
    "48 8b 7b 28"  # mov rdi, [rbx+40]
    "ff 53 18"  # call [rbx+24]: PyRun_SimpleString
    "89 43 78"  # mov [rbx+120], eax: status
    "44 89 e7"  # mov edi, r12d
    "ff 53 20"  # call [rbx+32]: PyGILState_Release
    "c7 43 7c 01 00 00 00"  # mov dword [rbx+124], 1: RUN
    "48 83 c4 08 41 5c 5b c3"  # add rsp, 8; pop r12; pop rbx; ret
)
# A pending call: the main thread runs it between two bytecodes, and holds the GIL. It starts a
# thread and runs no Python: a signal's handler that raises finds nothing of ours to raise in.
_PENDING_CODE = bytes.fromhex(
    "f3 0f 1e fa"  # endbr64
    "53"  # push rbx
    "48 89 fb"  # mov rbx, rdi
    "48 8b 7b 60"  # mov rdi, [rbx+96]: THREAD
    "48 89 de"  # mov rsi, rbx: the block
    "ff 53 68"  # call [rbx+104]: PyThread_start_new_thread
    "48 83 f8 ff"  # cmp rax, -1: is there none?
    "75 07"  # jne over the next: from here on the block is the new thread's
    "c7 43 7c 02 00 00 00"  # mov dword [rbx+124], 2: NO_THREAD
    "31 c0 5b c3"  # xor eax, eax; pop rbx; ret: 0 is success
)


def _page() -> bytes:
    page = bytearray(b"\xcc" * 512)  # int3: nobody jumps between the routines
    codes = {
        RESTORER: RESTORER_CODE,
        CALLER: _CALLER_CODE,
        THREAD: _THREAD_CODE,
        PENDING: _PENDING_CODE,
    }
    for offset, code in codes.items():
        page[offset : offset + len(code)] = code
    return bytes(page)


TEXT = _page()

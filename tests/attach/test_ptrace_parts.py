"""What the injector is made of, each part by itself."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from pathlib import Path

import pytest

from whyidle.monitor.attach.ptrace import calls, maps, stubs
from whyidle.monitor.attach.ptrace.calls import Interruptibility, interruptibility, resumed
from whyidle.monitor.attach.ptrace.elf import NotElf, gnu_hash, image, old_hash
from whyidle.monitor.attach.ptrace.frame import Call, State, stacked
from whyidle.monitor.attach.ptrace.inject import Injection
from whyidle.monitor.attach.ptrace.interpreter import find
from whyidle.monitor.attach.ptrace.job import Job
from whyidle.monitor.attach.ptrace.memory import Memory
from whyidle.monitor.attach.ptrace.refused import Refused
from whyidle.monitor.attach.ptrace.region import Region, borrowed, room_for
from whyidle.monitor.attach.ptrace.registers import MAX, Registers
from whyidle.monitor.attach.ptrace.safe_points import stack_suits
from whyidle.monitor.attach.ptrace.xstate import components, sealed
from whyidle.monitor.processes.procfs import ProcFs

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="x86-64 only")
MAPS = """\
00400000-00401000 r-xp 00000000 08:01 11 /usr/bin/a program
00600000-00800000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0000100000 r-xp 00000000 08:01 12 /lib/libc.so.6
7f0000100000-7f0000200000 rw-p 00000000 00:00 0
7ffd00000000-7ffd00200000 rw-p 00000000 00:00 0 [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
"""


def own_maps() -> tuple[maps.Mapping, ...]:
    return maps.parse(Path("/proc/self/maps").read_text())


def test_a_map_is_read_with_its_spaces() -> None:
    memory = maps.parse(MAPS)
    assert memory[0].path == "/usr/bin/a program"
    assert memory[3].path == ""
    assert maps.at(memory, 0x600000) == memory[1]
    assert maps.at(memory, 0x800000) is None


def test_new_memory_lies_below_the_libraries_and_never_at_the_stack() -> None:
    memory = maps.parse(MAPS)
    place = maps.free_place(memory, 5 * maps.PAGE, 1 << 20)
    assert place == 0x7F0000000000 - (1 << 20) - 5 * maps.PAGE
    turned = tuple(m for m in memory if m.start < 0x7F0000000000 or m.path == maps.STACK)
    place = maps.free_place(turned, 5 * maps.PAGE, 1 << 20)
    assert place is not None
    assert maps.at(turned, place) is None
    assert turned[-1].start - place > 1 << 40


def test_a_map_without_room_gives_no_place() -> None:
    assert maps.free_place((), 4096, 4096) is None


def test_functions_are_found_in_the_loaded_libraries() -> None:
    memory = own_maps()
    with Memory(os.getpid()) as ours:
        found = find(memory, str(Path("/proc/self/exe").readlink()), ours.read)
    for name, address in found.functions.items():
        wanted = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
        assert address == wanted, name
    assert len(found.loop) > 1000
    assert found.functions["Py_AddPendingCall"] not in found.loop


def test_what_is_no_python_is_refused_in_a_sentence() -> None:
    memory = tuple(m for m in own_maps() if "python" not in m.path)
    with Memory(os.getpid()) as ours, pytest.raises(Refused, match="No CPython was found"):
        find(memory, "/bin/true", ours.read)


def test_pypy_is_refused_in_a_sentence() -> None:
    pypy = (maps.Mapping(0, 1, "r-xp", 0, "/opt/pypy/bin/libpypy3.10-c.so"),)
    with pytest.raises(Refused, match="PyPy"):
        find(pypy, "/opt/pypy/bin/pypy3", lambda *_: b"")


@pytest.mark.parametrize(
    ("position", "value"), [(0, 0), (4, 1), (18, 183), (54, 57), (57, 2), (39, 255)]
)
def test_another_kind_of_program_is_no_image(position: int, value: int) -> None:
    header = bytearray(64)
    header[:5], header[18], header[54] = b"\x7fELF\2", 62, 56
    header[position] = value
    with pytest.raises(NotElf):
        image(lambda *_: bytes(header), 0)


def test_the_older_hash_is_that_of_the_format() -> None:
    # From the description of the format: these are its own examples.
    assert (old_hash("printf"), old_hash("exit")) == (0x077905A6, 0x0006CF04)


def test_the_hash_is_that_of_the_linker() -> None:
    # From the description of the format: these are its own examples.
    assert (gnu_hash(""), gnu_hash("printf"), gnu_hash("exit")) == (0x1505, 0x156B2BB8, 0x7C967E3F)


def state(*, rsp: int = 0x7FFE0000_1234, xstate: bytes = b"x" * 1000) -> State:
    now = Registers(rip=0x1111, rsp=rsp, rbx=7, rax=9, cs=0x33, ss=0x2B, eflags=0x646)
    return State(now, xstate, mask=0b101)


def test_a_frame_holds_the_state_below_the_red_zone() -> None:
    whole = state()
    stack = stacked((Call(0xC0DE, (1, 2)),), whole, restorer=0xFEED)
    assert stack.address + len(stack.data) <= whole.registers.rsp - 128
    # At a function's first instruction the stack is 8 off a multiple of 16, as after a call.
    assert stack.registers.rsp % 16 == 8
    assert stack.registers.rsp == stack.address
    assert (stack.registers.rip, stack.registers.rdi, stack.registers.rsi) == (0xC0DE, 1, 2)
    assert stack.registers.orig_rax == MAX
    assert stack.registers.eflags == 0x246  # the direction flag is cleared
    assert stack.registers.rbx == 7
    (restorer,) = struct.unpack_from("<Q", stack.data)
    frame = stack.data[8:]
    general = struct.unpack_from("<18Q", frame, 40)
    assert restorer == 0xFEED
    assert general[15:] == (whole.registers.rsp, 0x1111, 0x646)
    (vectors,) = struct.unpack_from("<Q", frame, 40 + 144 + 8 + 32)
    assert vectors % 64 == 0
    assert stack.data[vectors - stack.address :].startswith(whole.xstate)
    assert struct.unpack_from("<Q", frame, 296) == (0b101,)


def test_calls_follow_each_other_and_the_state_comes_last() -> None:
    stack = stacked((Call(0xA, (1,), 9), Call(0xB, (2, 3), 10)), state(), restorer=0xFEED)
    assert (stack.registers.rip, stack.registers.rax, stack.registers.rdi) == (0xA, 9, 1)
    second = stack.data[8:]
    general = struct.unpack_from("<18Q", second, 40)
    assert (general[16], general[13], general[8], general[9]) == (0xB, 10, 2, 3)
    # The second call finds the way back at its own stack pointer, and the last frame above it.
    at = general[15] - stack.address
    assert struct.unpack_from("<Q", stack.data, at) == (0xFEED,)
    assert struct.unpack_from("<18Q", stack.data, at + 8 + 40)[16] == 0x1111


def test_the_vector_state_is_cut_after_what_is_in_use() -> None:
    ends = components()
    assert ends[2] == 576 + 256  # AVX lies where the architecture has it
    raw = bytearray(1 << 14)
    struct.pack_into("<Q", raw, 464, 0b111)
    struct.pack_into("<Q", raw, 512, 0b111)
    done = sealed(bytes(raw), ends)
    magic, whole, features, size = struct.unpack_from("<IIQI", done, 464)
    assert (magic, whole, features, size) == (0x46505853, len(done), 0b111, 832)
    assert struct.unpack_from("<I", done, size) == (0x46505845,)
    struct.pack_into("<Q", raw, 512, 0b011)
    assert len(sealed(bytes(raw), ends)) == 576 + 4


def test_the_keys_of_memory_are_kept_even_if_not_marked_as_used() -> None:
    raw = bytearray(1 << 14)
    struct.pack_into("<Q", raw, 464, 0b11 | 1 << 9)
    done = sealed(bytes(raw), {9: 2696})
    assert struct.unpack_from("<Q", done, 512) == (1 << 9,)
    assert len(done) == 2700


INTERRUPTED = [
    # call, arguments, what the kernel left in rax -> asked anew, or rax and no step back
    (202, (0, 0x189, 0, 1), -516, 202),  # futex until a moment
    (202, (0, 0x80, 0, 0), -512, 202),  # futex without an end
    (202, (0, 0x80, 0, 1), -516, 219),  # futex for a span: EINTR
    (230, (0, 1, 0, 0), -514, 230),  # sleep until a moment
    (35, (0, 0), -516, 219),  # sleep for a span: EINTR
    (7, (0, 1, 0xFFFFFFFF), -516, 7),  # poll without an end
    (7, (0, 1, 1000), -516, 219),
    (232, (0, 0, 0, 0xFFFFFFFF), -4, 232),  # epoll_wait without an end
    (232, (0, 0, 0, 50), -4, None),
    (0, (0, 0, 0), 17, None),  # has read 17 bytes
    (-1, (), -512, None),  # in no call: what rax holds is the program's own
]


@pytest.mark.parametrize(("number", "arguments", "result", "asked"), INTERRUPTED)
def test_an_interrupted_call_goes_on(
    number: int, arguments: tuple[int, ...], result: int, asked: int | None
) -> None:
    now = Registers(rip=0x1002, rax=result & MAX, orig_rax=number & MAX)
    for name, value in zip(("rdi", "rsi", "rdx", "r10"), arguments, strict=False):
        setattr(now, name, value)
    after = resumed(now)
    expected = (now.rax, 0x1002) if asked is None else (asked, 0x1000)
    assert (after.rax, after.rip) == expected


def test_calls_are_rated() -> None:
    assert interruptibility(202, (0, 0x189, 0, 1)) == Interruptibility.BEST
    assert interruptibility(202, (0, 6, 0, 1)) is None  # a lock with inheritance
    assert interruptibility(232, (0, 0, 0, 50)) == Interruptibility.EINTR
    assert interruptibility(16, ()) is None  # a driver's own call
    assert calls.number_of(Registers(orig_rax=MAX)) == -1


def test_only_a_stack_of_its_own_with_room_is_used() -> None:
    memory = maps.parse(MAPS)
    top = 0x7F0000200000
    assert stack_suits(memory, Registers(rsp=top - 8192, fs_base=top - 64))
    assert not stack_suits(memory, Registers(rsp=0x7F0000110000, fs_base=top - 64))  # nearly full
    assert not stack_suits(memory, Registers(rsp=top - 8192, fs_base=0x700000))  # borrowed
    assert not stack_suits(memory, Registers(rsp=0x7F0000300000, fs_base=0))  # nowhere
    assert stack_suits(memory, Registers(rsp=0x7FFD00100000, fs_base=0x700000))  # the main thread's


def run_code(offset: int, block: stubs.Block) -> tuple[int, stubs.Block]:
    """Run a routine of ours in this process, on a block of its own."""
    text = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    text.write(stubs.TEXT)
    start = ctypes.addressof(ctypes.c_char.from_buffer(text))
    memory = ctypes.create_string_buffer(block.packed())
    result = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(start + offset)(
        ctypes.addressof(memory)
    )
    return result, stubs.unpack(memory.raw[: stubs.BLOCK_BYTES])


def address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


def test_the_caller_calls_and_keeps_errno() -> None:
    errno = ctypes.c_int(5)
    where = ctypes.CFUNCTYPE(ctypes.c_void_p)(lambda: ctypes.addressof(errno))
    up = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1)

    @ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    def called(first: int, second: int) -> int:
        errno.value = 99
        return first * second

    block = stubs.Block(first=6, second=-7 & MAX, state=stubs.ARMED)
    block.errno, block.initialized, block.function = map(address, (where, up, called))
    _, after = run_code(stubs.CALLER, block)
    assert (after.called, after.result, errno.value) == (stubs.CALLED, -42 & MAX, 5)
    assert not after.is_free  # the text has not run yet


def test_nothing_is_called_without_an_interpreter() -> None:
    errno = ctypes.c_int(0)
    where = ctypes.CFUNCTYPE(ctypes.c_void_p)(lambda: ctypes.addressof(errno))
    down = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0)
    block = stubs.Block(state=stubs.ARMED, errno=address(where), initialized=address(down))
    _, after = run_code(stubs.CALLER, block)
    assert (after.called, after.is_free) == (stubs.NO_INTERPRETER, True)


@pytest.mark.parametrize("is_up", [True, False])
def test_the_new_thread_runs_the_text_with_the_lock(is_up: bool) -> None:
    steps: list[object] = []
    up = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: int(is_up))
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    run = kind(lambda text: steps.append(text) or -1)
    ensure = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: steps.append("ensure") or 3)
    release = kind(lambda held: steps.append(held) or 0)
    block = stubs.Block(source=1234, called=stubs.CALLED, state=stubs.ARMED)
    block.run, block.ensure, block.release = map(address, (run, ensure, release))
    block.initialized = address(up)
    _, after = run_code(stubs.THREAD, block)
    # Without a Python it touches nothing.
    assert steps == (["ensure", 1234, 3] if is_up else [])
    assert (after.status, after.done) == (-1 if is_up else 0, stubs.RUN)
    assert (after.is_free, after.failed) == (True, False)


@pytest.mark.parametrize("answer", [0x7F0000000700, MAX])
def test_the_main_thread_only_starts_another_one(answer: int) -> None:
    asked: list[tuple[int, int]] = []

    @ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64)
    def begin(routine: int, argument: int) -> int:
        asked.append((routine, argument))
        return answer

    # There is no function of Python's to be called.
    block = stubs.Block(body=1234, begin=address(begin), called=stubs.CALLED, state=stubs.ARMED)
    result, after = run_code(stubs.PENDING, block)
    assert result == 0
    assert [routine for routine, _ in asked] == [1234]
    assert asked[0][1]
    refused = answer == MAX
    assert (after.failed, after.is_free) == (refused, refused)
    assert after.done == (stubs.NO_THREAD if refused else 0)


def test_a_region_is_taken_for_ours_only_where_it_is_exactly() -> None:
    region = Region(0x10000, room_for(b"x"))
    end = region.block + region.size
    good = (
        maps.Mapping(0x10000, 0x11000, "r-xp", 0, ""),
        maps.Mapping(0x11000, end, "rw-p", 0, ""),
    )
    assert region.is_mapped(good)
    assert not region.is_mapped(good[:1])
    assert not region.is_mapped((good[0], good[1]._replace(end=end + 4096)))
    assert not region.is_mapped((good[0], good[1]._replace(path="/somebody's")))
    assert region.fits(b"x" * (64 << 10))
    assert not region.fits(b"x" * (region.size - 256))


def test_the_c_library_has_what_the_first_step_needs() -> None:
    memory = own_maps()
    with Memory(os.getpid()) as ours:
        libc = find(memory, str(Path("/proc/self/exe").readlink()), ours.read).libc
        found = borrowed(memory, libc, ours)
        assert ours.read(found.syscall, 3) == b"\x0f\x05\xc3"
        assert ours.read(found.restorer, 9) == stubs.RESTORER_CODE
        with pytest.raises(Refused):
            borrowed(memory, "/nowhere", ours)


def test_an_injection_under_way_is_awaited_one_that_never_ends_is_not() -> None:
    stat = ProcFs().stat(os.getpid())
    assert stat is not None
    under_way = stubs.Block(state=stubs.ARMED, called=stubs.CALLED)
    over = stubs.Block(state=stubs.ARMED, called=stubs.CALLED, done=1)

    class Scripted(Memory):
        """Says three times that the injection is under way, and then what it was given."""

        def __init__(self, last: stubs.Block) -> None:
            self.reads = iter([under_way] * 3)
            self.last = last

        def read(self, start: int, size: int) -> bytes:
            return next(self.reads, self.last).packed()[:size]

    for last, settled in ((over, True), (under_way, False)):
        injection = Injection(Job(os.getpid(), stat.start_ticks), Scripted(last), 0.0)
        assert injection.settle([Region(0x10000, 4096)]) is settled

"""Finds the interpreter and its main thread in a job's memory, and checks that we understand it."""

from __future__ import annotations

import contextlib
import platform
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from whyidle.monitor.attach.ptrace import elf, maps
from whyidle.monitor.attach.ptrace.elf import Image
from whyidle.monitor.attach.ptrace.interpreter import LIBRARY
from whyidle.monitor.attach.ptrace.memory import Memory
from whyidle.monitor.attach.stack_reader import layout as parts
from whyidle.monitor.attach.stack_reader.layout import Layout
from whyidle.monitor.attach.stack_reader.unreadable import Unreadable
from whyidle.monitor.processes.target import Target
from whyidle.monitor.processes.tree import is_alive

MOST_INTERPRETERS, MOST_THREADS = 1000, 10_000
# What this machine runs: structures are the same on both.
_MACHINES = {"x86_64": elf.MACHINE_X86_64, "aarch64": elf.MACHINE_AARCH64}


@dataclass(frozen=True, slots=True)
class Opened:
    """What is known of one interpreter."""

    memory: Memory
    layout: Layout
    version: tuple[int, int]
    code_type: int
    interpreter: int
    thread: int
    # The bytes by which the main thread is known again.
    is_main: bytes
    gil: int
    # The types of what counts, by name, where this Python shows them.
    counts: Mapping[str, int]


def find(target: Target, memory: Memory) -> Opened:
    """Find it, or raise ``Unreadable``."""
    try:
        # The descriptor names this memory for good, also when the pid is reused.
        stat = target.fs.stat(target.pid)
        if stat is None or not is_alive(target.key, stat):
            raise Unreadable(f"Process {target.pid} has ended.")
        return _find(target, memory)
    except (OSError, OverflowError, struct.error) as error:
        raise Unreadable(f"The Python of process {target.pid} cannot be read: {error}.") from None


def _find(target: Target, memory: Memory) -> Opened:
    image = _python(target, memory)
    runtime, code_type = image.variable("_PyRuntime"), image.variable("PyCode_Type")
    if runtime is None or code_type is None:
        raise Unreadable(f"The Python of process {target.pid} does not say where its parts are.")
    version, layout = _layout(target, memory, image, runtime)
    name = memory.words(code_type + parts.TYPE_NAME, 1)[0]
    if memory.read(name, 5) != b"code\0":
        raise Unreadable(
            f"The Python of process {target.pid} is built in a way that we do not know."
        )
    interpreter = _oldest(memory, layout, runtime)
    number = _main_number(target, memory, layout, runtime)
    return Opened(
        memory=memory,
        layout=layout,
        version=version,
        code_type=code_type,
        interpreter=interpreter,
        thread=_thread(target, memory, layout, interpreter, number),
        is_main=struct.pack("<Q", number),
        gil=memory.words(interpreter + layout.gil, 1)[0]
        if layout.gil_is_pointed_to
        else runtime + layout.gil,
        counts={n: address for n in parts.COUNTS if (address := image.variable(n)) is not None},
    )


def _python(target: Target, memory: Memory) -> Image:
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        raise Unreadable(f"Stacks are not read from outside on {platform.machine()}.")
    for mapping in maps.parse(target.maps or ""):
        is_python = LIBRARY.search(mapping.path) or mapping.path == target.exe
        if mapping.offset == 0 and is_python:
            with contextlib.suppress(elf.NotElf):
                image = elf.image(memory.read, mapping.start, machine)
                if image.variable("_PyRuntime") is not None:
                    return image
    raise Unreadable(f"No CPython that shows its parts was found in process {target.pid}.")


def _layout(
    target: Target, memory: Memory, image: Image, runtime: int
) -> tuple[tuple[int, int], Layout]:
    table = memory.words(runtime, parts.TABLE_WORDS)
    version = parts.version_in(table)
    if version is not None and parts.is_free_threaded(table):
        raise Unreadable(f"Process {target.pid} runs on a Python without the GIL.")
    found = parts.from_table(table) if version is not None else None
    if version is None:
        version = _version_before_tables(memory, image)
        found = parts.KNOWN.get(version)
    if found is None:
        said = ".".join(map(str, version))
        raise Unreadable(f"Process {target.pid} runs on Python {said}, which we do not know.")
    return version, found


def _version_before_tables(memory: Memory, image: Image) -> tuple[int, int]:
    """Return the version: it is a variable since 3.11, and before, names came with versions."""
    address = image.variable("Py_Version")
    if address is not None:
        raw = memory.read(address, 4)
        return raw[3], raw[2]
    if image.function("PyModule_AddObjectRef") is not None:
        return 3, 10
    return (3, 9) if image.function("PyObject_CallNoArgs") is not None else (3, 8)


def _oldest(memory: Memory, layout: Layout, runtime: int) -> int:
    """Return the main interpreter: newer ones stand before it."""
    interpreter = memory.words(runtime + layout.interpreters_head, 1)[0]
    for _ in range(MOST_INTERPRETERS):
        following = memory.words(interpreter + layout.interpreter_next, 1)[0] if interpreter else 0
        if not following:
            break
        interpreter = following
    return interpreter


def _main_number(target: Target, memory: Memory, layout: Layout, runtime: int) -> int:
    if layout.main_thread is None:
        return target.own_pid
    return memory.words(runtime + layout.main_thread, 1)[0]


def _thread(target: Target, memory: Memory, layout: Layout, interpreter: int, number: int) -> int:
    """Return the main thread: the oldest of its number, which one that it starts has at first."""
    thread = memory.words(interpreter + layout.threads_head, 1)[0] if interpreter else 0
    found = 0
    for _ in range(MOST_THREADS):
        if not thread:
            break
        if memory.words(thread + layout.thread_interpreter, 1)[0] != interpreter:
            raise Unreadable(
                f"The Python of process {target.pid} is built in a way that we do not know."
            )
        if memory.words(thread + layout.thread_id, 1)[0] == number:
            found = thread
        thread = memory.words(thread + layout.thread_next, 1)[0]
    if found:
        return found
    raise Unreadable(f"The main thread of process {target.pid} runs no Python (yet).")

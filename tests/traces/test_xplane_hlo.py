"""Lines of code out of XLA's modules: both ways of writing them, and no more than pays."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.traces.xplane_bytes import Plane, block, load, number, space
from whyidle.monitor.traces.model import Site, Trace
from whyidle.monitor.traces.xplane import hlo

LIBRARY = "/venv/lib/python3.11/site-packages/flax/linen/linear.py"


def instruction(name: str, metadata: bytes = b"") -> bytes:
    return block(2, block(1, name) + block(2, "fusion") + block(7, metadata))


def module(name: str, *instructions: bytes, stacks: bytes = b"", padding: int = 0) -> bytes:
    code = block(1, "main.1") + b"".join(instructions) + number(5, 1)
    body = block(1, name) + block(3, code) + number(5, 8) + block(17, stacks)
    return block(1, body) + block(3, b"x" * padding)


def located(file: str, line: int) -> bytes:
    return block(2, "jit(step)/dot") + block(3, file) + number(4, line)


# The library's line was called from line 30 of the user's.
STACKS = (
    block(1, "/home/me/train.py")
    + block(1, LIBRARY)
    + block(2, "loss")
    + block(2, "Dense.__call__")
    + block(3, number(1, 1) + number(2, 1) + number(3, 30))
    + block(3, number(1, 2) + number(2, 2) + number(3, 271))
    + block(4, number(1, 1))
    + block(4, number(1, 2) + number(2, 1))
)


def traced(tmp_path: Path, *protos: tuple[str, bytes], ran: tuple[str, ...]) -> Trace:
    """A file whose GPU ran these operations of ``jit_step``; the modules come first, as in jax."""
    metadata, gpu = Plane("/host:metadata", protos=list(protos)), Plane("/device:GPU:0")
    hlo_module = ("ref", "jit_step")
    kernels = [
        gpu.event(op + ".kd", i * 9, 5, hlo_op=("ref", op), hlo_module=hlo_module)
        for i, op in enumerate(ran)
    ]
    gpu.line("Stream #1(Kernel)", *kernels, key=1)
    return load(tmp_path, space(metadata, gpu))


def sites(trace: Trace) -> dict[str, Site]:
    return {trace.names[op]: site for (_, op), site in trace.sources.items()}


def test_a_line_told_by_the_instruction(tmp_path: Path) -> None:
    proto = module("jit_step", instruction("dot.1", located("a.py", 12)), instruction("add.2"))
    trace = traced(tmp_path, ("jit_step(8)", proto), ran=("dot.1", "add.2"))
    assert sites(trace) == {"dot.1": Site("a.py", 12)}
    [(module_id, _)] = trace.sources
    assert trace.names[module_id] == "jit_step"


def test_a_call_stack_names_the_users_line(tmp_path: Path) -> None:
    proto = module("jit_step", instruction("dot.1", number(15, 2)), stacks=STACKS)
    trace = traced(tmp_path, ("jit_step(8)", proto), ran=("dot.1",))
    assert sites(trace) == {"dot.1": Site("/home/me/train.py", 30, "loss")}


def test_a_library_alone_is_better_than_nothing(tmp_path: Path) -> None:
    alone = STACKS.replace(block(4, number(1, 2) + number(2, 1)), block(4, number(1, 2)))
    proto = module("jit_step", instruction("dot.1", number(15, 2)), stacks=alone)
    trace = traced(tmp_path, ("jit_step(8)", proto), ran=("dot.1",))
    assert sites(trace) == {"dot.1": Site(LIBRARY, 271, "Dense.__call__")}


@pytest.mark.parametrize("frame", [0, 3, 1 << 40])
def test_a_frame_that_is_not_there(tmp_path: Path, frame: int) -> None:
    proto = module("jit_step", instruction("dot.1", number(15, frame)), stacks=STACKS)
    assert not traced(tmp_path, ("jit_step(8)", proto), ran=("dot.1",)).sources


def test_a_stack_without_end(tmp_path: Path) -> None:
    circle = STACKS.replace(block(4, number(1, 1)), block(4, number(1, 2) + number(2, 2)))
    proto = module("jit_step", instruction("dot.1", number(15, 1)), stacks=circle)
    assert sites(traced(tmp_path, ("jit_step(8)", proto), ran=("dot.1",)))["dot.1"].line == 271


def test_only_what_ran_is_read(tmp_path: Path) -> None:
    ran = module("jit_step", instruction("dot.1", located("a.py", 1)), padding=1000)
    trace = traced(
        tmp_path,
        ("jit_other(1)", b"\xff" * 50),
        ("jit_step(2)", ran),
        ran=("dot.1",),
    )
    assert (len(trace.sources), trace.warnings) == (1, [])


def test_modules_beyond_the_budget_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = module("jit_step", instruction("dot.1", located("a.py", 1)))
    second = module("jit_step", instruction("dot.2", located("a.py", 2)))
    monkeypatch.setattr(hlo, "BUDGET", len(first))
    protos = (("jit_step(1)", first), ("jit_step(2)", second))
    trace = traced(tmp_path, *protos, ran=("dot.1", "dot.2"))
    assert list(sites(trace)) == ["dot.1"]
    assert trace.warnings == [
        "1 XLA program damaged or too large to be read: no lines of code of their operations."
    ]


def test_a_damaged_module_is_left_out(tmp_path: Path) -> None:
    proto = block(1, block(3, b"\x12\x7f\x0a\x05dot.1"))
    trace = traced(tmp_path, ("jit_step(1)", proto), ran=("dot.1",))
    assert not trace.sources
    assert len(trace.warnings) == 1

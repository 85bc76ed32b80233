"""What no job on a CPU shows: GPU memory, calls of GPU libraries, huge programs."""

from __future__ import annotations

import enum
from types import SimpleNamespace
from typing import Any

import pytest

from whyidle.agents import wire
from whyidle.agents.context import ProbeContext
from whyidle.agents.jax import devices, executables, operations
from whyidle.agents.jax.devices import Devices
from whyidle.agents.jax.executables import Executables
from whyidle.agents.jax.operations import Operations
from whyidle.agents.modules import Missing
from whyidle.agents.phases import Phases
from whyidle.agents.retraces import ANEW, ITS_OWN, OTHER, Retraces
from whyidle.agents.timers import Timers

FOREVER = 1 << 62


class Code(enum.Enum):
    kWhile = 1  # noqa: N815
    kAllReduce = 9  # noqa: N815
    kCustomCall = 2  # noqa: N815
    kDot = 3  # noqa: N815
    kConvolution = 4  # noqa: N815
    kAdd = 5  # noqa: N815
    kConstant = 6  # noqa: N815


class Operation:
    def __init__(self, code: Any, text: str = "", *operands: str) -> None:
        self.opcode, self.text, self._operands = code, text, operands

    def to_string(self) -> str:
        return self.text

    def operands(self) -> list[Any]:
        return [Operation(Code.kAdd, text) for text in self._operands]


class Module:
    name = "jit_step"

    def __init__(self, *instructions: Operation) -> None:
        self._instructions = instructions

    def computations(self) -> list[Any]:
        return [SimpleNamespace(instructions=lambda: self._instructions)]


class Program:
    fingerprint = b"1"

    def __init__(self, module: Module) -> None:
        self._module = module

    def hlo_modules(self) -> list[Module]:
        return [self._module]

    def get_compiled_memory_stats(self) -> Any:
        return SimpleNamespace(
            argument_size_in_bytes=8, output_size_in_bytes=4, alias_size_in_bytes=4
        )

    def cost_analysis(self) -> Any:
        return [{"flops": 12.0}]


def context(said: list[str] | None = None) -> ProbeContext:
    return ProbeContext(Timers(), lambda _: None, [].append if said is None else said.append, None)


def inspected(monkeypatch: pytest.MonkeyPatch, *programs: Program) -> dict[str, Any]:
    client = SimpleNamespace(live_executables=lambda: list(programs))
    monkeypatch.setattr(executables, "clients", lambda: {"gpu": client})
    part = Executables(context())
    part.begin()
    for second in range(50):
        assert part.second(second * 10**12) == {wire.EXECUTABLES: len(programs)}
    return part.facts()


GEMM = '%c = (bf16[8,8]{1,0}, s8[9]) custom-call(%a, %b), custom_call_target="__cublas$lt$matmul"'


def test_products_in_a_library_are_known_by_the_type_of_what_is_multiplied() -> None:
    found = Operations(
        Module(
            Operation(Code.kCustomCall, GEMM, "%a = bf16[8,8]{1,0} parameter(0)"),
            Operation(Code.kCustomCall, '%s = f32[2] custom-call(%a), custom_call_target="Sort"'),
            Operation(Code.kDot, "%d = f32[8] dot(%a, %b)", "%a = f16[8]{0} parameter(0)"),
            Operation(Code.kConvolution, "%d = f32[8] convolution(%a, %b)", "%a = (f8e4m3fn[8]"),
            Operation(Code.kWhile),
            Operation(Code.kAllReduce),
        )
    )
    assert found.read(FOREVER)
    assert found.facts() == {
        "operations": 6,
        "whole": True,
        "loops": 1,
        "collectives": 1,
        "products": {"bf16": 1, "f16": 1, "f8e4m3fn": 1},
    }


def test_what_a_program_holds_of_arrays_is_known() -> None:
    texts = (
        "%a = f32[] constant(0)",
        "%b = bf16[1000,10]{1,0} constant({...})",
        "%c = s32[3]{0} constant({1, 2, 3})",
        "%d = pred[100000]{0} constant({...})",
        "%e = (f32[9], f32[9]) constant({...})",
        "%f = f32[<=8,4096] constant({...})",
        "%g = f8e4m3fn[30]{0} constant({...})",
        "%h = s4[30]{0} constant({...})",
        "%i = token[] constant()",
        "",
    )
    found = Operations(Module(*(Operation(Code.kConstant, text) for text in texts)))
    assert found.read(FOREVER)
    assert found.constant_bytes == 4 + 20_000 + 12 + 100_000 + 30 + 30


def test_other_kinds_of_operations_are_missing() -> None:
    with pytest.raises(Missing, match="no kinds of operations"):
        Operations(Module(Operation("add"))).read(FOREVER)


def test_a_large_program_is_read_in_pieces_and_only_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MOST_OPERATIONS", 1000)
    found = Operations(Module(*(2000 * [Operation(Code.kAdd)])))
    pieces = 1
    while not found.read(0):
        pieces += 1
    assert pieces > 10
    assert found.facts()["operations"] == 1000
    assert not found.facts()["whole"]


def test_a_program_has_sizes_and_flops(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = inspected(monkeypatch, Program(Module(Operation(Code.kAdd))))
    assert facts["executables_by_name"] == {"jit_step": 1}
    (program,) = facts["largest_executables"]
    assert (program["flops"], program["argument_bytes"], program["aliased_bytes"]) == (12, 8, 4)
    assert program["temporary_bytes"] is None


def test_what_is_too_large_is_not_asked_for_its_flops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executables, "MOST_FOR_FLOPS", 1)
    facts = inspected(monkeypatch, Program(Module(*(2 * [Operation(Code.kAdd)]))))
    assert facts["largest_executables"][0]["flops"] is None


def test_of_many_programs_of_one_name_few_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = [Program(Module(Operation(Code.kAdd))) for _ in range(30)]
    facts = inspected(monkeypatch, *programs)
    assert facts["executables"] == facts["executables_known"] == 30
    assert facts["executables_by_name"] == {"jit_step": 30}
    assert len(facts["largest_executables"]) == executables.MOST_OF_A_NAME


def test_what_moves_most_is_there_beside_what_computes_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Copy(Program):
        def cost_analysis(self) -> dict[str, float]:
            return {"flops": 0.0}

        def get_compiled_memory_stats(self) -> Any:
            return SimpleNamespace(argument_size_in_bytes=1 << 26, output_size_in_bytes=1 << 26)

    def module(name: str) -> Module:
        made = Module(Operation(Code.kAdd))
        made.name = name
        return made

    small = [Program(module(f"jit_{number}")) for number in range(executables.LARGEST + 1)]
    facts = inspected(monkeypatch, *small, Copy(module("jit_copy")))
    names = [program["name"] for program in facts["largest_executables"]]
    assert "jit_copy" in names[executables.LARGEST :]
    assert len(names) == len(set(names))


def test_a_backend_without_figures_of_programs_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Any) -> Any:
        raise RuntimeError("UNIMPLEMENTED")

    monkeypatch.setattr(Program, "cost_analysis", refuse)
    monkeypatch.setattr(Program, "get_compiled_memory_stats", refuse)
    facts = inspected(monkeypatch, Program(Module(Operation(Code.kAdd))))
    program = facts["largest_executables"][0]
    assert (program["operations"], program["flops"], program["output_bytes"]) == (1, None, None)


def gpu(**stats: int) -> Any:
    return SimpleNamespace(memory_stats=lambda: stats or None)


def figures(monkeypatch: pytest.MonkeyPatch, *of: Any) -> dict[str, int | None]:
    client = SimpleNamespace(local_devices=lambda: of)
    monkeypatch.setattr(devices, "clients", lambda: {"gpu": client})
    part = Devices(context())
    part._has_figures = True
    return part.second(0)


def test_the_pools_of_all_devices_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    one = gpu(
        bytes_in_use=60, peak_bytes_in_use=80, pool_bytes=100, bytes_limit=100,
        largest_free_block_bytes=30,
    )  # fmt: skip
    assert figures(monkeypatch, one, one, gpu()) == {
        wire.POOL_USED_BYTES: 120,
        wire.POOL_PEAK_BYTES: 160,
        wire.POOL_RESERVED_BYTES: 200,
        wire.POOL_LIMIT_BYTES: 200,
        wire.POOL_SPLIT_BYTES: 20,
    }
    growing = gpu(
        bytes_in_use=1048832, pool_bytes=274726912, bytes_limit=63763906560,
        largest_free_block_bytes=134217728,
    )  # fmt: skip
    assert wire.POOL_SPLIT_BYTES not in figures(monkeypatch, growing)
    assert figures(monkeypatch, gpu(bytes_in_use=1)) == {wire.POOL_USED_BYTES: 1}
    assert figures(monkeypatch, gpu()) == {}


def test_a_device_that_refuses_its_figures_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, said = [], []

    def refuse() -> None:
        asked.append(1)
        raise RuntimeError

    client = SimpleNamespace(local_devices=lambda: [SimpleNamespace(memory_stats=refuse)])
    monkeypatch.setattr(devices, "clients", lambda: {"gpu": client})
    part = Devices(context(said))
    part._has_figures = True
    assert part.second(0) == part.second(1) == {}
    assert len(asked) == 1
    assert said == ["no figures of device memory: RuntimeError"]


def aval(*shape: int, dtype: str = "float32", weak: bool = False) -> Any:
    return SimpleNamespace(shape=shape, dtype=dtype, weak_type=weak)


def test_an_operation_of_jax_itself_is_not_made_anew_by_the_user() -> None:
    tracings = Retraces("/site-packages/jax/")
    place = "broadcast_in_dim at /site-packages/jax/_src/dispatch.py:101"
    assert tracings.reason((place, object(), (), [aval()])) is None
    assert tracings.reason((place, object(), (), [aval()])) == ITS_OWN
    users = "step at /job/site.py:3"
    assert tracings.reason((users, object(), (), [aval()])) is None
    assert tracings.reason((users, object(), (), [aval()])) == ANEW


def test_a_reason_names_what_differs_from_the_nearest_time_before() -> None:
    tracings, function = Retraces(), object()

    def reason(*avals: Any, names: Any = ("x", "p['w']"), by: Any = function) -> str | None:
        return tracings.reason(("train at train.py:1", by, names, avals))

    assert reason(aval(3), aval(4)) is None
    assert reason(aval(5), aval(4)) == "at x: now float32[5], before float32[3]"
    assert reason(aval(5), aval(4, weak=True)) == (
        "at p['w']: now float32[4] (weak), before float32[4]"
    )
    assert reason(aval(5)) == "now 1 arrays as arguments, and before 2"
    assert reason(aval(5), aval(4)) == OTHER
    assert reason(aval(5), aval(4), by=object()) == ANEW
    assert reason(aval(6), aval(4), names=None) == (
        "at argument 1: now float32[6], before float32[5]"
    )
    many = [aval(n) for n in range(500)]
    assert tracings.reason(("other at train.py:9", function, (), many)) is None
    why = tracings.reason(("other at train.py:9", function, (), [aval(9, n) for n in range(500)]))
    assert why is not None
    assert why.endswith("; and 497 more")
    assert len(why) <= wire.LONGEST_REASON


def test_a_phase_within_another_counts_once() -> None:
    phases = Phases()
    assert phases.add(0, 10) == 10
    assert phases.add(20, 30) == 10
    assert phases.take() == 20
    assert phases.add(15, 40) == 15
    assert phases.take() == 25
    assert phases.take() == 0


def test_the_last_programs_of_a_job_that_ends_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = SimpleNamespace(live_executables=lambda: [Program(Module(Operation(Code.kDot)))])
    there = {"gpu": client}
    monkeypatch.setattr(executables, "clients", lambda: there)
    part = Executables(context())
    part.begin()
    assert part.second(0) == {wire.EXECUTABLES: 1}
    program = part.facts()
    assert program["largest_executables"]
    # JAX releases its clients before the interpreter ends.
    there.clear()
    assert part.second(1) == {}
    assert part.facts() == program


def test_the_last_devices_of_a_job_that_ends_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = SimpleNamespace(process_index=0)
    client = SimpleNamespace(
        platform="cpu", local_devices=lambda: [one], devices=lambda: [one], device_count=lambda: 1
    )
    there: dict[str, Any] = {}
    monkeypatch.setattr(devices, "clients", lambda: there)
    monkeypatch.setattr(devices, "need", lambda *_: there.get("cpu"))
    part = Devices(context())
    part.begin()
    assert "backend" not in part.facts()
    there["cpu"] = client
    program = part.facts()
    assert program["backend"] == "cpu"
    there.clear()
    assert part.facts() == program

"""What the devices of real traces ran, against their exact truth."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.traces.real import KINETO, TRUTHS, XPLANE, path_of
from whyidle.monitor.traces.analysis import analyse_trace
from whyidle.monitor.traces.kernels.copies import Copies
from whyidle.monitor.traces.kernels.summary import Kernels
from whyidle.monitor.traces.loading import load
from whyidle.monitor.traces.model import Trace

# The truth files cut names.
CUT = {"kineto": 160, "xplane": 120}


def summary(trace: Trace) -> Kernels:
    return analyse_trace(Path("trace"), trace).kernels


@pytest.mark.parametrize("name", KINETO)
def test_kernels_of_real_traces(name: str) -> None:
    found = summary(load(path_of(name)))
    (truth,) = TRUTHS[name]["devices"].values()
    assert found.count == truth["n_kernels"] + truth["n_comm"]
    assert found.total == truth["sum_kernel_ns"]
    assert found.short_count == truth["short_kernels_lt10us"]
    count: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for kernel in found.kernels:
        count[kernel.runs.name[: CUT["kineto"]]] += kernel.runs.count
        total[kernel.runs.name[: CUT["kineto"]]] += kernel.runs.total
    for top in truth["top_kernels"]:
        assert (count[top["name"]], total[top["name"]]) == (top["n"], top["dur_ns"])
    totals = [kernel.runs.total for kernel in found.kernels]
    assert totals == sorted(totals, reverse=True)
    assert sum(one.count for one in found.collectives) == truth["n_comm"]
    parts = (found.families(), {**found.dtypes(), "communication": _communication(found)})
    assert [sum(part.values()) for part in parts] == [found.total, found.total]


def _communication(found: Kernels) -> int:
    return sum(one.total for one in found.collectives)


@pytest.mark.parametrize("name", KINETO)
def test_copies_of_real_traces(name: str) -> None:
    found = summary(load(path_of(name))).copies
    (truth,) = TRUTHS[name]["devices"].values()
    ours = {_name(one): one for one in found}
    assert ours.keys() == truth["mem_ops"].keys()
    for name_, moved in truth["mem_ops"].items():
        one = ours[name_]
        assert (one.count, one.total) == (moved["n"], moved["dur_ns"])
        if one.bytes is None:
            # The truth adds up what is there: nothing.
            assert (moved["bytes"], bool(one.unknown)) == (0, True)
        else:
            assert one.bytes == moved["bytes"]
            assert round(one.gb_per_s(1) or 0, 3) == moved["GBps"]


def _name(one: Copies) -> str:
    """As CUPTI calls it."""
    if one.direction == "memset":
        return "Memset (Device)"
    if one.memory == "device":
        return "Memcpy DtoD (Device -> Device)"
    memory = one.memory.capitalize()
    if one.direction == "host to device":
        return f"Memcpy HtoD ({memory} -> Device)"
    return f"Memcpy DtoH (Device -> {memory})"


@pytest.mark.parametrize("name", XPLANE)
def test_operations_of_xplanes(name: str) -> None:
    trace = load(path_of(name))
    found = summary(trace)
    count: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for plane, truth in TRUTHS[name]["planes"].items():
        for top in truth.get("top", ()) if plane.startswith("/device:") else ():
            count[top["name"]] += top["n"]
            total[top["name"]] += top["dur_ps"]
    for kernel in found.kernels:
        cut = kernel.runs.name[: CUT["xplane"]]
        count[cut] -= kernel.runs.count
        total[cut] -= kernel.runs.total
    # What is left over are copies, or is not among the top of its plane.
    assert all(number <= 0 or "emcpy" in cut or "copy" in cut for cut, number in count.items())
    assert sum(one.total for one in found.copies) >= sum(t for c, t in total.items() if t > 0)


def test_hlo_of_a_jax_trace() -> None:
    found = summary(load(path_of("jax_gemm_mi300")))
    modules = {one.name: one for one in found.hlo_modules}
    assert "jit_dot" in modules
    for name, module in modules.items():
        assert sum(op.total for of, op in found.hlo_ops if of == name) == module.total


def test_names_of_real_kernels_say_enough() -> None:
    """Of matmul-like kernels few are unknown; of f32 training none use tensor cores."""
    share = summary(load(path_of("v100_2rank_nccl"))).tensor_share()
    assert share == (0.0, 0.0)
    found = summary(load(path_of("h100_owlv2")))
    low, high = found.tensor_share() or (0.0, 0.0)
    assert 0.46 < low <= high < 0.48
    assert found.dtypes()["bf16"] > 0.99 * found.total
    assert next(iter(found.families())) == "other"  # it is the softmax that takes most time

"""Blocks of the job's own around its steps: they prevent no trace and crash no job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agents.pythons import Client
from tests.agents.traced import TORCH, UNTIL_TOLD, Tracing, job
from tests.longer import LONG, STRESS

# How many traces are taken of each job, one after the other.
TRACES = 100 if STRESS else 3 if LONG else 1

BEGIN = """
from torch.profiler import record_function as block
start(); until(reachable)
sys.modules["_whyidle_agent.tracing"].LEAST_PAUSE_NS = 1
sys.modules["_whyidle_agent.tracing"].BETWEEN_WINDOWS_NS = 1_000_000
# However late others let it come.
sys.modules["_whyidle_agent.trace_window"].TraceWindow.late = lambda *a: None
number = 0
ready()
"""
# No name comes twice.
LOOPS = {
    "each step": """
while not told.is_set():
    number += 1
    with block(f"step {number}"): step()
""",
    "each half": """
while not told.is_set():
    number += 1
    with block(f"forward {number}"):
        optimizer.zero_grad(); loss = model(data).pow(2).mean()
    with block(f"backward {number}"):
        loss.backward(); optimizer.step()
""",
    "nested": """
while not told.is_set():
    number += 1
    with block(f"epoch {number}"):
        for i in range(40):
            with block(f"step {number} {i}"), block(f"inner {number} {i}"):
                for _ in range(8): model(data)
                step()
""",
    "overlapping": """
left = []
while not told.is_set():
    number += 1
    for i in range(20):
        one = block(f"ring {number} {i}"); one.__enter__(); left.append(one)
        step()
    while len(left) > 50: left.pop(0).__exit__(None, None, None)
for one in left: one.__exit__(None, None, None)
""",
    "two threads": """
def other():
    mine = torch.nn.Linear(8, 8)
    while not told.is_set():
        with block("of another thread"):
            for i in range(5):
                with block(f"part {i}"): mine(data).sum().backward()
thread = threading.Thread(target=other); thread.start()
while not told.is_set():
    number += 1
    with block(f"step {number}"): step()
thread.join()
""",
    "one that is dropped": """
while not told.is_set():
    number += 1
    dropped = block(f"dropped {number}"); dropped.__enter__(); step()
    del dropped; step()
""",
    "one that is long": """
with block("whole training"):
    while not told.is_set():
        number += 1
        with block(f"step {number}"):
            for _ in range(300): model(data)
            step()
""",
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_job_with_blocks_of_its_own_is_traced_again_and_again(name: str, tmp_path: Path) -> None:
    with job(TORCH + UNTIL_TOLD + BEGIN + LOOPS[name], tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            tracing = Tracing(client)
            for number in range(TRACES):
                record = tracing.take(seconds=0.02 + 0.002 * (number % 20))
                assert record[3] == "done", record
                assert all(e["args"].get("finished", True) for e in blocks(client, record))
                client.ask("drop", id=record[2])
        process.ends_well()


def blocks(client: Client, record: Any) -> list[Any]:
    text = (client.home / record[4]["file"]).read_text()
    return [e for e in json.loads(text)["traceEvents"] if e.get("cat") == "user_annotation"]


# The user's own profile begins while a block is open that began in ours.
PROFILES = """
from torch.profiler import profile, ProfilerActivity
while not told.is_set():
    number += 1
    with block(f"round {number}"):
        for _ in range(30): step()
        with profile(activities=[ProfilerActivity.CPU]) as found:
            with block("of his"): step()
            outer = block("ends after it"); outer.__enter__()
        names = [e.name for e in found.events()]
        assert names.count("of his") == 1 and names.count("aten::addmm") == 2, names
        left = [block(f"open {number} {i}") for i in range(20)]
        for one in left: one.__enter__()
        for _ in range(10): step()
        found = profile(activities=[ProfilerActivity.CPU]); found.start()
        for one in left: one.__exit__(None, None, None)
        for _ in range(10): step()
        found.stop()
        outer.__exit__(None, None, None)
"""


def test_the_users_own_profile_meets_no_block_of_ours(tmp_path: Path) -> None:
    with job(TORCH + UNTIL_TOLD + BEGIN + PROFILES, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            tracing = Tracing(client)
            for _ in range(3 * TRACES):
                answer = tracing.ask(seconds=0.03)
                if answer["ok"]:
                    tracing.end_of(answer["id"])
        process.ends_well()


HURRIED = """
sys.modules["_whyidle_agent.tracing"].LATE_NS = 1_000_000
while not told.is_set():
    number += 1
    with block(f"long step {number}"):
        for i in range(600):
            with block(f"part {number} {i}"): model(data)
        step()
"""


def test_what_ends_in_the_middle_of_a_step_leaves_no_block_open(tmp_path: Path) -> None:
    with job(TORCH + UNTIL_TOLD + BEGIN + HURRIED, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            tracing = Tracing(client)
            for _ in range(TRACES):
                assert tracing.take(seconds=0.01)[3] == "done"
        process.ends_well()


MODES = """
from torch.utils._python_dispatch import TorchDispatchMode
from torch.overrides import TorchFunctionMode
class OfTensors(TorchDispatchMode):
    def __torch_dispatch__(self, f, types, args=(), kwargs=None):
        seen.append(str(f)); return f(*args, **(kwargs or {}))
class OfFunctions(TorchFunctionMode):
    def __torch_function__(self, f, types, args=(), kwargs=None):
        seen.append(str(f)); return f(*args, **(kwargs or {}))
def counted():
    seen.clear()
    with OfTensors(), OfFunctions(), block("in modes"): model(data)
    return list(seen)
seen = []; wanted = counted(); step()
while not told.is_set():
    with block("around"):
        for _ in range(20): step()
        assert counted() == wanted
"""


def test_who_sees_whatever_is_called_sees_nothing_of_ours(tmp_path: Path) -> None:
    with job(TORCH + UNTIL_TOLD + BEGIN + MODES, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            tracing = Tracing(client)
            for _ in range(TRACES):
                assert tracing.take(seconds=0.02)[3] == "done"
        process.ends_well()


# TorchScript compiles a block from its source: it must be in a file, like the code that uses it.
SCRIPTED = """
import torch
def scripted(x):
    with torch.autograd.profiler.record_function("scripted"):
        y = x + 1
    return y
"""

LEFT = """
from annotating import scripted
kind = torch.autograd.profiler.record_function
theirs = kind.__enter__
while kind.__enter__ is theirs: step()
# A trace is on.
ours = kind.__enter__
assert ours.__qualname__ == theirs.__qualname__
import warnings; warnings.simplefilter("ignore")
assert torch.jit.script(scripted)(torch.ones(1)).item() == 2
while kind.__enter__ is ours: step()
# Over.
assert kind.__enter__ is theirs
while kind.__enter__ is theirs: step()
def over(block): return under(block)
under = kind.__enter__; kind.__enter__ = over
while not told.is_set(): step()
assert kind.__enter__ is over
with block("after"): step()
"""


def test_the_hook_of_blocks_is_there_for_moments_and_leaves_others_alone(tmp_path: Path) -> None:
    (tmp_path / "annotating.py").write_text(SCRIPTED)
    place = f"sys.path.insert(0, {str(tmp_path)!r})\n"
    with job(TORCH + place + UNTIL_TOLD + BEGIN + LEFT, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            tracing = Tracing(client)
            for _ in range(3):
                assert tracing.take(seconds=0.2)[3] == "done"
        process.ends_well()


# It seems as if the job were in the middle of entering a block, forever.
HALFWAY = """
kind = torch.autograd.profiler.record_function
class Fails(kind):
    def __init__(self): pass
def entered_but_not_begun():
    try: kind.__enter__(failing)
    except AttributeError: pass
failing = Fails()
while not told.is_set():
    number += 1
    step(); entered_but_not_begun()
    with profile(activities=[ProfilerActivity.CPU]) as found: step()
    assert [e.name for e in found.events()].count("aten::addmm") == 2
    for _ in range(200): entered_but_not_begun(); step()
"""


def test_a_block_that_could_not_be_entered_holds_up_no_end(tmp_path: Path) -> None:
    begin = BEGIN + "from torch.profiler import profile, ProfilerActivity\n"
    with job(TORCH + UNTIL_TOLD + begin + HALFWAY, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            tracing, taken = Tracing(client), 0
            while taken < TRACES:
                answer = tracing.ask(seconds=0.01)
                taken += bool(answer["ok"] and tracing.end_of(answer["id"])[3] == "done")
        process.ends_well()

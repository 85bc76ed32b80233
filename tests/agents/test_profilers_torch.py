"""The user's own profiler of PyTorch, in every order with ours: his result is whole, always."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.agents.pythons import Client
from tests.agents.traced import TORCH, UNTIL_TOLD, Tracing, job

# What the user's own profile must have: it is printed, and must be the same with ours.
COUNT = """
def begun():
    with open(mine("spool")) as file: return chr(34) + "begun" + chr(34) in file.read()
from torch.profiler import profile, schedule, ProfilerActivity
def full(found, steps):
    names = [e.name for e in found.events()]
    assert names.count("aten::addmm") == 2 * steps, names.count("aten::addmm")
"""

USES = {
    "profile": """
with profile(activities=[ProfilerActivity.CPU]) as found:
    for _ in range(5): step()
full(found, 5)
""",
    "schedule": """
import warnings; warnings.simplefilter("ignore")
kept = []
def ready_now(found): kept.append(1); full(found, 2)
plan = schedule(wait=1, warmup=2, active=2, repeat=2)
with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=ready_now) as found:
    for _ in range(11): step(); found.step()
assert len(kept) == 2, kept
""",
    "autograd": """
with torch.autograd.profiler.profile() as found:
    for _ in range(5): step()
assert sum(e.name == "aten::addmm" for e in found.function_events) == 10
""",
    "annotations": """
with torch.autograd.profiler.emit_itt():
    for _ in range(5): step()
""",
    "legacy": """
from torch.autograd.profiler_legacy import profile as legacy
import warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    with legacy() as found:
        for _ in range(5): step()
assert sum(e.name == "aten::addmm" for e in found.function_events) == 10
""",
    "stacks": """
with profile(activities=[ProfilerActivity.CPU], with_stack=True, record_shapes=True) as found:
    for _ in range(5): step()
full(found, 5)
""",
    "thread": """
import threading
def other():
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(5): step()
    full(found, 5)
thread = threading.Thread(target=other); thread.start(); thread.join()
""",
}
# Kineto says this to whoever profiles himself, and the last to whoever does so on another thread.
OF_KINETO = re.compile(r"USDT:.* (profiler_start|profiler_stop)|ERROR: External init callback .*")


def ends_with_only_its_own_words(process: subprocess.Popen[str]) -> str:
    out, errors = process.communicate("end\n", timeout=60)
    foreign = [line for line in errors.splitlines() if not OF_KINETO.fullmatch(line)]
    assert (process.returncode, foreign) == (0, []), errors
    return out


def skip_where_impossible(use: str) -> None:
    torch = pytest.importorskip("torch")
    if use == "annotations" and not torch.profiler.itt.is_available():
        pytest.skip("this torch has no ITT")


ORDERS = {
    "before": "{use}\nstart(); until(reachable); ready()\nwhile not told.is_set(): step()",
    # In a loop: each time at another moment of a window, or between two.
    "during": "start(); until(reachable); ready()\nwhile not told.is_set():\n{inner}\n step()",
    "after": "start(); until(reachable); ready()\nwhile not told.is_set(): step()\n{use}",
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("use", USES)
def test_the_user_has_his_whole_profile(use: str, order: str, tmp_path: Path) -> None:
    skip_where_impossible(use)
    inner = "\n".join(f" {line}" for line in USES[use].splitlines())
    body = ORDERS[order].format(use=USES[use], inner=inner)
    with job(TORCH + UNTIL_TOLD + COUNT + body, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            tracing = Tracing(client)
            for _ in range(3):
                answer = tracing.ask(seconds=0.1)
                if answer["ok"]:
                    tracing.end_of(answer["id"])
                else:
                    assert "profile" in answer["why"], answer
        ends_with_only_its_own_words(process)


def test_the_user_begins_while_ours_is_open_and_his_is_whole(tmp_path: Path) -> None:
    body = """
start(); until(reachable); ready()
until(begun)
with profile(activities=[ProfilerActivity.CPU]) as found:
    for _ in range(5): step()
full(found, 5)
while not told.is_set(): step()
"""
    # At rest the job makes no events: the window may be as long as is asked for.
    with job(TORCH + UNTIL_TOLD + COUNT + body, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            tracing = Tracing(client)
            answer = tracing.ask(seconds=10)
            assert answer["ok"]
            record = tracing.end_of(answer["id"])
            assert record[3] == "failed"
            assert "profile" in record[4]["why"], record
            # And when he has ended, ours works again.
            assert tracing.take(seconds=0.05)[3] == "done"
        ends_with_only_its_own_words(process)


def test_a_profile_that_was_prepared_before_the_agent_came_is_left_alone(tmp_path: Path) -> None:
    body = """
found = profile(activities=[ProfilerActivity.CPU]); found.prepare_trace()
start(); until(reachable); ready()
told.wait()
found.start_trace(); step(); found.stop_trace()
full(found, 1)
"""
    with job(TORCH + UNTIL_TOLD + COUNT + body, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            assert "torch.profiler" in Tracing(client).ask()["why"]
        ends_with_only_its_own_words(process)


def test_a_job_that_profiles_itself_again_and_again_survives_twenty_traces(tmp_path: Path) -> None:
    body = """
start(); until(reachable); ready()
rounds = 0
while not told.is_set():
    for _ in range(100): step()
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(3): step()
    full(found, 3); rounds += 1
print(rounds)
"""
    taken: list[Any] = []
    with job(TORCH + UNTIL_TOLD + COUNT + body, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            # The pause is for people; here it is the orders that count.
            tracing = Tracing(client)
            while len(taken) < (20 if os.environ.get("WHYIDLE_LONG") == "1" else 6):
                answer = tracing.ask(seconds=0.02)
                if answer["ok"]:
                    taken.append(tracing.end_of(answer["id"]))
        assert int(ends_with_only_its_own_words(process)) > 0


def test_what_was_wrapped_is_given_back_and_what_others_wrapped_is_left(tmp_path: Path) -> None:
    body = """
import socket
HOME = "torch._C._autograd"
PLACES = [HOME, "torch.autograd", "torch.autograd.profiler"]
NAMES = ["_prepare_profiler", "_enable_profiler", "_disable_profiler"]
def now(): return [getattr(sys.modules[p], n, None) for p in PLACES for n in NAMES]
before = now()
start(); until(reachable); until(lambda: now()[0] is not before[0])
ours = torch.autograd.profiler._enable_profiler
def theirs(*a): return ours(*a)
torch.autograd.profiler._enable_profiler = theirs
s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect(mine())
s.sendall(b'{"do": "leave"}\\n'); assert s.recv(4096) == b'{"ok": true}\\n'; s.recv(1); s.close()
until(lambda: not reachable())
assert torch.autograd.profiler._enable_profiler is theirs
torch.autograd.profiler._enable_profiler = before[7]
assert now() == before
torch.autograd.profiler._enable_profiler = theirs
gc.collect()
with profile(activities=[ProfilerActivity.CPU]) as found: step()
full(found, 1)
ready()
"""
    with job(TORCH + UNTIL_TOLD + COUNT + body, tmp_path) as process:
        ends_with_only_its_own_words(process)


LOSS = """
start(); until(reachable); ready()
told.wait(0) or time.sleep(0)
losses = [step() for _ in range(3000)]
told.wait()
print([loss.hex() for loss in losses[-3:]])
"""


def test_the_loss_is_the_same_with_and_without_traces(tmp_path: Path) -> None:
    found: list[str] = []
    for traces in (0, 2):
        folder = tmp_path / str(traces)
        folder.mkdir()
        with job(TORCH + UNTIL_TOLD + LOSS, folder) as process:
            with Client(folder, process.pid) as client:
                for _ in range(traces):
                    assert Tracing(client).take(seconds=0.05)[3] == "done"
            found.append(ends_with_only_its_own_words(process))
    assert found[0] == found[1]


RELIED_ON = [
    ("torch._C._autograd", "_prepare_profiler"),
    ("torch._C._autograd", "_enable_profiler"),
    ("torch._C._autograd", "_disable_profiler"),
    ("torch._C._autograd", "_enable_profiler_legacy"),
    ("torch._C._autograd", "_disable_profiler_legacy"),
    ("torch._C._profiler", "ProfilerConfig"),
    ("torch._C._profiler", "ProfilerState"),
    ("torch._C._profiler", "ProfilerActivity"),
    ("torch._C._profiler", "_ExperimentalConfig"),
    ("torch.autograd.profiler", "_is_profiler_enabled"),
    ("torch.cuda", "_initialized"),
    ("ctypes", "CDLL"),
]


@pytest.mark.parametrize(("module", "name"), RELIED_ON)
def test_without_a_name_that_it_relies_on_there_is_no_trace(
    module: str, name: str, tmp_path: Path
) -> None:
    body = f"""
del sys.modules[{module!r}].__dict__[{name!r}]
start(); until(reachable); ready()
told.wait()
"""
    with job(TORCH + UNTIL_TOLD + body, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            answer = Tracing(client).ask()
            assert not answer["ok"]
            assert name in answer["why"] or "failed" in answer["why"], answer
        ends_with_only_its_own_words(process)

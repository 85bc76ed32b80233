"""The user's own profiler of PyTorch, in every order with ours: his result is whole, always."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.agents.pythons import Client
from tests.agents.traced import TORCH, UNTIL_TOLD, Job, Tracing, job
from tests.longer import LONG, STRESS

# What the user's own profile must have: it is printed, and must be the same with ours.
COUNT = """
def is_open():
    kind = sys.modules["_whyidle_agent.torch.profilers"].Profilers
    # One look at everything is enough: the agent has only one.
    found = vars(sys).get("of_ours") or [o for o in gc.get_objects() if type(o) is kind]
    sys.of_ours = found
    return any(o.is_open() for o in found)
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
with torch.autograd.profiler.emit_itt(torch.profiler.itt.is_available()):
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
# Not every torch has ITT: the job itself checks.
ALL = list(USES)


def uses(names: list[str], indent: str = "") -> str:
    return "\n".join(f"{indent}{line}" for name in names for line in USES[name].splitlines())


def traces_of(process: Job, folder: Path, number: int) -> list[Any]:
    """Ask so often; a request while the user profiles is refused with that reason."""
    found = []
    with Client(folder, process.pid) as client:
        tracing = Tracing(client)
        for _ in range(number):
            answer = tracing.ask(seconds=0.1)
            if answer["ok"]:
                found.append(tracing.end_of(answer["id"]))
            else:
                assert "profile" in answer["why"], answer
    return found


def test_the_user_has_his_whole_profile_before_and_after(tmp_path: Path) -> None:
    work = "start(); until(reachable); ready()\nwhile not told.is_set(): step(); time.sleep(0.001)"
    body = "\n".join([uses(ALL), work, uses(ALL)])
    with job(TORCH + UNTIL_TOLD + COUNT + body, tmp_path) as process:
        assert traces_of(process, tmp_path, 2)[-1][3] == "done"
        process.ends_well()


# The first profile of all is another thread's; and then all threads take turns.
@pytest.mark.parametrize("names", [["thread"], ALL], ids=["thread", "all"])
def test_the_user_has_his_whole_profile_during(names: list[str], tmp_path: Path) -> None:
    # In a loop: each time at another moment of a window, or between two.
    body = f"""
start(); until(reachable)
sys.modules["_whyidle_agent.tracing"].LEAST_PAUSE_NS = 1
ready()
while not told.is_set():
{uses(names, " ")}
 for _ in range(30): step()
"""
    with job(TORCH + UNTIL_TOLD + COUNT + body, tmp_path) as process:
        traces_of(process, tmp_path, 12 if LONG else 4)
        process.ends_well()


def test_the_user_begins_on_another_thread_while_ours_is_open_and_his_is_whole(
    tmp_path: Path,
) -> None:
    body = """
start(); until(reachable); ready()
go = threading.Event()
def other():
    go.wait()
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(5): model(data)
    full(found, 5)
    print("whole", flush=True)
thread = threading.Thread(target=other); thread.start()
while not is_open(): step()
go.set(); thread.join()
while not told.is_set(): step(); time.sleep(0.001)
"""
    with job(TORCH + UNTIL_TOLD + COUNT + body, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            tracing = Tracing(client)
            # The main thread waits for the other in C: it is woken to end ours, and waits on.
            answer = tracing.ask(seconds=10)
            process.hear("whole")
            assert "profile" in tracing.end_of(answer["id"])[4]["why"]
            assert tracing.take(seconds=0.05)[3] == "done"
        process.ends_well()


def test_the_user_begins_while_ours_is_open_and_his_is_whole(tmp_path: Path) -> None:
    body = """
start(); until(reachable); ready()
while not is_open(): step()
with profile(activities=[ProfilerActivity.CPU]) as found:
    for _ in range(5): step()
full(found, 5)
while not told.is_set(): step(); time.sleep(0.001)
"""
    with job(TORCH + UNTIL_TOLD + COUNT + body, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            tracing = Tracing(client)
            answer = tracing.ask(seconds=10)
            assert answer["ok"]
            record = tracing.end_of(answer["id"])
            assert record[3] == "failed"
            assert "profile" in record[4]["why"], record
            # And when the user's profile has ended, ours works again.
            assert tracing.take(seconds=0.05)[3] == "done"
        process.ends_well()


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
        process.ends_well()


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
            # The pause between traces is for people; this test is about the orders.
            tracing = Tracing(client)
            while len(taken) < (20 if STRESS else 6):
                answer = tracing.ask(seconds=0.02)
                if answer["ok"]:
                    taken.append(tracing.end_of(answer["id"]))
        assert int(process.ends_well()) > 0


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
        process.ends_well()


LOSS = """
start(); until(reachable); ready()
losses = []
while not told.is_set() or len(losses) < 3000: losses.append(step())
print([loss.hex() for loss in losses[2997:3000]])
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
            found.append(process.ends_well())
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


def test_without_a_name_that_it_relies_on_there_is_no_trace(tmp_path: Path) -> None:
    body = """
for line in sys.stdin:
    if line == "end\\n": break
    module, name = line.split()
    names = sys.modules[module].__dict__; kept = names.pop(name)
    start(); until(reachable); ready()
    sys.stdin.readline()
    until(lambda: not os.path.exists(mine())); names[name] = kept; ready()
"""
    with job(TORCH + "ready()\n" + body, tmp_path) as process:
        for module, name in RELIED_ON:
            process.tell(f"{module} {name}")
            process.hear("ready")
            with Client(tmp_path, process.pid) as client:
                answer = Tracing(client).ask()
                assert not answer["ok"], name
                assert name in answer["why"] or "failed" in answer["why"], answer
                client.ask("leave")
            process.tell()
            process.hear("ready")
        process.ends_well()

"""The user's own marks of steps are noticed, also when they come late, and released at the end."""

from __future__ import annotations

from pathlib import Path

from tests.agents.pythons import AGENTS, Client, ends_well, every_python, job
from whyidle.agents import wire

# As an import would leave it, also where this Python is too old for the rest.
IMPORT = f"""
import types
def bring(name="whyidle.monitor.core.marks"):
    sys.modules["whyidle"] = types.ModuleType("whyidle")
    sys.modules["whyidle.monitor"] = types.ModuleType("whyidle.monitor")
    spec = importlib.util.spec_from_file_location(
        name, {str(AGENTS.parent / "monitor" / "core" / "marks.py")!r})
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
def train(done):
    while not done():
        with marks.step():
            time.sleep(0.002)
"""


@every_python
def test_steps_are_heard_from_a_module_that_comes_after_the_agent(
    python: str, tmp_path: Path
) -> None:
    source = f"""{IMPORT}
start(); until(reachable)
ready(); sys.stdin.readline()
marks = bring()
train(lambda: not reachable())
until(lambda: marks.listener is None)
with marks.step(): pass
"""
    with job(source, tmp_path, python) as process:
        with Client(tmp_path, process.pid) as client:
            client.wait_for("gauges")
            assert process.stdin is not None
            process.stdin.write("bring it\n")
            process.stdin.flush()
            _, _, source_, span, count, durations = client.wait_for("steps")
            assert source_ == "whyidle.step"
            assert span > 0
            assert count >= len(durations) >= 1
            assert min(durations) > 1_000_000
            assert client.wait_for("gauges")[2][wire.STEPS] >= count
            client.ask("leave")
        ends_well(process)


def test_two_threads_have_steps_of_their_own(tmp_path: Path) -> None:
    source = f"""{IMPORT}
import threading
marks = bring()
start(); until(reachable)
threads = [threading.Thread(target=train, args=(lambda: not reachable(),)) for _ in range(2)]
for each in threads: each.start()
ready()
for each in threads: each.join()
"""
    with job(source, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            durations = client.wait_for("steps")[5]
            # Both threads' ends together would come twice as often.
            assert min(durations) > 1_800_000
            client.ask("leave")
        ends_well(process)


def test_steps_are_heard_from_an_older_whyidle_in_the_job(tmp_path: Path) -> None:
    source = f"""{IMPORT}
marks = bring("whyidle.monitor.marks")
start(); until(reachable); ready()
train(lambda: not reachable())
until(lambda: marks.listener is None)
"""
    with job(source, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            assert client.wait_for("steps")[2] == "whyidle.step"
            client.ask("leave")
        ends_well(process)


def test_somebody_elses_listener_is_left_alone(tmp_path: Path) -> None:
    source = f"""{IMPORT}
marks = bring()
marks.listener = mine_own = lambda: None
start(); until(reachable); ready()
train(lambda: not reachable())
assert marks.listener is mine_own
"""
    with job(source, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            client.wait_for("gauges")
            assert wire.STEPS not in client.wait_for("gauges")[2]
            client.ask("leave")
        ends_well(process)


@every_python
def test_what_was_found_lies_where_the_job_looks_and_is_taken_away(
    python: str, tmp_path: Path
) -> None:
    source = f"""{IMPORT}
marks = bring()
start(); until(reachable); ready()
until(lambda: marks.told is not None)
assert marks.told == {{"run": 7, "parts": {{"compute": 0.25}}}}
print("told", flush=True)
until(lambda: not reachable())
until(lambda: marks.told is None)
"""
    with job(source, tmp_path, python) as process:
        with Client(tmp_path, process.pid) as client:
            said = {"run": 7, "parts": {"compute": 0.25}}
            assert client.ask("tell", said=said) == {"ok": True, "heard": True}
            assert process.stdout is not None
            assert "told" in process.stdout.readline()
            client.ask("leave")
        ends_well(process)


@every_python
def test_a_marked_phase_of_the_main_thread_stands_beside_its_samples(
    python: str, tmp_path: Path
) -> None:
    source = f"""{IMPORT}
import threading
marks = bring()
over = threading.Event()
def other():
    with marks.phase("logging"): over.wait()
threading.Thread(target=other).start()
start(); until(reachable); ready()
with marks.phase("validation" + 99 * "x"): sys.stdin.readline()
sys.stdin.readline()
marks.shown = bytearray(7)
sys.stdin.readline()
marks.shown = "nothing of the kind"
until(lambda: not reachable())
over.set()
"""
    with job(source, tmp_path, python) as process:
        with Client(tmp_path, process.pid) as client:
            assert process.stdin is not None
            assert client.wait_for("gauges")[2][wire.PHASE_AT] > 0
            client.wait_for("stacks")
            rows = client.wait_for("stacks")[4]
            assert [row[6:] for row in rows] == [[0, 0, "validationxxxxxx"]]
            for _ in range(3):
                process.stdin.write("go on\n")
                process.stdin.flush()
                client.wait_for("gauges")
                client.wait_for("stacks")
                assert {len(row) for row in client.wait_for("stacks")[4]} == {6}
            client.ask("leave")
        ends_well(process)


def test_a_job_that_has_no_place_for_it_hears_nothing(tmp_path: Path) -> None:
    source = "start(); until(reachable); ready(); until(lambda: not reachable())"
    with job(source, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            assert client.ask("tell", said={}) == {"ok": True, "heard": False}
            client.ask("leave")
        ends_well(process)

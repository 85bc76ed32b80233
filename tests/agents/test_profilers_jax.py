"""The user's own profiler of JAX, in every order with ours: his result is whole, always."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.pythons import Client
from tests.agents.traced import JAX, UNTIL_TOLD, Tracing, job

COUNT = """
import glob, shutil, tempfile
def begun():
    with open(mine("spool")) as file: return chr(34) + "begun" + chr(34) in file.read()
def full(folder):
    files = glob.glob(folder + "/**/*.pb", recursive=True)
    assert len(files) == 1, files
    with open(files[0], "rb") as file: assert b"PjitFunction" in file.read()
    shutil.rmtree(folder)
"""

USES = {
    "start and stop": """
folder = tempfile.mkdtemp()
jax.profiler.start_trace(folder)
for _ in range(5): step()
jax.profiler.stop_trace(); full(folder)
""",
    "with": """
folder = tempfile.mkdtemp()
with jax.profiler.trace(folder):
    for _ in range(5): step()
full(folder)
""",
    "thread": """
def other():
    folder = tempfile.mkdtemp()
    with jax.profiler.trace(folder):
        for _ in range(5): step()
    full(folder)
thread = threading.Thread(target=other); thread.start(); thread.join()
""",
}


def uses(indent: str = "") -> str:
    return "\n".join(f"{indent}{line}" for use in USES.values() for line in use.splitlines())


WORK = "start(); until(reachable); ready()\nwhile not told.is_set():"
ORDERS = {
    "before and after": f"{uses()}\n{WORK} step()\n{uses()}",
    "during": f"{WORK}\n{uses(' ')}\n step()",
}


@pytest.mark.parametrize("order", ORDERS)
def test_the_user_has_his_whole_trace(order: str, tmp_path: Path) -> None:
    with job(JAX + UNTIL_TOLD + COUNT + ORDERS[order], tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            tracing = Tracing(client)
            for _ in range(4):
                answer = tracing.ask(seconds=0.1)
                if answer["ok"]:
                    tracing.end_of(answer["id"])
                else:
                    assert "profile" in answer["why"], answer
        process.ends_well()


def test_the_user_begins_while_ours_is_open_and_only_waits(tmp_path: Path) -> None:
    body = """
start(); until(reachable); ready()
until(begun)
folder = tempfile.mkdtemp()
jax.profiler.start_trace(folder)
for _ in range(5): step()
jax.profiler.stop_trace(); full(folder)
while not told.is_set(): step(); time.sleep(0.001)
"""
    with job(JAX + UNTIL_TOLD + COUNT + body, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            tracing = Tracing(client)
            assert tracing.take(seconds=0.5)[3] in ("done", "failed")
            answer = tracing.ask(seconds=0.05)
            while not answer["ok"]:
                assert "jax.profiler" in answer["why"], answer
                answer = tracing.ask(seconds=0.05)
            assert tracing.end_of(answer["id"])[3] in ("done", "failed")
        process.ends_well()


def test_a_job_with_a_profiler_server_is_traced_too(tmp_path: Path) -> None:
    body = """
import socket
free = socket.socket(); free.bind(("127.0.0.1", 0)); port = free.getsockname()[1]; free.close()
server = jax.profiler.start_server(port)
start(); until(reachable); ready()
while not told.is_set(): step(); time.sleep(0.001)
"""
    with job(JAX + UNTIL_TOLD + body, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            assert Tracing(client).take()[3] == "done"
        process.process.communicate("end\n", timeout=60)
        assert process.process.returncode == 0


def test_a_session_that_somebody_else_began_is_left_alone(tmp_path: Path) -> None:
    body = """
from jax._src.lib import _profiler
session = _profiler.ProfilerSession(_profiler.ProfileOptions())
start(); until(reachable); ready()
while not told.is_set(): step(); time.sleep(0.001)
assert b"PjitFunction" in session.stop()
"""
    with job(JAX + UNTIL_TOLD + body, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            record = Tracing(client).take()
            assert record[3] == "failed"
            assert "profil" in record[4]["why"]
        process.ends_well()


RELIED_ON = [
    ("jax._src.profiler", "_profile_state"),
    ("jax._src.profiler", "_profiler"),
    ("jax._src.xla_bridge", "_backends"),
    ("jax._src.profiler._profile_state", "lock"),
    ("jax._src.profiler._profile_state", "profile_session"),
]


def test_without_a_name_that_it_relies_on_there_is_no_trace(tmp_path: Path) -> None:
    body = """
import jax._src.profiler, jax._src.xla_bridge
for line in sys.stdin:
    if line == "end\\n": break
    place, name = line.split()
    names = eval(place).__dict__; kept = names.pop(name)
    start(); until(reachable); ready()
    sys.stdin.readline()
    until(lambda: not os.path.exists(mine())); names[name] = kept; ready()
"""
    with job(JAX + "ready()\n" + body, tmp_path) as process:
        for place, name in RELIED_ON:
            process.tell(f"{place} {name}")
            process.hear("ready")
            with Client(tmp_path, process.pid) as client:
                answer = Tracing(client).ask()
                assert not answer["ok"], name
                assert name in answer["why"], answer
                client.ask("leave")
            process.tell()
            process.hear("ready")
        process.ends_well()

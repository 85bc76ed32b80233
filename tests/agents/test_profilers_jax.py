"""The user's own profiler of JAX, in every order with ours: his result is whole, always."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.pythons import Client, ends_well
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
ORDERS = {
    "before": "{use}\nstart(); until(reachable); ready()\nwhile not told.is_set(): step()",
    "during": "start(); until(reachable); ready()\nwhile not told.is_set():\n{inner}\n step()",
    "after": "start(); until(reachable); ready()\nwhile not told.is_set(): step()\n{use}",
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("use", USES)
def test_the_user_has_his_whole_trace(use: str, order: str, tmp_path: Path) -> None:
    inner = "\n".join(f" {line}" for line in USES[use].splitlines())
    body = ORDERS[order].format(use=USES[use], inner=inner)
    with job(JAX + UNTIL_TOLD + COUNT + body, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            tracing = Tracing(client)
            for _ in range(3):
                answer = tracing.ask(seconds=0.1)
                if answer["ok"]:
                    tracing.end_of(answer["id"])
                else:
                    assert "profile" in answer["why"], answer
        ends_well(process)


def test_the_user_begins_while_ours_is_open_and_only_waits(tmp_path: Path) -> None:
    body = """
start(); until(reachable); ready()
until(begun)
folder = tempfile.mkdtemp()
jax.profiler.start_trace(folder)
for _ in range(5): step()
jax.profiler.stop_trace(); full(folder)
while not told.is_set(): step()
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
        ends_well(process)


def test_a_job_with_a_profiler_server_is_traced_too(tmp_path: Path) -> None:
    body = """
import socket
free = socket.socket(); free.bind(("127.0.0.1", 0)); port = free.getsockname()[1]; free.close()
server = jax.profiler.start_server(port)
start(); until(reachable); ready()
while not told.is_set(): step()
"""
    with job(JAX + UNTIL_TOLD + body, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            assert Tracing(client).take()[3] == "done"
        process.communicate("end\n", timeout=60)
        assert process.returncode == 0


def test_a_session_that_somebody_else_began_is_left_alone(tmp_path: Path) -> None:
    body = """
from jax._src.lib import _profiler
session = _profiler.ProfilerSession(_profiler.ProfileOptions())
start(); until(reachable); ready()
while not told.is_set(): step()
assert b"PjitFunction" in session.stop()
"""
    with job(JAX + UNTIL_TOLD + body, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            record = Tracing(client).take()
            assert record[3] == "failed"
            assert "profil" in record[4]["why"]
        ends_well(process)


RELIED_ON = [
    ("jax._src.profiler", "_profile_state"),
    ("jax._src.profiler", "_profiler"),
    ("jax._src.xla_bridge", "_backends"),
]
INSIDE = ["lock", "profile_session"]


@pytest.mark.parametrize(("module", "name"), RELIED_ON)
def test_without_a_name_that_it_relies_on_there_is_no_trace(
    module: str, name: str, tmp_path: Path
) -> None:
    body = f"""
del sys.modules[{module!r}].__dict__[{name!r}]
start(); until(reachable); ready()
told.wait()
import _thread; os._exit(0)
"""
    with job(JAX + UNTIL_TOLD + body, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            answer = Tracing(client).ask()
            assert not answer["ok"]
            assert name in answer["why"], answer
        ends_well(process)


@pytest.mark.parametrize("name", INSIDE)
def test_without_a_part_of_its_state_there_is_no_trace(name: str, tmp_path: Path) -> None:
    body = f"""
del sys.modules["jax._src.profiler"]._profile_state.{name}
start(); until(reachable); ready()
told.wait()
"""
    with job(JAX + UNTIL_TOLD + body, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            assert name in Tracing(client).ask()["why"]
        ends_well(process)

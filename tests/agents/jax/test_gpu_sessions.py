"""Where JAX has a GPU, a session of ours ends on the job's main thread, whatever that does.

Here the CPU's client stands for the GPU's, and a session notes which thread ends it.
"""

from __future__ import annotations

import textwrap
import time
from pathlib import Path

import pytest

from tests.agents.pythons import Client
from tests.agents.traced import JAX, UNTIL_TOLD, Tracing, job

AS_ON_A_GPU = """
import types
from jax._src import profiler, xla_bridge
xla_bridge._backends["cuda"] = xla_bridge._backends["cpu"]
ended = []
class Session:
    def __init__(self, options): self.theirs = theirs.ProfilerSession(options)
    def __getattr__(self, name): return getattr(self.theirs, name)
    def stop(self):
        ended.append(threading.get_ident())
        return self.theirs.stop()
theirs = profiler._profiler
profiler._profiler = types.SimpleNamespace(
    ProfileOptions=theirs.ProfileOptions, ProfilerSession=Session)
def ends_on_main(at_least=1):
    assert len(ended) >= at_least, ended
    assert {*ended} == {threading.main_thread().ident}, ended
def begun():
    with open(mine("spool")) as file: return chr(34) + "begun" + chr(34) in file.read()
"""
START = "core = load(); core.start({'method': 'ptrace', 'grace': 60}); until(reachable); ready()\n"
# What the main thread does meanwhile: works, computes without a read, waits for a lock.
STYLES = {
    "reads each step": "while not told.is_set(): step()",
    "seldom reads": "while not told.is_set(): weights = update(weights, data)",
    "waits for its loader": """
import queue
batches = queue.Queue(2)
def load_them():
    while not told.is_set():
        time.sleep(0.03)
        try: batches.put(data, timeout=0.5)
        except queue.Full: pass
threading.Thread(target=load_them, daemon=True).start()
while not told.is_set(): batches.get(); step()
""",
    "sleeps in C": "while not told.is_set(): step(); time.sleep(0.05)",
    "one jit in a long loop of Python": """
while not told.is_set():
    step(); sum(i for i in range(200_000))
""",
}
TRAINS = """
def train():
    while not told.is_set(): step()
worker = threading.Thread(target=train); worker.start()
"""


def program(*parts: str) -> str:
    return "\n".join([JAX + UNTIL_TOLD + AS_ON_A_GPU, *map(textwrap.dedent, parts)])


@pytest.mark.parametrize("style", STYLES)
def test_it_ends_on_the_main_thread(style: str, tmp_path: Path) -> None:
    with job(program(START, STYLES[style], "ends_on_main()"), tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            tracing = Tracing(client)
            answer = tracing.ask(seconds=0.1)
            while not answer["ok"]:  # it has read nothing yet
                assert "its main thread waits" in answer["why"], answer
                answer = tracing.ask(seconds=0.1)
            record = tracing.end_of(answer["id"])
            assert record[3] == "done", record
            assert record[4]["held_ns"] > 0
        process.ends_well()


def test_none_is_taken_where_another_thread_computes(tmp_path: Path) -> None:
    body = "worker.join(); assert ended == []"
    with job(program(START, TRAINS, body), tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            answer = Tracing(client).ask()
            while answer["ok"]:  # its first read may not be over
                Tracing(client).end_of(answer["id"])
                answer = Tracing(client).ask()
            assert "could" in answer["why"], answer
        process.process.communicate("end\n", timeout=60)


# An array of a closure, of a module, of a method's self, and of NumPy.
BIG = """
import functools
big = jax.random.normal(jax.random.key(0), (2048, 2048))
class Model:
    def __init__(self, table): self.table = table
    @functools.partial(jax.jit, static_argnums=0)
    def __call__(self, x): return x @ self.table
def closing(table): return jax.jit(lambda x: x @ table)
"""
CAPTURED = {
    "closure": "run = closing(big)",
    "global": "run = jax.jit(lambda x: x @ big)",
    "method": "run = Model(big)",
    "as numpy": "import numpy; table = numpy.asarray(big); run = jax.jit(lambda x: x @ table)",
}
RUNS = "while not told.is_set(): step(); float(run(jnp.ones((1, 2048))).sum())"


def refused_for_constants(client: Client, *, wanted: bool = True) -> str:
    """Ask until a trace is refused for them, or until none is; return the answer."""
    tracing, until = Tracing(client), time.monotonic() + 60
    while time.monotonic() < until:
        answer = tracing.ask(seconds=0.1)
        if answer["ok"]:
            tracing.end_of(answer["id"])
        if ("constant" in answer.get("why", "")) is wanted:
            return str(answer.get("why", ""))
    raise AssertionError(answer)


@pytest.mark.parametrize("style", CAPTURED)
def test_none_is_taken_where_a_program_holds_a_large_constant(style: str, tmp_path: Path) -> None:
    with job(program(BIG, CAPTURED[style], START, RUNS), tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            assert "17 MB as constants, most of it jit_" in refused_for_constants(client)
        process.ends_well()


def test_a_program_that_is_gone_holds_nothing_up(tmp_path: Path) -> None:
    body = """
    run = closing(big); float(run(jnp.ones((1, 2048))).sum())
    internals = importlib.import_module("_whyidle_agent.jax.internals")
    until(lambda: internals.constants or step() is None)
    refused = time.monotonic() + 5
    while time.monotonic() < refused: step()
    del run; jax.clear_caches()
    while not told.is_set(): step()
    """
    with job(program(BIG, START, body), tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            refused_for_constants(client)
            refused_for_constants(client, wanted=False)
        process.ends_well()


def test_an_array_that_is_passed_holds_nothing_up(tmp_path: Path) -> None:
    body = """
    run = jax.jit(lambda x, table: x @ table + 1)
    internals = importlib.import_module("_whyidle_agent.jax.internals")
    while not told.is_set():
        step(); float(run(jnp.ones((1, 2048)), big).sum())
    assert not internals.constants, internals.constants
    """
    with job(program(BIG, START, body), tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            tracing = Tracing(client)
            answer = tracing.ask(seconds=0.1)
            while not answer["ok"]:
                assert "its main thread waits" in answer["why"], answer
                answer = tracing.ask(seconds=0.1)
            assert tracing.end_of(answer["id"])[3] == "done"
        process.ends_well()


def test_the_users_own_waits_for_it_on_the_main_thread_and_on_another(tmp_path: Path) -> None:
    body = """
    import glob, shutil, tempfile
    until(begun)
    def own():
        folder = tempfile.mkdtemp()
        with jax.profiler.trace(folder):
            step()
        assert len(glob.glob(folder + "/**/*.pb", recursive=True)) == 1
        shutil.rmtree(folder)
    own()
    while not told.is_set():
        step()
        other = threading.Thread(target=own); other.start(); other.join()
    """
    with job(program(START, body), tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            tracing = Tracing(client)
            for _ in range(4):
                answer = tracing.ask(seconds=0.1)
                if answer["ok"]:
                    assert tracing.end_of(answer["id"])[3] in ("done", "failed")
        process.ends_well()


def test_an_agent_that_leaves_ends_its_session_on_the_main_thread(tmp_path: Path) -> None:
    body = """
    while not told.is_set(): step()
    ends_on_main()
    """
    with job(program(START, body), tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            client.ask("trace", seconds=5)
            Tracing(client).until_begun()
            client.ask("leave")
        process.ends_well()

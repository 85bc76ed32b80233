"""When the agent leaves, JAX is as it was; where another version lacks a name, one part is off."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.jax.jobs import JAX, job, run

TRAIN = """
import jax, jax.numpy as jnp, numpy as np
from jax._src import array, dispatch, monitoring, pjit, xla_bridge
import jax._src.interpreters.partial_eval as pe
@jax.jit
def f(x): return (x * 2).sum()
def step(i):
    with jax.profiler.StepTraceAnnotation("train", step_num=i):
        value = float(f(jax.device_put(np.ones(i % 5 + 1))))
    assert value == 2 * (i % 5 + 1), value
    assert jnp.ones(2).tolist() == [1.0, 1.0]
    jax.profiler.TraceAnnotation("other")
step(0)
"""
STATE = """
def state():
    return {
        "value": vars(array.ArrayImpl)["_value"],
        "mark": vars(jax.profiler.StepTraceAnnotation)["__init__"],
        "put": dispatch._batched_device_put_impl,
        "listeners": monitoring._event_duration_secs_listeners + monitoring._event_listeners,
        "explain": jax.config.jax_explain_cache_misses, "filters": list(pe.logger.filters),
    }
"""


def test_all_is_as_before(tmp_path: Path) -> None:
    source = (
        TRAIN
        + STATE
        + """
theirs = lambda *a, **k: None
jax.monitoring.register_event_duration_secs_listener(theirs)
before = state()
for _ in range(2):
    attach(); until(lambda: state()["mark"] is not before["mark"])
    inside = state()
    assert inside["value"] is not before["value"] and inside["put"] is not before["put"]
    assert len(inside["listeners"]) == len(before["listeners"]) + 2
    for i in range(10): step(i)
    leave(); until(lambda: tasks_of_ours() == 0)
    after = state()
    assert after == before, (before, after)
    assert all(after[k] is before[k] for k in ("value", "mark", "put"))
    for i in range(10): step(i)
gc.collect()
kinds = ["%s.%s" % (type(o).__module__, type(o).__name__) for o in gc.get_objects()]
left = [k for k in kinds if k.startswith("_whyidle_agent.jax.") and "tracing." not in k]
assert not left, left
"""
    )
    ours = "def tasks_of_ours(): return len([m for m in sys.modules if m == '_whyidle_agent'])\n"
    run(ours + source, tmp_path, JAX)


def test_a_hook_that_came_after_ours_stays(tmp_path: Path) -> None:
    source = (
        TRAIN
        + STATE
        + """
before = state()
attach(); until(lambda: state()["mark"] is not before["mark"])
calls = []
ours = state()
array.ArrayImpl._value = property(lambda self: (calls.append("value"), ours["value"].fget(self))[1])
def put(*a, **k): calls.append("put"); return ours["put"](*a, **k)
dispatch._batched_device_put_impl = put
def mark(self, *a, **k): calls.append("mark"); ours["mark"](self, *a, **k)
jax.profiler.StepTraceAnnotation.__init__ = mark
step(0); theirs = state()
leave(); until(lambda: "_whyidle_agent" not in sys.modules)
assert state()["value"] is theirs["value"]
assert state()["put"] is put and state()["mark"] is mark
del calls[:]; step(3)
assert set(calls) == {"value", "put", "mark"}
gc.collect()
kinds = ["%s.%s" % (type(o).__module__, type(o).__name__) for o in gc.get_objects()]
left = [k for k in kinds if k.startswith("_whyidle_agent.jax.") and "tracing." not in k]
assert not left, left
"""
    )
    run(source, tmp_path, JAX)


LOST = [
    ("del monitoring.register_event_duration_secs_listener", "compilations"),
    ("del monitoring.register_event_listener", "compilations"),
    ("del monitoring.unregister_event_duration_listener", ""),
    ("del monitoring.unregister_event_listener", ""),
    ("del sys.modules['jax._src.monitoring']", "compilations"),
    ("monitoring.clear_event_listeners()  # LATER", "compilations"),
    ("del dispatch.JAXPR_TRACE_EVENT", "compilations"),
    ("del dispatch.JAXPR_TO_MLIR_MODULE_EVENT", "compilations"),
    ("del dispatch.BACKEND_COMPILE_EVENT", "compilations"),
    ("pjit._trace_for_jit, was = None, pjit._trace_for_jit", "reasons of compilations"),
    ("del dispatch._batched_device_put_impl", "count of device_put"),
    ("del jax._src.debugging.debug_callback_p", "callbacks of compiled programs"),
    ("del jax._src.debugging.debug_callback_p.impl", "callbacks of compiled programs"),
    ("del jax._src.callback.io_callback_impl", "callbacks of compiled programs"),
    ("del sys.modules['jax._src.array']", "reads of values"),
    ("del array.ArrayImpl", "reads of values"),
    ("array.ArrayImpl._value = array.ArrayImpl._value.fget", "reads of values"),
    ("del jax.profiler.StepTraceAnnotation", "steps by StepTraceAnnotation"),
    ("xla_bridge._backends = None", "compiled programs"),
    ("del xla_bridge._backends", "live arrays"),
    ("del xla_bridge._default_backend", "devices"),
    ("del sys.modules['jax._src.config']", "debugging modes"),
]
# Statements of a job that work without the name that the test removes.
GOES_ON = """
g = jax.jit(lambda x: x + 1)
y = jnp.ones(3)
def step(i): g(y)
step(0)
"""


@pytest.mark.parametrize(("line", "part"), LOST, ids=[line for line, _ in LOST])
def test_a_name_that_is_not_there_turns_one_part_off(line: str, part: str, tmp_path: Path) -> None:
    later = "LATER" in line
    source = TRAIN + GOES_ON + ("" if later else line) + "\nattach()\n"
    # JAX looks for it when the job ends.
    source += "import atexit; atexit.register(setattr, xla_bridge, '_default_backend', None)\n"
    source += (
        f"ready(); sys.stdin.readline(); {line}\nprint('done', flush=True)\nobey(step)"
        if later
        else "obey(step)"
    )
    with job(source, tmp_path, JAX) as it:
        if later:
            it.gauges()
            it.step(0)
            assert it.process.stdout is not None
            assert it.process.stdout.readline() == "ready\n"
        figures = it.gauges()
        it.step(20)
        messages = it.messages()
        if part:
            assert [line for line in messages if line.startswith(f"no {part}: ")], messages
        else:
            assert messages == []
        if "xla_bridge" not in line:
            assert len(messages) <= 1
        # The other parts go on.
        assert ("compiles" in figures) is (part != "compilations")
        assert ("syncs" in figures) is (part != "reads of values")
        assert ("device_puts" in figures) is (part != "count of device_put")


METHODS = [
    ("live_executables", "compiled programs"),
    ("live_arrays", "live arrays"),
    ("local_devices", "devices"),
]


@pytest.mark.parametrize(("name", "part"), METHODS)
def test_a_client_without_a_method_turns_one_part_off(name: str, part: str, tmp_path: Path) -> None:
    source = (
        TRAIN
        + f"""
real = xla_bridge._default_backend
class Client:
    def __getattr__(self, name):
        if name == {name!r}: raise AttributeError(name)
        return getattr(real, name)
xla_bridge._backends = {{"cpu": Client()}}
g = jax.jit(lambda x: x + 1); y = jnp.ones(3)
attach(); obey(lambda i: g(y))
"""
    )
    with job(source, tmp_path, JAX) as it:
        figures = it.gauges()
        it.step(5)
        assert ("executables" in figures) is (name != "live_executables")
        assert ("live_arrays" in figures) is (name != "live_arrays")
        assert [line for line in it.messages() if line.startswith(f"no {part}") or "memory" in line]


def test_a_program_that_calls_back_all_the_time_loses_no_call(tmp_path: Path) -> None:
    source = (
        TRAIN
        + """
from jax.experimental import io_callback
import threading
seen, more = [0, 0], [True]
def told(n): seen[0] += 1
def effect(n): seen[1] += 1
def body(n, _):
    jax.debug.callback(told, n); io_callback(effect, None, n, ordered=True)
    return n + 1, None
whole = jax.jit(lambda n: jax.lax.scan(body, n, None, 50))
rounds = [0]
def work():
    while more:
        assert int(whole(0)[0]) == 50
        rounds[0] += 1
    jax.effects_barrier()
thread = threading.Thread(target=work); thread.start()
names = jax._src.debugging.debug_callback_p, jax._src.callback
before = names[0].impl, names[1].io_callback_impl
for _ in range(15):
    attach(); until(lambda: names[0].impl is not before[0]); time.sleep(0.05)
    leave(); until(lambda: "_whyidle_agent" not in sys.modules)
    assert (names[0].impl, names[1].io_callback_impl) == before
more.clear(); thread.join()
assert seen == [50 * rounds[0]] * 2, (seen, rounds)
"""
    )
    run(source, tmp_path, JAX)

"""What each part reports of a job, and that the job does not notice."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.agents.jax.jobs import job, run
from tests.rules.windows import found, window
from whyidle.agents import wire
from whyidle.agents.jax import probe
from whyidle.agents.jax.debugging import OPTIONS

PLAIN = """
import jax, jax.numpy as jnp, numpy as np
@jax.jit
def f(x): return x.sum()
"""


def test_nothing_is_imported_or_initialised_for_us(tmp_path: Path) -> None:
    source = """
attach()
assert not [name for name in sys.modules if name.split(".")[0] in ("jax", "jaxlib", "numpy")]
ready(); sys.stdin.readline()
import jax
from jax._src import xla_bridge
print("done", flush=True); sys.stdin.readline()
assert not xla_bridge._backends
jax.numpy.ones(3); print("done", flush=True)
sys.stdin.readline()
"""
    with job(source, tmp_path) as it:
        assert wire.COMPILES not in it.gauges()
        it.step(0)
        facts = it.facts(lambda facts: facts)
        others = {"disable_most_optimizations", "compilation_cache", "own_profiler"}
        assert set(facts) == {"version", *OPTIONS} | others
        figures = it.gauges()
        assert figures[wire.COMPILES] == 0
        assert figures[wire.EXECUTABLES] == 0
        assert wire.LIVE_ARRAYS not in figures
        it.step(0)
        facts = it.facts(lambda facts: "backend" in facts)
        assert (facts["backend"], facts["devices"], facts["processes"]) == ("cpu", 1, 1)
        assert facts["platforms_asked"] == "cpu"
        assert facts["gpus_present"] == 0
        assert it.messages() == []


def test_live_arrays_are_counted_by_type_and_device(tmp_path: Path) -> None:
    source = """
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
devices = jax.devices()
mesh = Mesh(devices[:2], ("x",))
held = [jnp.ones((1000,), jnp.bfloat16), jnp.ones((500, 500)),
    jax.device_put(jnp.ones((1000, 100)), NamedSharding(mesh, P("x"))),
    jax.device_put(jnp.ones((1000, 100)), NamedSharding(mesh, P()))]
attach(); obey(lambda _: held.append(jnp.ones(1000)))
"""
    with job(source, tmp_path) as it:
        facts = it.facts(lambda facts: "dtypes" in facts)
        assert (facts["devices"], facts["devices_used"]) == (4, 2)
        # In one piece, in two halves, and twice whole.
        assert facts["dtypes"]["float32"] == 2_200_000
        assert facts["dtypes"]["bfloat16"] == 2000
        assert (facts["divided_bytes"], facts["replicated_bytes"]) == (400_000, 800_000)
        before = it.until(
            lambda seen: [r[2] for r in seen if r[0] == "gauges" and wire.LIVE_BYTES in r[2]]
        )[-1]
        assert before[wire.LIVE_BYTES] == 2000 + 10**6 + 400_000 + 800_000
        it.step(50)
        it.until(
            lambda seen: (
                seen[-1][0] == "gauges"
                and seen[-1][2][wire.LIVE_ARRAYS] == before[wire.LIVE_ARRAYS] + 50
            )
        )


def test_marks_of_the_users_are_steps(tmp_path: Path) -> None:
    source = (
        PLAIN
        + """
x = jnp.ones(8)
def step(i):
    with jax.profiler.StepTraceAnnotation("train", step_num=i): f(x)
step(0); attach(); obey(step)
"""
    )
    with job(source, tmp_path) as it:
        it.gauges()
        it.step(30)
        found = it.until(lambda seen: [r for r in seen if r[0] == "steps"])
        assert {r[2] for r in found} == {"StepTraceAnnotation"}
        assert all(duration > 0 for r in found for duration in r[5])
        it.until(lambda seen: sum(r[4] for r in seen if r[0] == "steps") == 29)


KERAS = """
import sys, types
class CallbackList:
    def on_train_batch_end(self, batch, logs=None): self.last = batch
    def on_test_batch_end(self, batch, logs=None): pass
    def on_epoch_end(self, epoch, logs=None): pass
for name, held in (
    ("keras", {}),
    ("keras.src.backend.config", {"_BACKEND": COMPUTES}),
    ("keras.src.callbacks.callback_list", {"CallbackList": CallbackList}),
):
    module = types.ModuleType(name)
    module.__dict__.update(held)
    sys.modules[name] = module
callbacks = CallbackList()
def step(i):
    f(jnp.ones(8))
    callbacks.on_train_batch_end(i)
    callbacks.on_test_batch_end(i)
    if i % 5 == 0: callbacks.on_epoch_end(i)
step(0); attach(); obey(step)
"""


def test_batches_of_keras_are_steps_and_neither_epochs_nor_tests(tmp_path: Path) -> None:
    with job(PLAIN + KERAS.replace("COMPUTES", "'jax'"), tmp_path) as it:
        it.gauges()
        it.step(30)
        found = it.until(lambda seen: [r for r in seen if r[0] == "steps"])
        assert {r[2] for r in found} == {"fit"}
        it.until(lambda seen: sum(r[4] for r in seen if r[0] == "steps") == 29)


def test_batches_of_keras_on_another_framework_are_left_to_its_probe(tmp_path: Path) -> None:
    with job(PLAIN + KERAS.replace("COMPUTES", "'tensorflow'"), tmp_path) as it:
        before = it.gauges()
        it.step(30)
        it.until(lambda seen: len([r for r in seen if r[0] == "gauges"]) > 3)
        assert wire.STEPS not in before
        assert not [r for r in it.seen if r[0] == "steps"]


def test_copies_to_the_device_are_counted(tmp_path: Path) -> None:
    source = (
        PLAIN
        + """
x = np.ones(8)
def step(i): jax.device_put({"a": x, "b": x}); f(x)
attach(); obey(step)
"""
    )
    with job(source, tmp_path) as it:
        before = it.gauges()[wire.DEVICE_PUTS]
        it.step(7)
        assert it.gauges()[wire.DEVICE_PUTS] - before == 7


CALLS_BACK = {
    "of its own, in a scan": "jax.debug.callback(lambda n: None, n)",
    "one that prints": "jax.debug.print('{}', n)",
    "one that has an effect": "io_callback(lambda n: None, None, n)",
    "two, one of them seldom": (
        "jax.debug.callback(lambda n: None, n); jax.lax.cond(n % 5 == 0,"
        " lambda: jax.debug.callback(lambda n: None, n), lambda: None)"
    ),
}


@pytest.mark.parametrize("how", CALLS_BACK)
def test_callbacks_of_a_program_that_is_compiled_whole_are_counted(
    how: str, tmp_path: Path
) -> None:
    source = (
        PLAIN
        + f"""
from jax.experimental import io_callback
import contextlib, io
def body(n, _):
    {CALLS_BACK[how]}
    return n + 1, jax.pure_callback(lambda n: n, jax.ShapeDtypeStruct((), n.dtype), n)
@jax.jit
def whole(n): return jax.lax.scan(body, n, None, 10)
def step(i):
    with contextlib.redirect_stdout(io.StringIO()):
        jax.block_until_ready(whole(0)); jax.effects_barrier()
step(0); attach(); obey(step)
"""
    )
    with job(source, tmp_path) as it:
        assert wire.CALLBACKS not in it.gauges()
        it.step(3)
        assert it.gauges()[wire.CALLBACKS] == 30
        it.step(2)
        assert it.gauges()[wire.CALLBACKS] == 50


def test_reads_of_what_is_known_already_do_not_count(tmp_path: Path) -> None:
    source = (
        PLAIN
        + """
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(jax.devices(), ("x",))
values = jax.device_put(np.ones((1000, 2)), NamedSharding(mesh, P("x")))
one = [np.ones(100)]
def step(i):
    again = values + i
    for _ in range(3): np.asarray(again)
    gone = jnp.ones(3) + i; gone.delete()
    try: np.asarray(gone)
    except RuntimeError as error: assert "deleted" in str(error)
    else: raise AssertionError
attach(); obey(step)
"""
    )
    with job(source, tmp_path) as it:
        it.step(1)
        before = it.gauges()
        it.step(5)
        after = it.gauges()
        assert after[wire.SYNCS] - before[wire.SYNCS] == 5
        assert after[wire.READ_BYTES] - before[wire.READ_BYTES] == 5 * 1000 * 2 * 4
        assert after[wire.SYNC_NS] > before[wire.SYNC_NS]


def test_options_for_finding_errors_are_seen_where_they_are_set_for_the_process(
    tmp_path: Path,
) -> None:
    source = (
        PLAIN
        + """
x = jnp.ones(8)
def step(i):
    jax.config.update("jax_debug_nans", i % 2 == 0)
    jax.config.update("jax_disable_jit", i % 2 == 0)
    jax.config.update("jax_log_compiles", False)
attach(); obey(step)
"""
    )
    with job(source, tmp_path) as it:
        assert it.gauges()[wire.DEBUG_MODES] == 0
        it.step(1)
        facts = it.facts(lambda facts: facts["debug_nans"])
        assert {name for name in OPTIONS if facts[name]} == {"debug_nans", "disable_jit"}
        assert it.gauges()[wire.DEBUG_MODES] == 2
        missing = set(facts) - set(re.findall(r"\w+", probe.__doc__ or ""))
        assert not missing, f"no line in {probe.__file__} for {missing}"
        it.step(1)
        it.facts(lambda facts: not facts["debug_nans"] and not facts["disable_jit"])
        assert it.gauges()[wire.DEBUG_MODES] == 0
        assert it.messages() == []


def test_what_else_is_switched_for_the_whole_process(tmp_path: Path) -> None:
    source = (
        PLAIN
        + """
x = jnp.ones(8)
from jax._src import compiler
def step(i):
    on = i % 2 == 0
    jax.config.update("jax_check_tracer_leaks", on)
    jax.config.update("jax_disable_most_optimizations", on)
    jax.config.update("jax_compilation_cache_dir", PARENT + "/cache" if on else None)
    if on: jax.profiler.start_trace(PARENT + "/trace")
    else: jax.profiler.stop_trace()
attach(); obey(step)
"""
    )
    names = ("check_tracer_leaks", "disable_most_optimizations", "compilation_cache")
    with job(source, tmp_path) as it:
        facts = it.facts(lambda facts: "own_profiler" in facts)
        assert [facts[name] for name in (*names, "own_profiler")] == [False] * 4
        it.step(1)
        facts = it.facts(lambda facts: facts["own_profiler"])
        assert [facts[name] for name in names] == [True] * 3
        assert it.gauges()[wire.DEBUG_MODES] == 1
        it.step(1)
        it.facts(lambda facts: not facts["own_profiler"] and not facts["compilation_cache"])
        assert it.gauges()[wire.DEBUG_MODES] == 0
        assert it.messages() == []


def test_cache_hits_are_marked(tmp_path: Path) -> None:
    source = """
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_compilation_cache_dir", PARENT + "/cache")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
x = np.ones(8)
def step(i):
    def f(x): return (x * 2).sum()
    jax.jit(f)(x)
attach(); obey(step)
"""
    with job(source, tmp_path) as it:
        it.gauges()
        it.step(3)
        figures = it.gauges()
        assert (figures[wire.COMPILES], figures[wire.COMPILE_HITS]) == (1, 2)
        found = it.records("compile")
        assert [(r[3], r[7]) for r in found] == [("f", False), ("f", True), ("f", True)]
        assert [r[5] for r in found[1:]] == 2 * [
            "the function is made anew each time, so that nothing of it is found again"
        ]
        assert figures[wire.COMPILE_NS] >= sum(r[4] for r in found) * 0.9
        end = [r[1] for r in found]
        assert end == sorted(end)
        assert end[-1] < time.monotonic_ns()


def test_what_the_users_listeners_and_handlers_hear_is_the_same(tmp_path: Path) -> None:
    source = """
import logging, io
import jax, numpy as np
heard = []
jax.monitoring.register_event_duration_secs_listener(lambda *a, **k: heard.append(a[0]))
stream = io.StringIO()
logging.basicConfig(stream=stream, level=logging.WARNING)
f = jax.jit(lambda x: x * 2)
for n in range(1, 4): f(np.ones(n))
alone, was = len(heard), jax._src.dispatch._batched_device_put_impl
attach()
until(lambda: jax._src.dispatch._batched_device_put_impl is not was)
for n in range(4, 13): f(np.ones(n))
assert len(heard) == 4 * alone, (alone, len(heard))
assert stream.getvalue() == ""
assert jax.config.jax_explain_cache_misses is False
"""
    run(source, tmp_path)


def test_a_cpu_where_there_are_gpus_is_seen(tmp_path: Path, monkeypatch: Any) -> None:
    from whyidle.agents.jax import devices  # noqa: PLC0415

    names = ["null", "nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-caps"]
    monkeypatch.setattr(devices.os, "listdir", lambda _: names)
    assert devices.gpus_present() == 2

    def refuse(_: str) -> list[str]:
        raise PermissionError

    monkeypatch.setattr(devices.os, "listdir", refuse)
    assert devices.gpus_present() is None


@pytest.mark.parametrize(("axes", "divided"), [("'x'", True), ("", False)])
def test_collectives_between_devices_are_counted(axes: str, divided: bool, tmp_path: Path) -> None:
    source = f"""
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(jax.devices(), ("x",))
rows = jax.device_put(jnp.ones((1000, 100)), NamedSharding(mesh, P({axes})))
total = jax.jit(lambda rows: (rows * rows).sum())
total(rows).block_until_ready()
attach(); obey(lambda _: total(rows))
"""
    with job(source, tmp_path) as it:
        facts = it.facts(lambda facts: "collectives" in facts and "dtypes" in facts)
        assert (facts["collectives"] > 0) == divided
        assert (facts["divided_bytes"] > 0) == divided


def test_arrays_of_64_bits_are_found_as_such(tmp_path: Path) -> None:
    source = (
        PLAIN
        + """
jax.config.update("jax_enable_x64", True)
kept = jnp.asarray(np.ones((64, 64)))
def step(i): f(kept)
step(0); attach(); obey(step)
"""
    )
    with job(source, tmp_path) as it:
        facts = it.facts(lambda facts: facts.get("dtypes"))
        finding = found("double_precision", window(facts={"jax": facts}))
        assert finding.evidence[0].value > 0.9

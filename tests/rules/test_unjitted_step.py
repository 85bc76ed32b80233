"""The rule unjitted_step."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.windows import (
    answer,
    cannot_judge,
    found,
    is_silent,
    names,
    recorded,
    stacks,
    traced,
    window,
)
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Confidence, SourceLine
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.diagnosis.diagnose import diagnose
from whyidle.monitor.rules.unjitted_step import FEW_CALLS, SETS_UP
from whyidle.monitor.runs.aggregates import Compiled
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples

NAME = "unjitted_step"
FIXES = {
    "jax": (
        """
import jax
import jax.numpy as jnp
times = []
def loss(params, x, y):
    times.append(1)
    return ((x @ params["w"] - y) ** 2).mean()
x, y, params = jnp.ones((8, 4)), jnp.zeros((8, 2)), {"w": jnp.ones((4, 2))}
""",
        """
params, first = step(params, x, y)
params, second = step(params, x, y)
assert second < first and len(times) == 1
""",
    ),
}
SINGLE = ("multiply", "subtract", "add", "dot_general", "transpose", "tanh", "_mean")
DISPATCH = {Slice.IDLE_DISPATCH: 0.8, Slice.COMPUTE: 0.2}


def calls(*named: str, times: float = 6) -> dict[str, float]:
    """Return the calls of programs of these names, in a step."""
    return {f"PjitFunction({name})": times for name in named}


def test_a_step_of_single_operations() -> None:
    finding = found(NAME, window(answer(DISPATCH, fmt="xplane", calls=calls(*SINGLE))))
    assert finding.gain is not None
    # One call as costly as four in place of 42, and the operations as they are; or less of both.
    slow, fast = 1 / (0.2 + 0.8 * 4 / 42), 1 / (0.36 * 0.2 + 0.8 / 42)
    assert finding.gain.speedup[0] * finding.gain.speedup[1] == pytest.approx(slow * fast)
    assert finding.slice is Slice.IDLE_DISPATCH
    assert finding.evidence[0].value == pytest.approx(42)


def test_where_jit_is_switched_off_the_switch_is_the_cure() -> None:
    trace = answer(DISPATCH, fmt="xplane", calls=calls(*SINGLE))
    finding = found(NAME, window(trace, facts={"jax": {"disable_jit": True}}))
    assert finding.gain is not None
    assert finding.fixes is not None
    assert "jax_disable_jit" in finding.fixes["jax"].code


def test_what_the_host_draws_meanwhile_stays(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("noise = np.random.normal(size=3)\n")
    made = answer(DISPATCH, fmt="xplane", calls=calls(*SINGLE))
    alone = found(NAME, window(made))
    beside = found(NAME, window(made, lines=(SourceLine(str(script), 1, "train", 0.25),)))
    assert alone.gain is not None
    assert beside.gain is not None
    assert beside.gain.high < 0.75 < alone.gain.high


def test_what_the_device_computes_stays() -> None:
    busy = {Slice.IDLE_DISPATCH: 0.1, Slice.COMPUTE: 0.9}
    mostly = found(NAME, window(answer(busy, fmt="xplane", calls=calls(*SINGLE))))
    idle = found(NAME, window(answer(DISPATCH, fmt="xplane", calls=calls(*SINGLE))))
    assert mostly.gain is not None
    assert idle.gain is not None
    assert mostly.gain.expected < idle.gain.expected


@pytest.mark.parametrize(
    "made",
    [
        calls("step", times=1),
        # A few operations around a compiled step.
        calls("step", times=1) | calls("add", "multiply", times=1),
        # One program again and again is another fault.
        calls("loss_of_one", "add", times=32),
    ],
)
def test_a_step_that_is_compiled(made: dict[str, float]) -> None:
    assert is_silent(NAME, window(answer(DISPATCH, fmt="xplane", calls=made)))


def test_a_step_that_is_compiled_again_each_time_is_reported_as_that() -> None:
    taken = answer(DISPATCH, fmt="xplane", calls=calls(*SINGLE))
    rows = (Compiled("jax", "step", 100, 50 * 10**9, 0, None, "/me/train.py", 12),)
    job = {"compiled": rows, "inside": True, "facts": {"jax": {"backend": "cpu"}}}
    both = diagnose(window(taken, means={m.JOB_COMPILE: 0.9}, **job))
    assert [each.rule.id for each in both.findings] == ["retracing"]
    assert both.findings[0].also_seen == (NAME,)
    # Where compiling takes little of the time it explains nothing.
    some = diagnose(window(taken, means={m.JOB_COMPILE: 0.03}, **job))
    assert some.findings[0].rule.id == NAME


def test_nothing_measured() -> None:
    assert cannot_judge(NAME, window())


def test_a_job_of_pytorch_is_not_meant() -> None:
    made = {f"aten::{name}": 6.0 for name in SINGLE}
    assert is_silent(NAME, window(answer(DISPATCH, calls=made), facts={"torch": {}}))


def test_the_recorded_pair() -> None:
    finding = found(NAME, recorded("unjitted_step/before_jax"))
    assert finding.where[0].file.endswith("unjitted_step/before_jax.py")
    assert is_silent(NAME, recorded("unjitted_step/after_jax"))


@pytest.mark.parametrize(
    "other", ["python_loop_over_batch/before_jax", "forward_run_twice/before_jax"]
)
def test_other_faults(other: str) -> None:
    assert is_silent(NAME, recorded(other))


def test_a_trace_of_pytorch() -> None:
    assert is_silent(NAME, traced("h100_qwen05b"))


def test_the_lines_that_call_single_operations_are_named() -> None:
    file = "/me/train.py"
    lines = (SourceLine(file, 3, "load", 0.6), SourceLine(file, 8, "loss", 0.3))
    rows = tuple(
        Compiled("jax", name, 1, 10**6, 0, None, file, line)
        for name, line in (("evaluate", 3), ("tanh", 8))
    )
    taken = answer(DISPATCH, fmt="xplane", calls=calls(*SINGLE))
    assert names(found(NAME, window(taken, lines=lines, compiled=rows)).where) == ["loss"]


PACKAGES = "/env/lib/python3.11/site-packages"
LAUNCHES = SourceLine(f"{PACKAGES}/jax/_src/dispatch.py", 88, "apply_primitive", 0)
OF_FLAX = SourceLine(f"{PACKAGES}/flax/nnx/nn/linear.py", 422, "__call__", 0)
LOSS = SourceLine("/me/model.py", 8, "loss", 0)
STEP = SourceLine("/me/train.py", 20, "train_step", 0)
LOOP = SourceLine("/me/train.py", 40, "main", 0)
ALIVE = {"jax": {"executables_by_name": {f"jit_{name}": 9 for name in SINGLE[:5]}}}


def test_without_a_trace_the_samples_show_it() -> None:
    seen = stacks((LAUNCHES, (LOSS, STEP, LOOP), 60), (OF_FLAX, (LOSS, STEP, LOOP), 40))
    finding = found(NAME, window(stacks=seen, facts=ALIVE))
    assert finding.confidence is Confidence.INFERRED
    # What else the framework does at the same line prepares the operations.
    assert finding.evidence[0].value == pytest.approx(1.0)
    assert names(finding.where) == ["loss"]
    assert finding.gain is not None
    assert finding.gain.low < 0.3
    assert finding.gain.high > 0.8


KERAS = f"{PACKAGES}/keras/src/backend/jax/trainer.py"
CALLED = {
    "one action at a time": (
        "while not done:\n    q = self.model.predict(state, verbose=0)\n",
        True,
    ),
    "a batch at a time": ("for x, y in batches:\n    loss = model.train_on_batch(x, y)\n", True),
    "a score for each": (
        "for x in samples:\n    scores += [net.predict_on_batch(x[None])]\n",
        True,
    ),
    # One call for all of it, a library of one's own, and a loop of one's own.
    "a whole training": ("for fold in folds:\n    model.fit(x, y)\n", False),
    "a whole prediction": ("x = load()\nscores = model.predict(x)\n", False),
    "another library": ("for x in samples:\n    y = model.predict(x)\n", False),
}


@pytest.mark.parametrize("style", CALLED)
def test_what_keras_does_around_a_call_is_nothing_to_compile(style: str, tmp_path: Path) -> None:
    source, is_its = CALLED[style]
    file = tmp_path / "play.py"
    file.write_text(source)
    line = CodeLine(str(file), 2, "play")
    library = KERAS.replace("keras", "mine") if style == "another library" else KERAS
    leaf = CodeLine(LAUNCHES.file, LAUNCHES.line, LAUNCHES.function)
    seen = StackSamples()
    seen.samples = 100
    seen.count(Chain((line,), leaf, CodeLine(library, 200, "predict")), 90, 90, 0)
    seen.count(Chain((line,), line), 10, 10, 0)
    finding = found(NAME, window(stacks=seen, facts=ALIVE))
    assert (finding.title == SETS_UP) is is_its
    assert (finding.fixes == {"jax": FEW_CALLS}) is is_its


def test_single_operations_beside_a_compiled_step_cost_what_they_take() -> None:
    seen = stacks((LOOP, (LOOP,), 700), (LAUNCHES, (STEP, LOOP), 300))
    finding = found(NAME, window(stacks=seen, facts=ALIVE))
    assert finding.gain is not None
    assert finding.gain.high < 0.35


GATHERS = {"jax": {"executables_by_name": {"jit_gather": 1, "jit_step": 1}}}
ITERATES = """\
class Loader:
    def __iter__(self):
        for start in range(0, 60000, 128):
            yield self.images[self.order[start : start + 128]]
"""
DRAWS = """\
def shuffled(images, key):
    while True:
        order = jax.random.permutation(key, 60000)
        yield images[order[:128]], 1
"""
IN_PARTS = """\
def dataloader(arrays, size, key):
    while True:
        order = jax.random.permutation(key, arrays[0].shape[0])
        for start in range(0, len(order), size):
            yield tuple(array[order[start : start + size]] for array in arrays)
"""
NAMED = """\
def get_batch(data, key):
    starts = jax.random.randint(key, (32,), 0, 1000)
    return jnp.stack([data[start : start + 64] for start in starts])
"""


@pytest.mark.parametrize(
    ("program", "line", "function"),
    [
        (ITERATES, 4, "__iter__"),
        (DRAWS, 4, "shuffled"),
        (NAMED, 3, "get_batch"),
        (NAMED, 3, "<listcomp>"),
        (IN_PARTS, 5, "<genexpr>"),
    ],
)
def test_batches_of_single_operations_beside_a_compiled_step(
    tmp_path: Path, program: str, line: int, function: str
) -> None:
    file = tmp_path / "data.py"
    file.write_text(program)
    makes = SourceLine(str(file), line, function, 0)
    seen = stacks((LOOP, (LOOP,), 550), (LAUNCHES, (makes, LOOP), 450))
    finding = found(NAME, window(stacks=seen, facts=GATHERS))
    assert finding.title == "Batches are made one JAX operation at a time"
    assert finding.where[0].line == line
    assert finding.fixes is not None
    assert "NumPy" in finding.fixes["jax"].text
    assert finding.gain is not None
    assert finding.gain.high > 0.4


def test_batches_of_numpy_beside_a_compiled_step_are_none_of_jax(tmp_path: Path) -> None:
    file = tmp_path / "data.py"
    file.write_text(ITERATES)
    makes = SourceLine(str(file), 4, "__iter__", 0)
    seen = stacks((LOOP, (LOOP,), 550), (makes, (makes, LOOP), 450))
    assert is_silent(NAME, window(stacks=seen, facts=GATHERS))


def test_a_compiled_step_shows_as_the_line_that_calls_it() -> None:
    # What starts up leaves such programs behind, and a key is split now and then.
    seen = stacks((LOOP, (LOOP,), 95), (LAUNCHES, (STEP, LOOP), 5))
    assert is_silent(NAME, window(stacks=seen, facts=ALIVE))


def test_one_operation_again_and_again_is_another_fault() -> None:
    facts = {"jax": {"executables_by_name": {"jit_dynamic_slice": 1, "jit_step": 1}}}
    seen = stacks((LAUNCHES, (STEP, LOOP), 100))
    assert is_silent(NAME, window(stacks=seen, facts=facts))


def test_loops_of_jax_that_no_compiled_function_holds_are_compiled_in_each_call() -> None:
    rows = (Compiled("jax", "scan", 100, 50 * 10**9, 0, None, "/me/train.py", 12),)
    job = {"compiled": rows, "inside": True, "facts": ALIVE}
    seen = stacks((LAUNCHES, (STEP, LOOP), 10), (LOOP, (LOOP,), 90))
    both = diagnose(window(means={m.JOB_COMPILE: 0.9}, stacks=seen, **job))
    assert [each.rule.id for each in both.findings] == [NAME]
    assert both.findings[0].found.where[0].line == 12
    assert both.findings[0].found.gain is not None
    assert both.findings[0].found.gain.low > 0.8

"""The rule retracing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rules.windows import (
    answer,
    cannot_judge,
    found,
    is_silent,
    judge,
    recorded,
    traced,
    window,
)
from whyidle.agents.retraces import ANEW, OTHER
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.aggregates import Compiled
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.window import Window

NAME = "retracing"
# By framework: what stands before the fix's code, and what must hold after it.
FIXES = {
    "jax": (
        """
import jax
import numpy as np
times = []
@jax.jit
def step(x, real):
    times.append(x.shape)
    return ((x ** 2) * real[:, None]).sum() / real.sum()
x = np.full((100, 4), 2.0, np.float32)
""",
        """
assert loss == 16.0
for length in (90, 70, 100):
    short = padded(x[:length])
    assert step(short, np.arange(len(short)) < length) == 16.0
assert times == [(128, 4)]
""",
    ),
    "pytorch": (
        """
import torch
times = []
def counting(graph, inputs):
    times.append(1)
    return graph
compiled = torch.compile(lambda x: (x * 2).sum(), backend=counting)
batch = torch.ones(6, 4)
""",
        """
assert out == 48
compiled(torch.ones(7, 4)), compiled(torch.ones(9, 4))
assert len(times) == 1
""",
    ),
    "tensorflow": (
        """
import tensorflow as tf
times = []
def model(x):
    times.append(x.shape)
    return tf.reduce_sum(x)
""",
        """
assert [float(step(tf.ones([n, 64]))) for n in (2, 3, 5)] == [128, 192, 320]
assert len(times) == 1
""",
    ),
}
# So many that chance plays no part.
MANY = 10**6
REASON = "at x: now f32[99,4], before f32[20,4]"


def compiled(count: int, seconds: float, function: str = "step", cached: int = 0) -> Compiled:
    """Return what one function was compiled."""
    file = "/home/me/train.py"
    return Compiled("jax", function, count, int(seconds * 1e9), cached, REASON, file, 12)


def job(share: float, *rows: Compiled, **more: Any) -> Window:
    """Return the window of a job that compiled these."""
    return window(means={m.JOB_COMPILE: share}, compiled=rows, inside=True, **more)


def test_a_function_that_is_compiled_in_each_step() -> None:
    finding = found(NAME, job(0.9, compiled(MANY, 50)))
    assert finding.gain is not None
    assert finding.gain.speedup == pytest.approx((1 / 0.114, 1 / 0.057), rel=0.01)
    assert (finding.where[0].file, finding.where[0].line) == ("/home/me/train.py", 12)
    assert REASON in [evidence.value for evidence in finding.evidence]


def test_a_few_compilations_may_lie_together_by_chance() -> None:
    few, many = (found(NAME, job(0.9, compiled(n, 50))).gain for n in (16, MANY))
    assert few is not None
    assert many is not None
    assert few.low < many.low < many.high < few.high
    # Of sixteen there may be a half more, or less by a third.
    assert few.speedup[1] == pytest.approx(1 / (0.57 / (1 + 9 * 1.5)))


def beside(busy: float, kind: str, **more: Any) -> tuple[float, float]:
    """Return the range of a job that compiles while its device is seen at work."""
    seen = answer({Slice.COMPUTE: busy, Slice.IDLE_COMPILE: 1 - busy}, kind=kind, **more)
    jax = {"jax": {"backend": kind, "version": "0.10"}}
    compiling = {m.JOB_COMPILE: 0.9}
    rows = (compiled(MANY, 50),)
    gain = found(NAME, window(seen, means=compiling, compiled=rows, inside=True, facts=jax)).gain
    assert gain is not None
    return gain.low, gain.high


def test_what_the_device_does_meanwhile_stays() -> None:
    alone = found(NAME, job(0.9, compiled(MANY, 50))).gain
    assert alone is not None
    low, high = beside(0.6, "gpu")
    assert (low, high) == pytest.approx((1 - 0.6 - (1 - alone.low), 0.4))
    # A GPU that has next to nothing to do is none to wait for afterwards.
    assert beside(0.01, "gpu")[1] == pytest.approx(alone.high)
    # A compiler takes cores from the work on a CPU, which is shorter without it.
    low, high = beside(0.6, "cpu")
    assert (low <= 0.4, high) == (True, pytest.approx(alone.high))
    # What lies between two compilations shows no step.
    assert beside(0.6, "gpu", steps=0) == pytest.approx((alone.low, alone.high))


def test_functions_that_are_compiled_once_are_no_part_of_it() -> None:
    mixed = found(NAME, job(0.5, compiled(10, 10), compiled(1, 10, "evaluate")))
    alone = found(NAME, job(0.5, compiled(10, 10)))
    assert mixed.gain is not None
    assert alone.gain is not None
    assert mixed.gain.high < alone.gain.high


def test_many_times_in_a_minute_is_reported_by_the_recorder() -> None:
    storm = {"function": "step", "file": "/home/me/train.py", "line": 12}
    rows = (compiled(5, 5),)
    assert is_silent(NAME, job(0.5, *rows))
    found(NAME, job(0.5, *rows, events={"retrace_storm": (storm,)}))


CLEARING = {
    "in the loop": (
        "for x in xs:\n    if n % 20 == 0:\n        jax.clear_caches()\n    step(x)",
        3,
    ),
    "in a callback": (
        "class Log:\n    def on_batch(self):\n        keras.utils.clear_session()",
        3,
    ),
    "of PyTorch": ("while True:\n    torch._dynamo.reset()\n    step(x)", 2),
    # Once, before anything.
    "at the start": ("import jax\njax.clear_caches()\nfor x in xs:\n    step(x)", None),
    "another cache": ("for x in xs:\n    cache.clear()\n    step(x)", None),
}


@pytest.mark.parametrize("style", CLEARING)
def test_who_clears_what_was_compiled_is_named_first(style: str, tmp_path: Path) -> None:
    source, line = CLEARING[style]
    script = tmp_path / "train.py"
    script.write_text(source + "\n")
    lines = [SourceLine(str(script), 1, "<module>", 1.0)]
    row = replace(compiled(MANY, 50), reason=OTHER, file=str(script), line=1)
    finding = found(NAME, job(0.9, row, lines=lines))
    assert finding.where[0].line == (line or 1)
    assert ("cleared" in finding.title) == (line is not None)  # type: ignore[operator]
    # An argument that changes is the reason, whatever else a function may do.
    if style == "in a callback":
        changed = replace(row, reason=REASON)
        assert "cleared" not in found(NAME, job(0.9, changed, lines=lines)).title  # type: ignore[operator]


# The call is the last line.
GIVEN = {
    "a generator": """\
def batches(rows):
    yield rows[:n]
for number, x in enumerate(batches(rows)):
    state = step(state, x)
""",
    "the next of one": """\
def stream():
    yield read()
it = iter(stream())
x = next(it)
step(x)
""",
    "a function": """\
def get_batch(split):
    return data[split][:n], labels
x, y = get_batch("train")
loss = step(x, y)
""",
    "an object": """\
class Loader:
    def __iter__(self): yield self.rows
loader = Loader()
for x in tqdm(loader):
    step(x)
""",
    "another's": """\
loader = DataLoader(data)
for x in loader:
    step(x)
""",
}


@pytest.mark.parametrize("style", GIVEN)
def test_who_gives_the_argument_that_changes(style: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(GIVEN[style])
    call = len(GIVEN[style].splitlines())
    row = replace(compiled(MANY, 50), file=str(script), line=call)
    lines = [place.line for place in found(NAME, job(0.9, row)).where]
    assert lines == ([call] if style == "another's" else [call, 2])
    as_before = replace(row, reason=OTHER)
    assert [place.line for place in found(NAME, job(0.9, as_before)).where] == [call]


def test_a_few_long_compilations_that_take_all_of_the_time() -> None:
    gain = found(NAME, job(0.98, compiled(3, 30))).gain
    assert gain is not None
    # Of the whole minute they are half.
    assert gain.low == pytest.approx(0.5)
    assert gain.high > 0.9
    assert is_silent(NAME, job(0.98, compiled(2, 8)))
    assert is_silent(NAME, job(0.98, replace(compiled(3, 8), reason=None)))
    assert is_silent(NAME, job(0.98, replace(compiled(3, 8), framework="torch")))


def test_all_functions_that_are_compiled_again_count() -> None:
    both = found(NAME, job(0.8, compiled(20, 10), compiled(20, 10, "evaluate")))
    assert both.gain == found(NAME, job(0.8, compiled(40, 20))).gain


@pytest.mark.parametrize(
    ("reason", "cure"),
    [
        ("at x: now float32[7,8], before float32[6,8]", None),
        ("at n: now the Python value 3, before the Python value 2", "tf.constant(number)"),
        (ANEW, "before the loop"),
        ("at c: now the Cfg at 0x7f0, before the Cfg at 0x6f0", "or pass only its tensors"),
        ("at c: now an object that is gone (0x7f0), before the Cfg at 0x6f0", "only its tensors"),
    ],
)
def test_of_tensorflow_each_cause_has_its_cure(reason: str, cure: str | None) -> None:
    row = replace(compiled(MANY, 50), framework="tensorflow", reason=reason)
    finding = found(NAME, job(0.5, row))
    assert finding.frameworks == ("tensorflow",)
    assert finding.fixes is None if cure is None else cure in str(finding.fixes)
    # The first run of each graph takes half to three quarters of what tracing it took.
    assert finding.gain is not None
    assert (finding.gain.low, finding.gain.high) == pytest.approx((0.75, 0.875), abs=0.02)
    by_xla = job(0.5, row, facts={"tensorflow": {"jit_compile": True}})
    assert found(NAME, by_xla).gain.high > 0.95  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("reason", "cure"),
    [
        (OTHER, "jnp.asarray(noise_level)"),
        (ANEW, "jax.jit(train_step)"),
        (REASON, None),
        ("now 3 arrays as arguments, and before 2", None),
    ],
)
def test_of_jax_each_cause_has_its_cure(reason: str, cure: str | None) -> None:
    row = replace(compiled(MANY, 50), reason=reason)
    fixes = found(NAME, job(0.9, row)).fixes
    assert (fixes is None) == (cure is None)
    if cure is not None and fixes is not None:
        assert cure in fixes["jax"].code
        compile(fixes["jax"].code, "fix", "exec")


def test_who_passes_an_array_pads_nothing() -> None:
    ranges = [
        found(NAME, job(0.6, replace(compiled(MANY, 50), reason=reason))).gain
        for reason in (REASON, OTHER)
    ]
    assert ranges[0] is not None
    assert ranges[1] is not None
    assert ranges[1].low - ranges[0].low > 0.04
    assert ranges[0].high == ranges[1].high


def test_pytorch_gives_up_sooner_and_so_fewer_are_many() -> None:
    finding = found(NAME, job(0.5, replace(compiled(5, 5), framework="torch")))
    assert finding.frameworks == ("pytorch",)
    assert is_silent(NAME, job(0.5, replace(compiled(4, 5), framework="torch")))


def test_the_cure_of_pytorch_is_by_what_has_changed() -> None:
    row = replace(compiled(6, 5), framework="torch")
    by_size = found(NAME, job(0.5, replace(row, reason="x.size()[0] == 4")))
    assert by_size.fixes is None
    by_tag = found(NAME, job(0.5, replace(row, reason="no longer true: tag == 'a'")))
    assert by_tag.fixes is not None
    assert "recompiles=True" in by_tag.fixes["pytorch"].code
    assert by_tag.gain is not None
    assert by_size.gain is not None
    assert by_tag.gain.low < by_size.gain.low


def test_a_job_that_only_warms_up() -> None:
    rows = [compiled(1, 10, f"function_{i}") for i in range(20)]
    assert is_silent(NAME, job(0.5, *rows))


def test_functions_that_a_cache_has() -> None:
    assert is_silent(NAME, job(0.1, compiled(30, 3, cached=30)))


def test_compiling_that_is_over() -> None:
    assert is_silent(NAME, job(0.0, compiled(30, 30)))


def test_nothing_measured() -> None:
    assert cannot_judge(NAME, window())


def test_the_recorded_pair() -> None:
    finding = found(NAME, recorded("retracing/before_jax"))
    assert finding.where[0].function == "step"
    assert finding.where[0].file.endswith("retracing/before_jax.py")
    assert is_silent(NAME, recorded("retracing/after_jax"))


def test_a_job_whose_agent_knows_of_no_compilation() -> None:
    quiet = recorded("retracing/after_jax")
    assert is_silent(NAME, replace(quiet, job=replace(quiet.job, compiled=())))


@pytest.mark.parametrize("trace", ["h100_qwen05b"])
def test_traces_say_nothing_of_it(trace: str) -> None:
    assert cannot_judge(NAME, traced(trace))


def test_little_compiling_promises_little() -> None:
    finding = found(NAME, job(0.03, compiled(MANY, 2)))
    assert finding.gain is not None
    assert finding.gain.low == 0.0
    # The compiling, and no more than as much again of first runs.
    assert 0.03 <= finding.gain.high < 0.03 * 1.5


def test_compiling_that_takes_next_to_nothing() -> None:
    assert is_silent(NAME, job(0.015, compiled(30, 2)))
    assert judge(NAME, job(0.015, compiled(30, 2))) is None


def test_first_runs_are_no_more_than_the_compilations() -> None:
    means = {m.JOB_COMPILE: 0.3, m.PROCESS_COMPILES: 1e4, m.JOB_STEPS: 1e6}
    finding = found(NAME, window(means=means, compiled=(compiled(MANY, 20),), inside=True))
    assert finding.gain is not None
    # One step in a hundred is a first run.
    assert finding.gain.high == pytest.approx(0.3 + 0.43 * 0.01 * 0.7, rel=0.01)


def test_compiling_that_only_warmed_up() -> None:
    means = {m.JOB_COMPILE: 0.05, m.PROCESS_COMPILES: 1 / 60}
    assert judge(NAME, window(means=means, compiled=(compiled(30, 9),), inside=True)) is None
    means[m.PROCESS_COMPILES] = 0.5
    found(NAME, window(means=means, compiled=(compiled(30, 9),), inside=True))


CALLS = {
    "one picture of a request": "def predict():\n    return model.predict(picture)\n",
    "an agent that plays": "while not done:\n    q = self.model.predict(state[None], verbose=0)\n",
    "a fit of a few samples": "for batch in replay:\n    net.fit(batch.x, batch.y, verbose=0)\n",
}


@pytest.mark.parametrize("style", CALLS)
def test_a_call_of_keras_that_makes_a_pipeline_each_time(style: str, tmp_path: Path) -> None:
    script = tmp_path / "serve.py"
    script.write_text(CALLS[style])
    row = Compiled("tensorflow", "Dataset_map_grab_batch", 50, 10**9, 0, ANEW, str(script), 2)
    samples = StackSamples()
    at = CodeLine(str(script), 2, "predict")
    samples.samples += 100
    for line, number in ((at, 80), (CodeLine(str(script), 1, "main"), 20)):
        samples.count(Chain((line,), CodeLine("/lib/tf/execute.py", 9, "run")), number, number, 0)
    finding = found(NAME, job(0.06, row, stacks=samples))
    assert finding.title is not None
    assert finding.title.endswith("() makes a data pipeline in each call")
    assert finding.fixes is not None
    is_predict = ".predict(" in CALLS[style]
    instead = "model(x, training=False)" if is_predict else "train_on_batch"
    assert instead in finding.fixes["tensorflow"].text
    assert finding.gain is not None
    # Compiling is not all that such a call does beside the model.
    assert finding.gain.high == pytest.approx(0.8, abs=0.05)


def test_a_pipeline_of_the_loop_is_made_before_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "for x in batches(data):\n    for part in dataset(x).batch(4):\n        step(part)\n"
    )
    row = Compiled("tensorflow", "Dataset_batch", 50, 10**9, 0, ANEW, str(script), 2)
    fixes = found(NAME, job(0.06, row)).fixes
    assert fixes is not None
    assert fixes["tensorflow"].text.startswith("Make the pipeline once")
    # The healthy twin: it was made a single time.
    assert is_silent(NAME, job(0.06, replace(row, count=1)))


def test_what_a_library_compiles_is_told_in_the_users_function(tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    file.write_text("def answer(x):\n    return model.predict(x)\n")
    rows = tuple(
        Compiled("tensorflow", name, 300, 10**9, 0, None, str(file), 2)
        for name in ("Dataset_map_slice", "Dataset_flat_map")
    )
    where = found(NAME, job(0.3, *rows)).where
    assert [(place.line, place.function) for place in where] == [(2, "answer")]

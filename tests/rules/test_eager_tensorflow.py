"""The rule eager_tensorflow."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.windows import cannot_judge, found, is_silent, recorded, stacks, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.diagnosis.diagnose import diagnose
from whyidle.monitor.runs.aggregates import Compiled
from whyidle.monitor.signals.window import Window

NAME = "eager_tensorflow"
FIXES = {
    "tensorflow": (
        """
import tensorflow as tf
model = tf.keras.Sequential([tf.keras.layers.Input([4]), tf.keras.layers.Dense(2)])
optimizer = tf.keras.optimizers.Adam(0.1)
times = []
def loss_of(y, out):
    times.append(1)
    return tf.reduce_mean((out - y) ** 2)
x, y = tf.ones([8, 4]), tf.zeros([8, 2])
""",
        """
losses = [float(step(x, y)) for _ in range(20)]
assert losses[-1] < losses[0]
assert len(times) <= 2
""",
    ),
}
PACKAGES = "/env/lib/python3.11/site-packages"
# Where the main thread of such a job is found: layers, the tape, and where operations are launched.
LAYERS = f"{PACKAGES}/keras/src/layers/layer.py"
OPTIMIZER = f"{PACKAGES}/keras/src/optimizers/base_optimizer.py"
TAPE = f"{PACKAGES}/tensorflow/python/eager/backprop.py"
LAUNCH = f"{PACKAGES}/tensorflow/python/ops/gen_math_ops.py"
GRAPH = f"{PACKAGES}/tensorflow/python/eager/execute.py"
ME = SourceLine("/me/train.py", 30, "step", 1.0)
FACTS = {"tensorflow": {"backend": "cpu"}}


def job(shares: dict[str, float], **more: Any) -> Window:
    """Return a window over a job that was found in these files, of a hundred samples."""
    rows = [(SourceLine(file, 1, "call", n), (ME,), n) for file, n in shares.items()]
    leaves = tuple(SourceLine(file, 1, "call", n / 100) for file, n in shares.items())
    return window(
        stacks=stacks(*rows), leaves=leaves, inside=True, **{"facts": FACTS, "lines": (ME,), **more}
    )


@pytest.mark.parametrize(
    "shares",
    [
        # A loop of one's own; Keras with run_eagerly; a model in a graph, and its update in none.
        {LAYERS: 30, TAPE: 20, LAUNCH: 45, "/me/train.py": 5},
        {OPTIMIZER: 60, LAUNCH: 40},
        {GRAPH: 40, OPTIMIZER: 40, LAUNCH: 20},
    ],
)
def test_a_step_of_single_operations(shares: dict[str, float]) -> None:
    finding = found(NAME, job(shares))
    assert finding.gain is not None
    python = (sum(shares.values()) - sum(shares.get(x, 0) for x in (GRAPH, LAUNCH, ME.file))) / 100
    assert finding.gain.low < python
    assert finding.gain.high > python
    assert (finding.where[0].file, finding.where[0].line) == (ME.file, ME.line)


def test_where_functions_run_eagerly_the_switch_is_the_cure() -> None:
    facts = {"tensorflow": {"backend": "cpu", "run_functions_eagerly": True}}
    finding = found(NAME, job({LAYERS: 60, LAUNCH: 40}, facts=facts))
    assert finding.fixes is not None
    assert "run_functions_eagerly(False)" in finding.fixes["tensorflow"].code


@pytest.mark.parametrize(
    "shares",
    [
        {GRAPH: 95, "/me/train.py": 5},
        # A metric and a counter beside a graph.
        {GRAPH: 90, LAUNCH: 6, LAYERS: 4},
        # What Keras does around each call of its own train function.
        {GRAPH: 70, f"{PACKAGES}/keras/src/backend/tensorflow/trainer.py": 30},
    ],
)
def test_a_step_that_is_a_graph(shares: dict[str, float]) -> None:
    assert is_silent(NAME, job(shares))


def test_a_graph_that_is_built_again_and_again_is_reported_as_that() -> None:
    rows = (Compiled("tensorflow", "step", 100, 50 * 10**9, 0, None, "/me/train.py", 30),)
    seen = job({LAYERS: 60, TAPE: 20, GRAPH: 20}, compiled=rows, means={m.JOB_COMPILE: 0.8})
    assert is_silent(NAME, seen)
    assert [each.rule.id for each in diagnose(seen).findings][:1] == ["retracing"]


def test_jobs_of_others_are_not_meant() -> None:
    assert is_silent(NAME, job({LAYERS: 90, LAUNCH: 10}, facts={"torch": {}}))
    assert cannot_judge(NAME, window())


def test_the_recorded_pair() -> None:
    finding = found(NAME, recorded("eager_tensorflow/before_tensorflow"))
    assert finding.where[0].file.endswith("eager_tensorflow/before_tensorflow.py")
    assert finding.where[0].function == "step"
    assert is_silent(NAME, recorded("eager_tensorflow/after_tensorflow"))

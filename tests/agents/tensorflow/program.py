"""A program on TensorFlow with the probe inside, and what it reported: run by the tests beside it.

Ours and TensorFlow's environments differ, as they do at users': nothing but the agent is imported.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

# The agent alone: what the monitor needs is not installed here.
ROOT = Path(__file__).parents[3]
sys.modules["whyidle"] = types.ModuleType("whyidle")
sys.modules["whyidle"].__path__ = [str(ROOT)]
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from whyidle.agents import code_owner as owner  # noqa: E402
from whyidle.agents.context import ProbeContext  # noqa: E402
from whyidle.agents.tensorflow.probe import TensorFlowProbe  # noqa: E402
from whyidle.agents.timers import Timers  # noqa: E402

# In a job its files have no place; here they lie among the user's own.
owner.INSTALLED = (*owner.INSTALLED, f"{ROOT}/agents/")
said: list[str] = []
# An iterator that is still in use when the probe looks.
kept: list[Any] = []
held: list[Any] = []
probes: list[Any] = []
contexts: list[Any] = []
PLACES = {
    "tensorflow.python.eager.polymorphic_function.polymorphic_function": ("Function", "__call__"),
    "tensorflow.python.data.ops.iterator_ops": ("OwnedIterator", "_next_internal"),
    "tensorflow.python.framework.ops": ("_EagerTensorBase", "_numpy"),
    "keras.src.optimizers.base_optimizer": ("BaseOptimizer", "apply"),
    "tensorflow.python.eager.polymorphic_function.tracing_compilation": (
        "_create_concrete_function",
    ),
}


def hooked() -> list[Any]:
    """Return what the probe replaces."""
    found = []
    for module, names in PLACES.items():
        at: Any = sys.modules[module]
        for name in names:
            at = vars(at)[name]
        found.append(at)
    return found


# Two devices, of which most of what follows uses the first.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
tf.keras.utils.set_random_seed(1)
model = tf.keras.Sequential([tf.keras.layers.Input([8]), tf.keras.layers.Dense(4)])
optimizer = tf.keras.optimizers.SGD(0.01)
before = hooked()


def plain_step(x: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x, training=True) ** 2)
    weights = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
    return loss


critic, actor = tf.function(plain_step), tf.function(plain_step)
for each in (critic, actor):
    each(tf.ones([16, 8]))


def seen(work: Any) -> dict[str, Any]:
    """Do something with a probe of its own on, and return what it reported of it."""
    records: list[list[Any]] = []
    context = ProbeContext(Timers(), records.append, said.append, threading.get_ident())
    probe = TensorFlowProbe(context)
    probe.begin()
    probes.append(probe)
    contexts.append(context)
    assert all(a is not b for a, b in zip(before, hooked(), strict=True))
    value = work()
    figures = probe.gauges(time.monotonic_ns())
    steps, _ = context.steps.second(time.monotonic_ns())
    context.hooks.undo()
    facts = [record[3] for record in records if record[0] == "state"][-1]
    compiled = [record for record in records if record[0] == "compile"]
    return {
        "figures": figures,
        "compiled": compiled,
        "steps": steps,
        "value": value,
        "facts": facts,
    }


def by_shape() -> None:
    step = tf.function(plain_step)
    for n in range(4, 8):
        step(tf.ones([n, 8]))


def by_number() -> None:
    @tf.function
    def scaled(x: tf.Tensor, n: int) -> tf.Tensor:
        return x * n

    for n in range(4):
        scaled(tf.ones([2]), n)


class Setting:
    def __init__(self, number: int) -> None:
        self.number = number


class Bare:
    """Nothing holds a weak reference to it, and to write it down ends the program."""

    __slots__ = ()

    def __repr__(self) -> str:
        raise SystemExit


def by_object() -> None:
    @tf.function
    def with_setting(x: tf.Tensor, setting: Setting) -> tf.Tensor:
        return x * setting.number

    for n in range(4):
        with_setting(tf.ones([2]), Setting(n))
    kept.extend(Setting(n) for n in range(2))
    for each in kept:
        with_setting(tf.ones([2]), each)
    kept.clear()


def by_odd_value() -> None:
    @tf.function
    def with_odd(x: tf.Tensor, _odd: object) -> tf.Tensor:
        return x

    for each in (Bare(), Bare(), "a" * 10_000_000, b"b" * 10_000_000):
        with_odd(tf.ones([2]), each)


def made_anew() -> None:
    for _ in range(4):
        tf.function(lambda x: x + 1)(tf.ones([2]))


def steady() -> float:
    step = tf.function(plain_step)
    x = tf.ones([16, 8])
    step(x)
    return [float(step(x)) for _ in range(5)][-1]


def thirty_turns(*calls: tuple[int, Any]) -> None:
    """Make each call in every so many turns of a loop; a second passes after ten of them."""
    for number in range(30):
        for each, call in calls:
            if number % each == 0:
                call()
        if number == 9:
            probes[-1].gauges(time.monotonic_ns())
            contexts[-1].steps.second(time.monotonic_ns())
        time.sleep(0.002)


def beside_others() -> None:
    step = tf.function(plain_step)
    score = tf.function(lambda x: tf.reduce_mean(model(x)))
    x = tf.ones([16, 8])
    thirty_turns((1, lambda: step(x)), (10, lambda: score(x)))


def beside_texts() -> None:
    """What writes texts loops within its graph, and is called more often than the step."""
    layers = [tf.keras.layers.Input([5, 8]), tf.keras.layers.LSTM(4)]
    recurrent = tf.keras.Sequential(layers)
    recurrent.compile("sgd", "mse")
    x, y = np.ones([4, 5, 8], np.float32), np.ones([4, 4], np.float32)
    write = tf.function(lambda x: tf.reduce_mean(recurrent(x)))
    held.extend((recurrent, write))
    thirty_turns((2, lambda: recurrent.train_on_batch(x, y)), (1, lambda: write(x)))


def delayed() -> None:
    """An actor that is trained in each second turn."""
    x = tf.ones([16, 8])
    thirty_turns((1, lambda: critic(x)), (2, lambda: actor(x)))


def eager() -> None:
    for _ in range(5):
        plain_step(tf.ones([16, 8]))


def batches() -> int:
    def numbers() -> Any:
        yield from range(12)

    def twice(x: tf.Tensor) -> tf.Tensor:
        return x * 2

    data = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec([], tf.int64))
    data = data.map(twice).batch(4).shuffle(10)
    kept.append(iter(data))
    return sum(1 for _ in kept[0])


def passes() -> int:
    data = tf.data.Dataset.range(40).map(lambda n: n + 1).batch(8)
    few = data.take(1)
    return sum(1 for each in [data, few] * 30 for _ in each.as_numpy_iterator())


def fit() -> None:
    model.compile("sgd", "mse")
    model.fit(np.ones([64, 8], np.float32), np.ones([64, 4], np.float32), batch_size=8, verbose=0)


def mixed() -> None:
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    layers = [tf.keras.layers.Dense(4), tf.keras.layers.Dense(4)]
    half = tf.keras.Sequential([tf.keras.layers.Input([8]), *layers])
    half.compile("sgd", "mse", jit_compile=False)
    half.fit(np.ones([64, 8], np.float32), np.ones([64, 4], np.float32), batch_size=8, verbose=0)


def set_late() -> None:
    """The model from above was built with another policy."""
    model.compile("sgd", "mse", jit_compile=False)
    model.fit(np.ones([64, 8], np.float32), np.ones([64, 4], np.float32), batch_size=8, verbose=0)


def mirrored() -> None:
    tf.keras.mixed_precision.set_global_policy("float32")
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        both = tf.keras.Sequential([tf.keras.layers.Input([8]), tf.keras.layers.Dense(4)])
        both.compile("sgd", "mse", jit_compile=False)
    both.fit(np.ones([64, 8], np.float32), np.ones([64, 4], np.float32), batch_size=8, verbose=0)


answers: dict[str, Any] = {
    work.__name__: seen(work)
    for work in (
        by_shape,
        by_number,
        by_object,
        by_odd_value,
        made_anew,
        steady,
        beside_others,
        beside_texts,
        delayed,
        eager,
        batches,
        passes,
        fit,
        mixed,
        set_late,
        mirrored,
    )
}
pairs = zip(before, hooked(), strict=True)
answers["left"] = [number for number, (a, b) in enumerate(pairs) if a is not b]
answers["said"] = said
print("\n" + json.dumps(answers, default=str))

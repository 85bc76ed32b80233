"""Programs of many styles on TensorFlow: they come to the same with the probe inside, and after."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
sys.modules["whyidle"] = types.ModuleType("whyidle")
sys.modules["whyidle"].__path__ = [str(ROOT)]
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from whyidle.agents.context import ProbeContext  # noqa: E402
from whyidle.agents.tensorflow.probe import TensorFlowProbe  # noqa: E402
from whyidle.agents.timers import Timers  # noqa: E402

tf.get_logger().setLevel("ERROR")


class Scaled(tf.Module):
    """A module whose call is a method that is a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.Variable(2.0)

    @tf.function
    def __call__(self, x: Any) -> Any:
        """Return it scaled."""
        return self.weight * x


def graphs() -> Iterator[Any]:
    """Graphs in graphs, with loops and branches that AutoGraph converts; iterators in them."""

    @tf.function
    def inner(x: Any) -> Any:
        if tf.reduce_sum(x) > 0:
            return x * 2
        return x - 1

    @tf.function
    def outer(x: Any) -> Any:
        for _ in tf.range(3):
            x = inner(x)
        return x

    @tf.function
    def from_iterator(batches: Any) -> Any:
        total = 0.0
        for _ in tf.range(2):
            total += tf.reduce_sum(next(batches))
        return total

    @tf.function
    def from_dataset(batches: Any) -> Any:
        total = 0.0
        for batch in batches:
            total += tf.reduce_sum(batch)
        return total

    def numbers() -> Iterator[float]:
        for number in range(8):
            yield float(inner(tf.constant(float(number))))

    yield outer(tf.ones([3])).numpy().tolist()
    data = tf.data.Dataset.range(20).map(lambda n: inner(tf.cast(n, tf.float32)), 2).batch(4)
    yield float(from_iterator(iter(data)))
    yield float(from_dataset(data.prefetch(2)))
    made = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec([]))
    yield [float(x) for x in made]
    with ThreadPoolExecutor(4) as pool:
        yield [float(x[0]) for x in pool.map(lambda n: outer(tf.fill([2], float(n))), range(12))]
    x = tf.Variable(1.0)
    with tf.GradientTape() as second:
        with tf.GradientTape() as first:
            y = inner(x * x)
        slope = first.gradient(y, x)
    yield [float(slope), float(second.gradient(slope, x))]
    try:
        outer("text")
    except (TypeError, ValueError, tf.errors.OpError) as error:
        yield type(error).__name__
    yield next(iter(tf.data.Dataset.range(0)), "the end")


def models() -> Iterator[Any]:
    """What is saved and loaded, and Keras: fit, predict, eagerly, and under a strategy."""
    module = Scaled()
    module(tf.constant(1.0))
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder)
        yield float(tf.saved_model.load(folder)(tf.constant(1.0)))
    layers = [tf.keras.layers.Dense(3, activation="relu"), tf.keras.layers.Dropout(0.2)]
    model = tf.keras.Sequential([tf.keras.layers.Input([4]), *layers, tf.keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
    x, y = np.arange(256).reshape(64, 4) / 99, np.arange(64) / 9
    told = model.fit(x, y, epochs=2, batch_size=8, verbose=0, validation_split=0.25)
    yield [float(v).hex() for name in sorted(told.history) for v in told.history[name]]
    yield model.predict(np.ones([2, 4]), verbose=0).tolist()
    model.compile("sgd", "mse", metrics=["mae"], run_eagerly=True)
    yield [float(v).hex() for v in model.train_on_batch(np.ones([4, 4]), np.ones(4))]
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        mirrored = tf.keras.Sequential([tf.keras.layers.Input([4]), tf.keras.layers.Dense(1)])
        mirrored.compile("sgd", "mse")
    yield [float(v).hex() for v in mirrored.fit(x, y, verbose=0).history["loss"]]


def everything() -> list[Any]:
    """Return what all of it comes to."""
    tf.keras.utils.set_random_seed(3)
    return [*graphs(), *models()]


before = everything()
said: list[str] = []
context = ProbeContext(Timers(), lambda _: None, said.append, threading.get_ident())
probe = TensorFlowProbe(context)
probe.begin()
ended = threading.Event()


def ask() -> None:
    """Ask it all the time, as the agent's own thread does each second."""
    while not ended.wait(0.02):
        probe.gauges(time.monotonic_ns())
        context.steps.second(time.monotonic_ns())


asking = threading.Thread(target=ask)
asking.start()
inside = everything()
ended.set()
asking.join()
context.hooks.undo()
print("\n" + json.dumps({"before": before, "inside": inside, "after": everything(), "said": said}))

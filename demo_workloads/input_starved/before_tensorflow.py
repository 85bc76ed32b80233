"""Train a small network on samples that are read from slow storage.

Run: python demo_workloads/input_starved/before_tensorflow.py --seconds 20
"""

import argparse
import time

import numpy as np
import tensorflow as tf

SEED = 1
SAMPLES, FEATURES, HIDDEN, CLASSES = 4096, 256, 1024, 10
BATCH = 32
WARM_UP = 12
READ_SECONDS = 0.001  # one sample from a network disk

tf.keras.utils.set_random_seed(SEED)
model = tf.keras.Sequential(
    [
        tf.keras.layers.Input([FEATURES]),
        tf.keras.layers.Dense(HIDDEN, activation="gelu"),
        tf.keras.layers.Dense(HIDDEN, activation="gelu"),
        tf.keras.layers.Dense(CLASSES),
    ]
)
optimizer = tf.keras.optimizers.Adam(1e-3)
stored = np.random.default_rng(SEED).standard_normal((SAMPLES, FEATURES), np.float32)


def fetch(index: np.ndarray) -> np.ndarray:
    time.sleep(READ_SECONDS * index.size)  # the network, not the CPU
    rows: np.ndarray = stored[index]
    return rows


def read(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    sample = tf.numpy_function(fetch, [index], tf.float32)
    return tf.ensure_shape(sample, [*index.shape, FEATURES]), index % CLASSES


@tf.function
def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        errors = tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=True))
        loss = tf.reduce_mean(errors)
    weights = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
    return loss


def train(seconds: float, steps: int) -> None:
    data = tf.data.Dataset.range(SAMPLES).shuffle(SAMPLES, SEED).repeat()
    data = data.map(read).batch(BATCH)
    loss, done, began = tf.zeros([]), -WARM_UP, time.perf_counter()
    for x, y in data:
        loss = step(x, y)
        done += 1
        if done == 0:
            began = time.perf_counter()
        if done == steps or (done > 0 and time.perf_counter() - began > seconds):
            break
    _, took = float(loss), time.perf_counter() - began  # once all has run
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)

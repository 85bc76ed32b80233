"""Train a small network to label the frames of sound recordings, each of a length of its own.

Run: python demo_workloads/retracing/before_tensorflow.py --seconds 20
"""

import argparse
import time
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

SEED = 1
FEATURES, WIDTH, LABELS = 64, 512, 8
SHORTEST, LONGEST = 200, 2048
BATCH = 1
WARM_UP = 12

tf.keras.utils.set_random_seed(SEED)
model = tf.keras.Sequential(
    [
        tf.keras.layers.Input([FEATURES]),
        tf.keras.layers.Dense(WIDTH, activation="tanh"),
        tf.keras.layers.Dense(WIDTH, activation="tanh"),
        tf.keras.layers.Dense(LABELS),
    ]
)
optimizer = tf.keras.optimizers.Adam(1e-3)


def recordings(random: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Frames, and the label of each."""
    while True:
        length = int(random.integers(SHORTEST, LONGEST))
        frames = random.standard_normal((length, FEATURES), np.float32)
        yield frames, frames[:, :LABELS].argmax(1)


@tf.function
def step(frames: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        scores = model(frames, training=True)
        errors = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
        loss = tf.reduce_mean(errors)
    weights = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
    return loss


def train(seconds: float, steps: int) -> None:
    random = np.random.default_rng(SEED)
    loss, done, began = tf.zeros([]), -WARM_UP, time.perf_counter()
    for frames, labels in recordings(random):
        loss = step(tf.constant(frames), tf.constant(labels))
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

"""Train a small network with a loop of one's own, whose step is plain Python.

Run: python demo_workloads/eager_tensorflow/before_tensorflow.py --seconds 20
"""

import argparse
import time

import numpy as np
import tensorflow as tf

SEED = 1
FEATURES, WIDTH, LAYERS, CLASSES = 64, 128, 4, 10
BATCH = 64
WARM_UP = 12

tf.keras.utils.set_random_seed(SEED)
hidden = [tf.keras.layers.Dense(WIDTH, activation="gelu") for _ in range(LAYERS)]
model = tf.keras.Sequential([tf.keras.layers.Input([FEATURES]), *hidden])
model.add(tf.keras.layers.Dense(CLASSES))
optimizer = tf.keras.optimizers.Adam(1e-3)


def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        scores = model(x, training=True)
        errors = tf.nn.sparse_softmax_cross_entropy_with_logits(y, scores)
        loss = tf.reduce_mean(errors)
    weights = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
    return loss


def train(seconds: float, steps: int) -> None:
    random = np.random.default_rng(SEED)
    x = tf.constant(random.standard_normal((BATCH, FEATURES), np.float32))
    y = tf.constant(random.integers(0, CLASSES, BATCH))
    done, began = -WARM_UP, time.perf_counter()
    while True:
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

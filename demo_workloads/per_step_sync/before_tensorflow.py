"""Train a small network on what the sensors of a machine say while it runs.

Run: python demo_workloads/per_step_sync/before_tensorflow.py --seconds 20
"""

import argparse
import time

import numpy as np
import numpy.typing as npt
import tensorflow as tf

SEED = 1
FEATURES, HIDDEN, KINDS = 768, 640, 8
BATCH = 256
WARM_UP = 10
LOG_EVERY = 100
RATE = 0.02
ANSWER_SECONDS = 0.002  # the sensors, when they are asked

tf.config.experimental.set_synchronous_execution(False)  # a CPU works ahead only so, a GPU always
tf.keras.utils.set_random_seed(SEED)
model = tf.keras.Sequential(
    [
        tf.keras.layers.Input([FEATURES]),
        tf.keras.layers.Dense(HIDDEN, activation="relu"),
        tf.keras.layers.Dense(KINDS),
    ]
)
optimizer = tf.keras.optimizers.SGD(RATE)


class Machine:
    """It is asked again and again, and answers in its own time."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(SEED)
        self.said = self.rng.standard_normal((BATCH, FEATURES), dtype=np.float32)
        self.kinds = np.argmax(self.said[:, :KINDS], axis=1)

    def ask(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        time.sleep(ANSWER_SECONDS)
        self.said[:, 0] += 0.01
        return self.said.copy(), self.kinds


@tf.function
def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        errors = tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=True))
        loss = tf.reduce_mean(errors)
    weights = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
    return loss


def train(seconds: float, steps: int) -> None:
    machine, total = Machine(), tf.zeros([])
    done, began = -WARM_UP, time.perf_counter()
    while done < steps and (done < 0 or time.perf_counter() - began < seconds):
        x, y = machine.ask()
        loss = step(tf.constant(x), tf.constant(y))
        total += float(loss)
        done += 1
        if done == 0:
            began = time.perf_counter()
        if done % LOG_EVERY == 0:
            print(f"{done}: loss {float(total) / LOG_EVERY:.3f}")
            total = tf.zeros([])
    _, took = float(total), time.perf_counter() - began  # once all has run
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)

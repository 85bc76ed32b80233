# Human activity recognition: which of six activities does a window of accelerometer and gyroscope readings show?
# Keras on TensorFlow, tf.data input. Recordings are simulated when the script starts.

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import argparse
import time

import keras
import numpy as np
import tensorflow as tf
from keras import layers

#@ imports

ACTIVITIES = ["sitting", "standing", "walking", "running", "stairs", "cycling"]
CADENCE_HZ = [0.15, 0.3, 1.8, 2.8, 1.4, 1.1]
STRENGTH = [0.1, 0.2, 1.0, 2.2, 1.2, 0.7]
CHANNELS = 6  # acc x y z, gyro x y z
RATE_HZ = 50
WINDOW = 128

TRAIN_WINDOWS = 24_000
VAL_WINDOWS = 768


def simulate(n_windows, seed):
    """Periodic motion with two harmonics per channel, a slow drift, and sensor noise."""
    style = np.random.default_rng(99)  # how each activity moves each channel, the same for everyone
    gain = style.uniform(0.3, 1.0, (len(ACTIVITIES), 2, CHANNELS))
    offset = style.uniform(0, 2 * np.pi, (len(ACTIVITIES), 2, CHANNELS))

    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(ACTIVITIES), n_windows)
    t = np.arange(WINDOW, dtype=np.float32) / RATE_HZ
    hz = np.array(CADENCE_HZ)[labels] * rng.normal(1, 0.12, n_windows)
    start = rng.uniform(0, 2 * np.pi, n_windows)
    phase = (2 * np.pi * hz[:, None] * t + start[:, None]).astype(np.float32)

    x = rng.standard_normal((n_windows, WINDOW, CHANNELS), dtype=np.float32) * 0.5
    x += rng.normal(0, 0.4, (n_windows, 1, CHANNELS)).astype(np.float32)  # how the device is held
    for harmonic in (0, 1):
        amp = (np.array(STRENGTH)[labels, None] * gain[labels, harmonic]).astype(np.float32)
        shift = offset[labels, harmonic].astype(np.float32)
        x += amp[:, None] * np.sin((harmonic + 1) * phase[:, :, None] + shift[:, None])
    return x, labels.astype(np.int32)


def augment(x, y):
    """Works on whole batches: another sensitivity per channel, and a bit of jitter."""
    n = tf.shape(x)[0]
    x *= tf.random.normal([n, 1, CHANNELS], mean=1.0, stddev=0.1)
    x += tf.random.normal(tf.shape(x), stddev=0.05)
    return x, y


def make_datasets(train, val, batch_size):
    train_ds = (
        tf.data.Dataset.from_tensor_slices(train)
        .shuffle(4096)
        .batch(batch_size, drop_remainder=True)
        .map(augment, num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )
    val_ds = tf.data.Dataset.from_tensor_slices(val).batch(batch_size).cache().prefetch(2)
    return train_ds, val_ds


def residual_block(x, filters, stride):
    shortcut = layers.Conv1D(filters, 1, strides=stride, use_bias=False)(x)
    x = layers.Conv1D(filters, 5, strides=stride, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    x = layers.ReLU()(x)
    x = layers.Conv1D(filters, 5, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    return layers.ReLU()(layers.add([x, shortcut]))


def make_model(normalization):
    inputs = keras.Input((WINDOW, CHANNELS))
    x = normalization(inputs)
    x = layers.Conv1D(32, 7, padding="same", activation="relu")(x)
    for filters in (32, 64, 96):
        x = residual_block(x, filters, stride=2)
    x = layers.GlobalAveragePooling1D()(x)
    x = layers.Dropout(0.3)(x)
    return keras.Model(inputs, layers.Dense(len(ACTIVITIES))(x))


class Progress(keras.callbacks.Callback):
    """A sign of life every few hundred steps; the metrics come at the end of each epoch."""

    def __init__(self, batch_size, every=250):
        super().__init__()
        self.batch_size = batch_size
        self.every = every
        self.seen = 0

    def on_epoch_begin(self, epoch, logs=None):
        self.since, self.since_step = time.time(), self.seen

    # The hook at the end of a batch would have Keras fetch the metrics for it in every step.
    def on_train_batch_begin(self, batch, logs=None):
        self.seen += 1
        if self.seen % self.every == 0:
            now = time.time()
            rate = (self.seen - self.since_step) * self.batch_size / (now - self.since)
            print(f"    step {self.seen}: {rate:.0f} windows/s", flush=True)
            self.since, self.since_step = now, self.seen
        #@ step model=self.model opt=self.model.optimizer index=self.seen

    def on_epoch_end(self, epoch, logs=None):
        print(f"epoch {epoch + 1:3d}  " + "  ".join(f"{k} {v:.3f}" for k, v in logs.items()), flush=True)
        #@ epoch


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the batch size")
    args = parser.parse_args()

    keras.utils.set_random_seed(1)
    batch_size = max(8, int(64 * args.scale))
    train, val = simulate(TRAIN_WINDOWS, seed=10), simulate(VAL_WINDOWS, seed=11)
    train_ds, val_ds = make_datasets(train, val, batch_size)

    normalization = layers.Normalization(axis=-1)
    normalization.adapt(train[0][:2048])
    model = make_model(normalization)
    model.compile(
        optimizer=keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(1e-3, 2000, 0.9)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    #@ setup
    model.fit(
        train_ds,
        validation_data=val_ds,
        epochs=10**9,
        callbacks=[Progress(batch_size)],
        verbose=0,
    )

"""Image classification with Keras 3 on the JAX backend.

Trains a small residual convnet on images of textured shapes, with `fit()` on a `PyDataset`.
"""

import os

os.environ["KERAS_BACKEND"] = "jax"

import argparse
import time

import keras
import numpy as np
from keras import layers

#@ imports

IMAGE_SIZE = 32
NUM_CLASSES = 8

"""
## The data
"""


def make_images(n, seed):
    """Gratings: the class is the orientation, frequency and colour vary."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, NUM_CLASSES, n)
    angle = (labels * np.pi / NUM_CLASSES + rng.normal(0, 0.05, n)).astype("float32")
    freq = rng.uniform(0.5, 1.2, n).astype("float32")
    yy, xx = np.mgrid[:IMAGE_SIZE, :IMAGE_SIZE].astype("float32")
    phase = np.cos(angle)[:, None, None] * xx + np.sin(angle)[:, None, None] * yy
    gray = np.sin(freq[:, None, None] * phase)
    color = rng.uniform(0.3, 1.0, (n, 1, 1, 3)).astype("float32")
    images = (gray[..., None] * color + 1.0) * 115.0
    images += rng.integers(0, 26, images.shape, dtype="uint8")
    return images.astype("uint8"), labels.astype("int32")


class GratingDataset(keras.utils.PyDataset):
    def __init__(self, images, labels, batch_size, seed=0, **kwargs):
        super().__init__(**kwargs)
        self.images = images
        self.labels = labels
        self.batch_size = batch_size
        self.rng = np.random.default_rng(seed)
        self.order = self.rng.permutation(len(images))

    def __len__(self):
        return len(self.images) // self.batch_size

    def load(self, i):
        image = self.images[i]
        shift = (i * 7919) % 5 - 2
        image = np.roll(image, shift, axis=1)
        #@ sample array=image
        return image

    def __getitem__(self, idx):
        picked = self.order[idx * self.batch_size : (idx + 1) * self.batch_size]
        x = np.stack([self.load(i) for i in picked])
        y = self.labels[picked]
        #@ batch arrays=x,y
        return x, y

    def on_epoch_end(self):
        self.rng.shuffle(self.order)


"""
## The model
"""


def build_model():
    inputs = keras.Input((IMAGE_SIZE, IMAGE_SIZE, 3), dtype="uint8")
    x = layers.Rescaling(1.0 / 127.5, offset=-1.0)(inputs)
    x = layers.Conv2D(32, 3, strides=2, padding="same")(x)
    for filters in (32, 64):
        shortcut = layers.Conv2D(filters, 1, strides=2, padding="same")(x)
        x = layers.BatchNormalization()(x)
        x = layers.Conv2D(filters, 3, strides=2, padding="same", activation="relu")(x)
        x = layers.Conv2D(filters, 3, padding="same")(x)
        x = layers.Add()([x, shortcut])
    x = layers.GlobalAveragePooling2D()(x)
    outputs = layers.Dense(NUM_CLASSES)(x)
    return keras.Model(inputs, outputs, name="resnet_tiny")


"""
## Logging
"""


class TrainingLog(keras.callbacks.Callback):
    """Images per second now and then, metrics at the end of an epoch.

    The counting is done in `on_train_batch_begin`, which gets no metrics, so that none have to be fetched for it.
    """

    def __init__(self, batch_size, every=200):
        super().__init__()
        self.batch_size = batch_size
        self.every = every
        self.steps = 0
        self.tic = None

    def on_train_begin(self, logs=None):
        self.tic = time.perf_counter()
        #@ setup

    def on_train_batch_begin(self, batch, logs=None):
        self.steps += 1
        if self.steps % self.every == 0:
            toc = time.perf_counter()
            rate = self.every * self.batch_size / (toc - self.tic)
            print(f"  step {self.steps}: {rate:.0f} images/s", flush=True)
            self.tic = toc
        #@ step index=self.steps

    def on_epoch_end(self, epoch, logs=None):
        text = ", ".join(f"{name} {value:.4f}" for name, value in (logs or {}).items())
        print(f"epoch {epoch + 1}: {text}", flush=True)
        #@ epoch


"""
## Training
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    keras.utils.set_random_seed(42)
    batch_size = max(8, int(96 * args.scale))
    train_ds = GratingDataset(
        *make_images(8_192, seed=1), batch_size=batch_size, workers=2, max_queue_size=8
    )

    model = build_model()
    model.compile(
        optimizer=keras.optimizers.AdamW(args.lr, weight_decay=1e-4),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy(name="acc")],
    )
    print(f"{model.count_params()} parameters, {len(train_ds)} batches of {batch_size}")
    model.fit(
        train_ds,
        epochs=1_000_000,
        callbacks=[TrainingLog(batch_size)],
        verbose=0,
    )


if __name__ == "__main__":
    main()

"""
Energy demand regression on tabular sensor features with Keras 3 (JAX backend).
"""
import os

os.environ["KERAS_BACKEND"] = "jax"

import argparse

import keras
import numpy as np
from keras import layers
#@ imports


class LossLogger(keras.callbacks.Callback):
    """Prints the running loss every few epochs and counts batches."""

    def __init__(self, print_every=2):
        super().__init__()
        self.print_every = print_every
        self.seen = 0

    def on_train_batch_end(self, batch, logs=None):
        self.seen += 1
        #@ step index=self.seen

    def on_epoch_end(self, epoch, logs=None):
        if (epoch + 1) % self.print_every == 0:
            shown = "  ".join(f"{k}={v:.4f}" for k, v in logs.items())
            print(f"epoch {epoch + 1:4d}  ({self.seen} batches)  {shown}", flush=True)
        #@ epoch


class ResidualDense(layers.Layer):
    def __init__(self, units, rate=0.1, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.norm = layers.LayerNormalization()
        self.up = layers.Dense(units * 2, activation="gelu")
        self.down = layers.Dense(units)
        self.drop = layers.Dropout(rate)

    def call(self, inputs, training=None):
        #@ forward x=inputs
        x = self.norm(inputs)
        x = self.up(x)
        x = self.down(x)
        return inputs + self.drop(x, training=training)


def make_sensor_table(rows, n_sensors=24, seed=7):
    """Hourly readings: calendar features, weather, a panel of sensors; target is the demand."""
    rng = np.random.default_rng(seed)
    hour = np.arange(rows) % 24
    day = (np.arange(rows) // 24) % 365
    temperature = 12 + 9 * np.sin(2 * np.pi * (day - 100) / 365) + 4 * np.sin(2 * np.pi * (hour - 9) / 24)
    temperature += rng.normal(0, 2, rows)
    weekend = ((np.arange(rows) // 24) % 7 >= 5).astype("float32")
    loadings = rng.normal(size=(4, n_sensors))
    latent = rng.normal(size=(rows, 4))
    sensors = latent @ loadings + 0.3 * rng.normal(size=(rows, n_sensors))

    demand = (
        40
        + 12 * np.exp(-((hour - 19) / 3.0) ** 2)
        + 8 * np.exp(-((hour - 8) / 2.5) ** 2)
        + 0.06 * (temperature - 18) ** 2
        - 6 * weekend
        + 3 * latent[:, 0] * latent[:, 1]
        + rng.normal(0, 1, rows)
    )
    features = np.column_stack([
        np.sin(2 * np.pi * hour / 24), np.cos(2 * np.pi * hour / 24),
        np.sin(2 * np.pi * day / 365), np.cos(2 * np.pi * day / 365),
        temperature, weekend, sensors,
    ])
    return features.astype("float32"), demand.astype("float32")[:, None]


def build_model(n_features, train_x, width=192, depth=3):
    normalizer = layers.Normalization()
    normalizer.adapt(train_x)
    inputs = keras.Input((n_features,))
    x = normalizer(inputs)
    x = layers.Dense(width)(x)
    for _ in range(depth):
        x = ResidualDense(width)(x)
    x = layers.LayerNormalization()(x)
    outputs = layers.Dense(1)(x)
    return keras.Model(inputs, outputs, name="demand")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--scale", type=float, default=1.0)
    ap.add_argument("--rows", type=int, default=32768)
    args = ap.parse_args()
    batch_size = int(1024 * args.scale)

    keras.utils.set_random_seed(1)
    x, y = make_sensor_table(args.rows + 2048)
    y = (y - y.mean()) / y.std()
    x_train, y_train = x[:-2048], y[:-2048]
    x_val, y_val = x[-2048:], y[-2048:]

    model = build_model(x.shape[1], x_train)
    model.compile(
        optimizer=keras.optimizers.AdamW(learning_rate=1e-3, weight_decay=1e-4),
        loss="mse",
        metrics=["mae"],
        jit_compile=True,
    )
    model.summary(print_fn=lambda s: print(s, flush=True))

    logger = LossLogger()
    #@ setup
    model.fit(
        x_train,
        y_train,
        batch_size=batch_size,
        epochs=1_000_000,
        validation_data=(x_val, y_val),
        validation_batch_size=2048,
        validation_freq=20,
        callbacks=[logger],
        verbose=0,
        shuffle=True,
    )


if __name__ == "__main__":
    main()

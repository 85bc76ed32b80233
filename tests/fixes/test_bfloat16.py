"""Layers of Keras and Flax in bfloat16: the policy, and ``dtype`` of all layers but the last.

Programs run as they are and patched, in the environment of .ci/trainers: losses agree to 2%, the
tolerance that the patch names, and not to the last digit.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.fixes.programs import change, refused, tried
from whyidle.monitor.fixes import Patch

PYTHON = Path(__file__).resolve().parents[2] / ".venv" / "trainers" / "bin" / "python"
TOLERANCE = 0.02

# Keras -------------------------------------------------------------------------------------------
SEQUENTIAL = """
import keras
import numpy as np

keras.utils.set_random_seed(1)
random = np.random.default_rng(1)
x = random.standard_normal((256, 8)).astype("float32")
y = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)
model = keras.Sequential([
    keras.layers.Dense(32, activation="relu"),
    keras.layers.LayerNormalization(),
    keras.layers.Dense(3, activation="softmax"),
])
model.compile(optimizer="sgd", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
losses = model.fit(x, y, batch_size=32, epochs=6, shuffle=False, verbose=0).history["loss"]
"""
FUNCTIONAL = """
import numpy as np
from keras import layers, losses as of, mixed_precision_of_mine, optimizers, utils, Model, Input
import keras


def build():
    inputs = Input((8, 8, 1))
    x = layers.Conv2D(8, 3, padding="same", activation="relu")(inputs)
    y = layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same")(x))
    x = layers.Add()([x, y])
    return Model(inputs, layers.Dense(2)(layers.GlobalAveragePooling2D()(x)))


def main():
    utils.set_random_seed(2)
    random = np.random.default_rng(2)
    label = random.integers(0, 2, 128)
    image = random.standard_normal((128, 8, 8, 1)).astype("float32") + label[:, None, None, None]
    model = build()
    loss = of.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizers.Adam(1e-2), loss=loss)
    return model.fit(image, label, batch_size=16, epochs=5, shuffle=False, verbose=0).history["loss"]


losses = main()
""".replace("mixed_precision_of_mine, ", "")
REGRESSION = """
import keras
import numpy as np
from keras.layers import Dense

keras.utils.set_random_seed(3)
x = np.linspace(-1, 1, 512, dtype=np.float32)[:, None]
model = keras.Sequential()
model.add(keras.Input((1,)))
for width in (32, 32):
    model.add(Dense(width, activation="tanh"))
model.add(Dense(1))
model.compile(keras.optimizers.Adam(3e-3), "mse")
losses = []
for epoch in range(5):
    losses += model.fit(x, x**2 + 1, batch_size=64, shuffle=False, verbose=0).history["loss"]
"""

# Flax --------------------------------------------------------------------------------------------
COMPACT = """
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax


class Net(nn.Module):
    width: int = 32

    @nn.compact
    def __call__(self, x):
        for _ in range(2):
            x = nn.relu(nn.Dense(self.width)(x)) + 0.1
        x = nn.LayerNorm()(x)
        return nn.Dense(3, name="out")(x)


net = Net()
x = jax.random.normal(jax.random.key(1), (64, 8))
y = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)
params = net.init(jax.random.key(2), x)


@jax.jit
def step(params):
    def loss(params):
        scores = net.apply(params, x)
        return -jnp.take_along_axis(jax.nn.log_softmax(scores), y[:, None], 1).mean()

    value, slope = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, slope), value


losses = []
for _ in range(12):
    params, value = step(params)
    losses.append(float(value))
""".replace("import optax\n", "")
BLOCKS = """
import jax
from flax import linen as nn
from jax import numpy as jnp


class Block(nn.Module):
    features: int

    def setup(self):
        self.conv = nn.Conv(self.features, (3, 3))
        self.norm = nn.GroupNorm(num_groups=2)

    def __call__(self, x):
        return x + nn.gelu(self.norm(self.conv(x)))


class Vision(nn.Module):
    def setup(self):
        self.stem = nn.Conv(features=8, kernel_size=(3, 3), strides=2)
        self.blocks = [Block(8), Block(8)]
        self.head = nn.Dense(1)

    def __call__(self, image):
        x = self.stem(image)
        for block in self.blocks:
            x = block(x)
        x = x.mean(axis=(1, 2))
        y = self.head(x)
        return y[:, 0]


def main():
    model = Vision()
    image = jax.random.normal(jax.random.key(3), (16, 8, 8, 1))
    target = image.mean(axis=(1, 2, 3)) + 1
    params = model.init(jax.random.key(4), image)
    of = jax.jit(jax.value_and_grad(lambda p: jnp.mean((model.apply(p, image) - target) ** 2)))
    losses = []
    for _ in range(10):
        value, slope = of(params)
        params = jax.tree.map(lambda p, g: p - 0.02 * g, params, slope)
        losses.append(float(value))
    return losses


losses = main()
"""
NNX = """
import jax
import jax.numpy as jnp
from flax import nnx


class Mlp(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.first = nnx.Linear(4, 32, rngs=rngs)
        self.second = nnx.Linear(32, 32, rngs=rngs)
        self.last = nnx.Linear(32, 1, rngs=rngs)

    def __call__(self, x):
        x = jnp.tanh(self.first(x))
        x = jnp.tanh(self.second(x))
        return self.last(x).squeeze(-1)


model = Mlp(nnx.Rngs(5))
x = jax.random.normal(jax.random.key(6), (64, 4))


@nnx.jit
def step(model):
    value, slope = nnx.value_and_grad(lambda m: jnp.mean((m(x) - x.sum(1) - 1) ** 2))(model)
    nnx.update(model, jax.tree.map(lambda p, g: p - 0.05 * g, nnx.state(model), slope))
    return value


losses = [float(step(model)) for _ in range(12)]
"""
RIGHT = {
    "keras sequential": ("mixed_policy", SEQUENTIAL),
    "keras functional": ("mixed_policy", FUNCTIONAL),
    "keras regression": ("mixed_policy", REGRESSION),
    "flax compact": ("flax_dtype", COMPACT),
    "flax blocks": ("flax_dtype", BLOCKS),
    "flax nnx": ("flax_dtype", NNX),
}


@pytest.mark.skipif(not PYTHON.exists(), reason=".ci/trainers was not run")
@pytest.mark.parametrize("name", RIGHT)
def test_losses_agree_to_the_tolerance_that_the_patch_names(name: str, tmp_path: Path) -> None:
    patch = tried(*RIGHT[name])
    assert isinstance(patch, Patch), patch
    assert f"--tolerance {TOLERANCE}" in " ".join(patch.notes)
    runs = []
    for side, text in (("before", patch.before), ("after", patch.after)):
        file = tmp_path / f"{side}.py"
        file.write_text(f"{text}\nimport json\nprint(json.dumps([float(x) for x in losses]))\n")
        quiet = {**os.environ, "JAX_PLATFORMS": "cpu", "KERAS_BACKEND": "torch"}
        done = subprocess.run(
            [PYTHON, file], capture_output=True, text=True, env=quiet, check=False
        )
        assert done.returncode == 0, done.stderr
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    before, after = runs
    assert after == pytest.approx(before, rel=TOLERANCE, abs=TOLERANCE)
    # It did run in half precision.
    assert after != before


def test_the_policy_stands_before_the_model() -> None:
    assert change("mixed_policy", SEQUENTIAL)[1] == [
        "",
        'keras.mixed_precision.set_global_policy("mixed_bfloat16")',
        'keras.layers.Dense(3, activation="softmax", dtype="float32"),',
    ]


def test_all_layers_but_the_last_get_a_type() -> None:
    assert change("flax_dtype", BLOCKS)[1] == [
        "self.conv = nn.Conv(self.features, (3, 3), dtype=jnp.bfloat16)",
        "self.stem = nn.Conv(features=8, kernel_size=(3, 3), strides=2, dtype=jnp.bfloat16)",
    ]


KERAS_TRAPS = {
    "a policy is there": ("random = np", 'random = keras.mixed_precision.Policy("mixed_float16"), np',
                          "says a type"),
    "a layer of one's own": ("x = random", "class Mine(keras.layers.Layer):\n    pass\nx = random",
                             "of the program's own"),
    "a function within a layer": ('activation="relu"', "activation=lambda x: x * 2", "own works on"),
    "an unknown layer": ("LayerNormalization()", "Lambda(abs)", "Lambda"),
    "a type is said": ("LayerNormalization()", 'LayerNormalization(dtype="float32")', "says a type"),
    "a loss of one's own": ('loss="sparse_categorical_crossentropy"', "loss=mine", "needs float32"),
    "results go to NumPy": ("losses = ", "scores = model.predict(x)\nlosses = ", "predict"),
    "a loop of one's own": ("losses = ", "with tf.GradientTape() as tape: pass\nlosses = ",
                            "GradientTape"),
    "never fitted": ("model.fit(", "fitted(", "built, compiled and fitted"),
}  # fmt: skip


@pytest.mark.parametrize("name", KERAS_TRAPS)
def test_keras_is_left(name: str) -> None:
    old, new, why = KERAS_TRAPS[name]
    assert SEQUENTIAL.count(old) == 1
    assert why in refused("mixed_policy", SEQUENTIAL.replace(old, new))


FLAX_TRAPS = {
    "types are said": ("nn.Dense(self.width)", "nn.Dense(self.width, dtype=jnp.float32)", "dtype"),
    "a type by its place": ("nn.Dense(self.width)", "nn.Dense(self.width, True, None)", "by name"),
    "arguments from elsewhere": ("nn.Dense(self.width)", "nn.Dense(**more)", "by name"),
    "two types do not fit": ("nn.relu(nn.Dense(self.width)(x))", "jax.lax.dot(x, nn.Dense(9)(x))",
                             "lax"),
    "values are kept": ("        x = nn.LayerNorm()(x)", '        self.sow("a", "x", x)', "sow"),
    "the model returns more": ('return nn.Dense(3, name="out")(x)',
                               'return nn.Dense(3, name="out")(x), x', "no layer"),
    "no layer is last": ('return nn.Dense(3, name="out")(x)', "return x", "no layer"),
    "a sum is last": ('return nn.Dense(3, name="out")(x)', "return nn.Dense(3)(x) + x.mean()",
                      "no layer"),
    "another way in": ("    @nn.compact", "    encode = None\n    def decode(self): pass\n    @nn.compact",
                       "more ways"),
    "half precision is there": ("jax.random.key(1), (64, 8))",
                                "jax.random.key(1), (64, 8), jnp.float16)", "float16"),
}  # fmt: skip


@pytest.mark.parametrize("name", FLAX_TRAPS)
def test_flax_is_left(name: str) -> None:
    old, new, why = FLAX_TRAPS[name]
    assert COMPACT.count(old) == 1
    assert why in refused("flax_dtype", COMPACT.replace(old, new))


def test_programs_of_others_are_left() -> None:
    assert tried("mixed_policy", "import torch\n") is None
    assert tried("flax_dtype", "import flax.linen as nn\n") is None
    assert tried("flax_dtype", SEQUENTIAL) is None

"""Changes of programs of TensorFlow."""

from __future__ import annotations

import pytest

from tests.fixes.programs import change, refused, tried

STEP = """
import numpy as np
import tensorflow as tf
{more}
hidden = [tf.keras.layers.Dense(8, activation="gelu") for _ in range(2)]
model = tf.keras.Sequential([tf.keras.layers.Input([4]), *hidden])
{layers}
optimizer = tf.keras.optimizers.Adam(1e-3)
seen, rate = [], 0.1

def loss_of(scores, y):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, scores))

def step(x, y{default}):
    with tf.GradientTape() as tape:
        loss = loss_of(model(x, training=True), y)
    weights = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
    {body}
    return loss

def main(data):
    for x, y in data:
        loss = step(x, y{given})
    print(float(loss))
"""


def program(**more: str) -> str:
    given = {"more": "", "layers": "", "body": "pass", "default": "", "given": ""} | more
    return STEP.format(**given)


def test_a_step_becomes_a_graph() -> None:
    assert change("graph_step", program(), "loss_of(model")[1] == ["@tf.function"]
    assert change("graph_step", program(), "step(x, y)")[1] == ["@tf.function"]


def test_names_of_keras_itself_and_a_metric() -> None:
    text = program(
        more="import keras\nfrom keras import layers",
        layers="right = keras.metrics.SparseCategoricalAccuracy()\nmodel.add(layers.Dense(3))",
        body="right.update_state(y, model(x))",
    ).replace("tf.keras.", "keras.")
    assert change("graph_step", text, "loss_of(model")[1] == ["@tf.function"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"body": "print(loss)"}, "print"),
        ({"body": "seen.append(loss)"}, "nothing is known"),
        ({"body": "loss = loss.numpy()"}, "nothing is known"),
        ({"body": "if loss > 3: weights = []"}, "decides by a value"),
        ({"body": "loss = float(loss)"}, "float"),
        ({"body": "loss = np.mean(loss)"}, "numpy.mean"),
        ({"body": "text = f'{loss}'"}, "text"),
        ({"body": "loss = loss * rate", "layers": "for rate in (1, 2): pass"}, "changes"),
        ({"body": "x = tf.random.normal([3])"}, "random"),
        ({"body": "x = tf.nn.dropout(x, 0.1)"}, "dropout"),
        ({"layers": "model.add(tf.keras.layers.Dropout(0.1))"}, "Dropout"),
        ({"layers": "other = tf.keras.layers.RandomFlip()"}, "RandomFlip"),
        ({"default": ", mode", "given": ", 'train'"}, "with text"),
        ({"default": ", rate", "given": ", 0.1"}, "a number"),
        ({"default": ", mode=None"}, "default"),
    ],
)
def test_what_depends_on_running_each_time_stays(more: dict[str, str], why: str) -> None:
    assert why in refused("graph_step", program(**more), "loss_of(model")


def test_a_model_from_elsewhere_is_not_known() -> None:
    text = (
        program()
        .replace("def step(x, y)", "def step(model, x, y)")
        .replace("step(x, y)\n", "step(model, x, y)\n")
    )
    assert "nothing is known" in refused("graph_step", text, "loss_of(model")


def test_a_graph_stays_one() -> None:
    text = program().replace("def step", "@tf.function\ndef step")
    assert tried("graph_step", text, "loss_of(model") is None


# The pipeline ------------------------------------------------------------------------------------
PIPELINE = """
import tensorflow as tf
{more}
def read(row):
    return tf.io.parse_tensor(row, tf.float32)
data = {chain}
for batch in data:
    step(batch)
"""
FILES = "tf.data.TFRecordDataset(files).shuffle(99, seed=1).map({by}).batch(32)"


def pipeline(by: str = "read", more: str = "", chain: str = FILES) -> str:
    return PIPELINE.format(more=more, chain=chain.format(by=by))


def test_a_pipeline_works_ahead() -> None:
    assert "".join(change("read_ahead", pipeline(), "for batch")[1]) == (
        f"data = {FILES.format(by='read, num_parallel_calls=tf.data.AUTOTUNE')}"
        ".prefetch(tf.data.AUTOTUNE)"
    )


def test_in_the_loop_itself_and_without_a_map() -> None:
    text = "import tensorflow as tf\nfor x in tf.data.Dataset.range(9).batch(3):\n    step(x)\n"
    assert change("read_ahead", text, "for x")[1] == [
        "for x in tf.data.Dataset.range(9).batch(3).prefetch(tf.data.AUTOTUNE):"
    ]


def test_what_draws_is_not_run_in_parallel() -> None:
    found = change("read_ahead", pipeline(by="lambda row: tf.random.normal([3])"), "for batch")
    assert "num_parallel_calls" not in found[1][0]
    assert found[1][0].endswith(".prefetch(tf.data.AUTOTUNE)")


def test_pythons_own_code_is_not_run_ahead() -> None:
    text = pipeline(chain="tf.data.Dataset.from_generator(rows, tf.float32).batch(3)")
    assert "Python" in refused("read_ahead", text, "for batch")
    text = pipeline(more="data_of = lambda x: tf.numpy_function(f, [x], tf.float32)")
    assert "Python" in refused("read_ahead", text, "for batch")


def test_several_pipelines_are_told_apart_by_their_lines() -> None:
    text = pipeline(more="test = tf.data.Dataset.range(9).batch(3)")
    assert "several" in refused("read_ahead", text)
    assert "TFRecord" in change("read_ahead", text, "data = ")[1][0]


def test_one_that_works_ahead_stays() -> None:
    text = pipeline(chain=FILES + ".prefetch(1)")
    assert tried("read_ahead", text, "for batch") is None

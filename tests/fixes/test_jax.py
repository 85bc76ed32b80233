"""Changes of programs of JAX."""

from __future__ import annotations

import pytest

from tests.fixes.programs import change, refused, tried

# The step ----------------------------------------------------------------------------------------
STEP = """
import jax
import jax.numpy as jnp
import numpy as np
RATE = 0.1
LOG = []
scale = 1.0

def loss(params, x, y):
    for w in params:
        x = jnp.tanh(x @ w)
    return ((x - y) ** 2).mean()

class Batch:
    pass

def step(params, x, y):
    {body}
    value, slope = jax.value_and_grad(loss)(params, x, y)
    return jax.tree.map(lambda p, g: p - RATE * g, params, slope), value

def main():
    params = init()
    for x, y in batches():
        params, value = step(params, x, y)
    print(value)
"""


def test_a_step_is_compiled() -> None:
    assert change("jit_step", STEP.format(body="x = x + 1"), "x @ w")[1] == ["@jax.jit"]


def test_by_another_name_and_with_jit_alone() -> None:
    program = STEP.format(body="pass").replace("import jax\n", "import jax\nfrom jax import jit\n")
    program = program.replace("for x, y in", "go = step\n    for x, y in").replace(
        "= step(", "= go("
    )
    assert change("jit_step", program, "value_and_grad")[1] == ["@jit"]


def test_static_conditions_and_lists_of_its_own() -> None:
    body = "outs = []\n    if x.ndim == 3:\n        x = x[0]\n    outs.append(x)"
    assert change("jit_step", STEP.format(body=body), "x @ w")[1] == ["@jax.jit"]


def test_nested_loops_with_a_bar() -> None:
    program = STEP.format(body="pass").replace(
        "    for x, y in batches():\n        params",
        "    for epoch in range(3):\n      for x, y in tqdm(batches()):\n        params",
    )
    assert change("jit_step", program, "x @ w")[1] == ["@jax.jit"]


@pytest.mark.parametrize("body", [
    "print(x)",
    "x = np.roll(x, 1)",
    "LOG.append(x)",
    "x = x * scale",
    "if x.sum() > 0: x = -x",
    "global RATE; RATE = 0.5",
    "x = unknown(x)",
    "n = float(x.sum())",
    "params[0] = x",
    "params.count = 1",
    "w = params.weights",
    "z = jnp.zeros(y)",
    "x = y(x)",
    "assert x.sum() > 0",
    "x = jax.device_get(x)",
    "x = x[:y]",
    "x = x.reshape(y, -1)",
    "x = jnp.sum(x, axis=y)",
])  # fmt: skip
def test_a_step_that_does_more(body: str) -> None:
    program = STEP.format(body=body)
    if "scale" in body:
        program += "    global scale\n    scale = 2.0\n"
    assert refused("jit_step", program, "x @ w")


@pytest.mark.parametrize("call", ["step(params, x, 'mean')", "step(params, x, lambda t: t)",
                                  "step(params, x, y=y)", "step(params, x, None)",
                                  "step(params, x, **more)", "step(params, x, Batch(y))",
                                  "step(params, x, 32)"])  # fmt: skip
def test_a_step_that_is_called_otherwise(call: str) -> None:
    assert refused(
        "jit_step",
        STEP.format(body="pass").replace("step(params, x, y)\n    print", f"{call}\n    print"),
        "x @ w",
    )


def test_a_compiled_step_is_left() -> None:
    assert (
        tried("jit_step", STEP.format(body="pass").replace("def step", "@jax.jit\ndef step"))
        is None
    )


# Buffers -----------------------------------------------------------------------------------------
DONATED = """
import jax
from functools import partial
{mark}
def update(state, x):
    return jax.tree.map(lambda s: s + x.mean(), state), x.sum()

def main():
    state = first()
    for x in batches():
        state, value = update(state, x)
        {line}
    return state
"""


@pytest.mark.parametrize(("mark", "new"), [
    ("@jax.jit", "@partial(jax.jit, donate_argnums=(0,))"),
    ("@partial(jax.jit)", "@partial(jax.jit, donate_argnums=(0,))"),
])  # fmt: skip
def test_a_state_is_donated(mark: str, new: str) -> None:
    assert change("donated_buffers", DONATED.format(mark=mark, line="print(value)"))[1] == [new]


def test_a_state_in_two_arguments() -> None:
    _, new = change(
        "donated_buffers",
        """
import jax
step = jax.jit(go)
params, moments = init_params(), init_moments()
for x in data:
    params, moments = step(params, moments, x)
    print(params[0].sum())
""",
    )
    assert new == ["step = jax.jit(go, donate_argnums=(0, 1))"]


@pytest.mark.parametrize("line", ["best = state", "history.append(state)", "kept = (state, value)",
                                  "average = Average(state)", "old = dict(s=state)"])  # fmt: skip
def test_a_state_that_is_held(line: str) -> None:
    assert refused("donated_buffers", DONATED.format(mark="@jax.jit", line=line))


@pytest.mark.parametrize("first", ["def first():\n    z = make()\n    return z, z\n",
                                   "def first():\n    a = make()\n    b = a\n    return a, b\n"])  # fmt: skip
def test_one_array_twice(first: str) -> None:
    assert "twice" in refused(
        "donated_buffers", DONATED.format(mark="@jax.jit", line="pass") + first
    )


def test_a_call_that_replaces_nothing() -> None:
    program = DONATED.format(mark="@jax.jit", line="pass").replace(
        "state, value =", "other, value ="
    )
    assert refused("donated_buffers", program)


# The value with the gradient ---------------------------------------------------------------------
TWICE = """
import jax
import jax.numpy as jnp
def loss(w, x):
    return jnp.mean((x @ w) ** 2)
slope_of = jax.jit(jax.grad(loss))
fast = jax.jit(loss)
def train(w):
    for x in data:
        {lines}
        w = w - 0.1 * g
"""


@pytest.mark.parametrize(("lines", "new"), [
    ("value = fast(w, x)\n        g = slope_of(w, x)",
     ["value_and_gradient = jax.jit(jax.value_and_grad(loss))", "value, g = value_and_gradient(w, x)"]),
    ("g = jax.grad(loss)(w, x)\n        value = loss(w, x)", ["value, g = jax.value_and_grad(loss)(w, x)"]),
    ("value = loss(w, x)  # seen\n        n = 1\n        g = slope_of(w, x)",
     ["value_and_gradient = jax.jit(jax.value_and_grad(loss))",
      "value, g = value_and_gradient(w, x)  # seen"]),
])  # fmt: skip
def test_one_pass_for_both(lines: str, new: list[str]) -> None:
    assert change("value_and_grad", TWICE.format(lines=lines))[1] == new


@pytest.mark.parametrize(("lines", "body"), [
    ("value = fast(w, x)\n        w = w + 1\n        g = slope_of(w, x)", None),
    ("value = fast(w, next(it))\n        g = slope_of(w, next(it))", None),
    ("value = fast(w, x)\n        g = slope_of(w, x)", "print(w); return x"),
    ("g = slope_of(w, x)\n        show(g)\n        value = fast(w, x)", None),
])  # fmt: skip
def test_two_passes_stay(lines: str, body: str | None) -> None:
    program = TWICE.format(lines=lines)
    if body is not None:
        program = program.replace("return jnp.mean((x @ w) ** 2)", body)
    assert refused("value_and_grad", program)


# Data --------------------------------------------------------------------------------------------
ON_DEVICE = """
import jax
import numpy as np
@jax.jit
def step(w, images, i):
    return w + images[i]
def main():
    {made}
    w = 0.0
    for i in range(100):
        w = step(w, images, i)
    {end}
"""


@pytest.mark.parametrize("made", ["images = np.load('x.npy')", "images = read()"])
def test_data_goes_to_the_device(made: str) -> None:
    name, _, value = made.partition(" = ")
    _, new = change("data_on_device", ON_DEVICE.format(made=made, end="pass"), "w = step")
    assert new == [f"{name} = jax.device_put({value})"]


def test_a_pair_of_data_and_a_compiled_name() -> None:
    _, new = change(
        "data_on_device",
        """
import jax
step = jax.jit(go)
images, labels = load()
w = 0
for i in range(9):
    w = step(w, images, labels, i)
""",
    )
    assert new == ["images, labels = jax.device_put(load())"]


@pytest.mark.parametrize("end", ["images[0] = 1", "print(images.mean())", "return images"])
def test_data_that_the_host_uses(end: str) -> None:
    assert refused("data_on_device", ON_DEVICE.format(made="images = read()", end=end), "w = step")


# Copies ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("old", "new"), [
    ("[jax.device_put(x) for x in xs]", "jax.device_put([x for x in xs])"),
    ("jnp.stack([device_put(t[r]) for t in table if t])", "jnp.stack(device_put([t[r] for t in table if t]))"),
    ("f([jax.device_put(a + b)\n    for a, b in zip(m, n)])", "f(jax.device_put([a + b"),
])  # fmt: skip
def test_one_call_for_all_copies(old: str, new: str) -> None:
    program = f"import jax\nimport jax.numpy as jnp\nfrom jax import device_put\ny = {old}\n"
    assert f"y = {new}" in change("copied_together", program)[1]


@pytest.mark.parametrize(
    "old", ["[jax.device_put(x, d) for x, d in xs]", "[jax.device_put(*x) for x in xs]"]
)
def test_copies_to_several_places(old: str) -> None:
    assert refused("copied_together", f"import jax\ny = {old}\n")

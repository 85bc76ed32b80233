"""Float64 only within compiled programs: jobs of several styles, and their healthy twins."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.jax.jobs import JAX, job
from tests.agents.jax.test_faults import has
from tests.rules.windows import found, is_silent, window

# A collection of all that JAX has made takes 0.2 s: one that falls into a look at a program counts
# as its cost, and the agent rests for a minute.
HEAD = """
import gc, jax, jax.numpy as jnp, numpy as np
gc.freeze()
jax.config.update("jax_enable_x64", {x64})
w, x = jnp.full((64, 64), 0.01, jnp.float32), jnp.ones((256, 64), jnp.float32)
"""
TAIL = """
step = jax.jit(step)
call = lambda i: jax.block_until_ready(step(w, x))
call(0); attach(); obey(call)
"""
FAULTS = {
    # A constant of NumPy's makes all after it float64; weights and result stay float32.
    "constant": """
scale = np.full(64, 0.5)
def step(w, x):
    y = jnp.tanh((x * scale) @ w)
    return (w - 0.1 * (y.T @ y)).astype(jnp.float32)
""",
    # One function casts, what it returns is float32 again.
    "function": """
def careful(w, x):
    a = jnp.asarray(x, jnp.float64) @ jnp.asarray(w, jnp.float64)
    return jnp.asarray(jnp.exp(-a), jnp.float32)
def step(w, x): return careful(w, x).sum()
""",
    "carry": """
def step(w, x):
    def body(c, _): return jnp.tanh(c @ w), None
    return jax.lax.scan(body, x.astype("float64"), None, length=8)[0].astype("float32")
""",
}
HEALTHY = {
    "float32": "def step(w, x): return jnp.tanh(x @ w) @ w",
    "accumulator": """
rate = np.float64(0.1)
def step(w, x):
    y = x @ w
    loss = jnp.sum(jnp.square(y).mean(1), dtype="float64")
    return w - jnp.float32(rate) * (x.T @ y), loss
""",
    "counter": """
count = jnp.zeros((), "float64")
def step(w, x):
    return jax.lax.fori_loop(0, 8, lambda _, c: (jnp.tanh(c[0] @ w), c[1] + 1.0), (x, count))
""",
}
ON_THE_HOST = """
table = np.random.default_rng(0).normal(size=(1000, 1000))
def step(w, x): return jnp.tanh(x @ w)
"""


def seen(source: str, folder: Path, *, x64: bool = True) -> dict[str, object]:
    with job(HEAD.format(x64=x64) + source + TAIL, folder, JAX) as it:
        facts: dict[str, object] = it.facts(
            lambda facts: bool(facts.get("dtypes")) and has("jit_step")(facts)
        )
    return facts


@pytest.mark.parametrize("style", FAULTS)
def test_programs_that_compute_in_float64(style: str, tmp_path: Path) -> None:
    facts = seen(FAULTS[style], tmp_path)
    finding = found("double_precision", window(facts={"jax": facts}, inside=True))
    assert finding.evidence[0].name == "products in compiled programs in float64"
    assert finding.evidence[0].value == pytest.approx(1.0)


@pytest.mark.parametrize("style", HEALTHY)
def test_programs_of_float32_under_64_bits(style: str, tmp_path: Path) -> None:
    facts = seen(HEALTHY[style], tmp_path)
    assert is_silent("double_precision", window(facts={"jax": facts}, inside=True))


def test_float64_of_numpy_alone(tmp_path: Path) -> None:
    facts = seen(ON_THE_HOST, tmp_path, x64=False)
    assert is_silent("double_precision", window(facts={"jax": facts}, inside=True))

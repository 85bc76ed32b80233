"""Loops over the samples of a batch."""

from __future__ import annotations

import pytest

from tests.fixes.programs import change, refused, tried

PROGRAM = """
import jax
import jax.numpy as jnp
import numpy as np
{more}
def score(params, x, y=0):
    {body}
    return jnp.sum(jnp.tanh(x @ params)) - y

def batch_score(params, x: {kind}, y: np.ndarray):
    return {loop}
"""


def program(loop: str, *, kind: str = "jax.Array", body: str = "pass", more: str = "") -> str:
    return PROGRAM.format(loop=loop, kind=kind, body=body, more=more)


@pytest.mark.parametrize(
    ("loop", "new"),
    [
        (
            "jnp.stack([score(params, x[i], y[i]) for i in range(len(x))])",
            "jax.vmap(lambda one_x, one_y: score(params, one_x, one_y))(x, y[: len(x)])",
        ),
        (
            "jnp.mean(jnp.array([score(params, x[k]) for k in range(x.shape[0])]))",
            "jnp.mean(jax.vmap(lambda one_x: score(params, one_x))(x))",
        ),
        (
            "sum(score(params, a, b) for a, b in zip(x, y, strict=True)) / 8",
            "jax.vmap(lambda a, b: score(params, a, b))(x, y).sum(0) / 8",
        ),
        (
            "jnp.stack([score(params, row) for row in x])",
            "jax.vmap(lambda row: score(params, row))(x)",
        ),
    ],
)
def test_one_call_for_all_samples(loop: str, new: str) -> None:
    assert change("over_the_batch", program(loop), "return {")[1] == [f"return {new}"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"kind": "list"}, "no list"),
        ({"body": "print(x)"}, "print"),
        ({"body": "x = x if x[0] > 0 else -x"}, "condition"),
        ({"loop": "jnp.stack([score(params, x[i], i) for i in range(len(x))])"}, "the number of"),
        ({"loop": "jnp.stack([score(params, a, b) for a, b in zip(x, y)])"}, "lengths"),
        ({"loop": "jnp.stack([score(params, a) for a in x if a[0] > 0])"}, "left out"),
        ({"loop": "jnp.stack([score(params, load(a)) for a in x])"}, "computed for each"),
        ({"loop": "jnp.stack([other(params, a) for a in x])"}, "not seen"),
        ({"more": "from functools import partial\n@partial(jax.jit, static_argnums=1)"}, "certain"),
    ],
)
def test_what_is_not_certain_is_refused(given: dict[str, str], why: str) -> None:
    text = program(**{"loop": "jnp.stack([score(params, a) for a in x])"} | given)
    assert why in refused("over_the_batch", text, "return jnp.stack")


def test_loops_whose_results_are_kept_one_by_one_stay() -> None:
    assert tried("over_the_batch", program("[score(params, a) for a in x]"), "return [") is None

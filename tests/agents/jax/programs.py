"""Small training jobs with a planted fault, and without: a job imports them by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Step = Callable[[int], Any]
RANDOM = np.random.default_rng(0)


def network(params: Any, x: Any) -> Any:
    for w, b in params:
        x = jnp.tanh(x @ w + b)
    return x


def loss(params: Any, x: Any, y: Any) -> Any:
    return ((network(params, x) - y) ** 2).mean()


def layers(size: int = 32, number: int = 3) -> list[Any]:
    return [
        (jnp.asarray(RANDOM.normal(size=(size, size)) * 0.1, jnp.float32), jnp.zeros(size))
        for _ in range(number)
    ]


def descend(params: Any, gradient: Any) -> Any:
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)


def eager(fault: bool) -> Step:
    """The step is never compiled whole."""
    x, y, state = jnp.ones((32, 32)), jnp.zeros((32, 32)), [layers()]

    def train(params: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(params, x, y)
        return descend(params, gradient), value

    compiled = train if fault else jax.jit(train)

    def step(_: int) -> None:
        state[0], value = compiled(state[0])
        float(value)

    return step


def retrace(fault: bool) -> Step:
    """Each batch has a shape of its own."""
    state = [layers()]
    lengths = RANDOM.permutation(np.arange(20, 120))

    @jax.jit
    def train(params: Any, x: Any, mask: Any) -> Any:
        def masked(params: Any) -> Any:
            return ((network(params, x) ** 2).mean(-1) * mask).sum() / mask.sum()

        value, gradient = jax.value_and_grad(masked)(params)
        return descend(params, gradient), value

    def step(i: int) -> None:
        length = int(lengths[i % len(lengths)])
        x, mask = np.ones((length, 32), np.float32), np.ones(length, np.float32)
        if not fault:
            x, mask = np.pad(x, ((0, 128 - length), (0, 0))), np.pad(mask, (0, 128 - length))
        state[0], value = train(state[0], x, mask)
        float(value)

    return step


def loop(fault: bool) -> Step:
    """One example at a time, instead of ``vmap``."""
    params, examples = layers(), jnp.asarray(RANDOM.normal(size=(64, 32)), jnp.float32)
    one = jax.jit(lambda params, x: (network(params, x) ** 2).sum())
    many = jax.jit(lambda params, xs: jax.vmap(one, in_axes=(None, 0))(params, xs).mean())

    def step(_: int) -> None:
        if fault:
            float(jnp.stack([one(params, examples[j]) for j in range(64)]).mean())
        else:
            float(many(params, examples))

    return step


def unrolled(fault: bool) -> Step:
    """A loop over time that is written out in the program, instead of ``scan``."""
    state, xs = (
        [jnp.asarray(RANDOM.normal(size=(16, 16)) * 0.1, jnp.float32)],
        jnp.ones((60, 4, 16)),
    )

    def recurrent(w: Any) -> Any:
        def cell(h: Any, x: Any) -> Any:
            return jnp.tanh(h @ w + x), None

        h = jnp.zeros((4, 16))
        if fault:
            for t in range(60):
                h, _ = cell(h, xs[t])
        else:
            h, _ = lax.scan(cell, h, xs)
        return (h**2).sum()

    @jax.jit
    def train(w: Any) -> Any:
        value, gradient = jax.value_and_grad(recurrent)(w)
        return w - 1e-3 * gradient, value

    def step(_: int) -> None:
        state[0], value = train(state[0])
        float(value)

    return step


def twice(fault: bool) -> Step:
    """The loss is computed once to be printed, and once more for its gradient."""
    x, y, state = jnp.ones((64, 128)), jnp.zeros((64, 128)), [layers(128, 4)]
    forward = jax.jit(loss)
    backward = jax.jit(jax.grad(loss))
    both = jax.jit(jax.value_and_grad(loss))
    update = jax.jit(descend, donate_argnums=0)

    def step(_: int) -> None:
        if fault:
            value, gradient = forward(state[0], x, y), backward(state[0], x, y)
        else:
            value, gradient = both(state[0], x, y)
        state[0] = update(state[0], gradient)
        float(value)

    return step


def large_read(fault: bool) -> Step:
    """All activations are fetched for their mean."""
    state = [jnp.ones((1000, 1000))]
    train = jax.jit(lambda big: big * 1.0001)
    mean = jax.jit(jnp.mean)

    def step(_: int) -> None:
        state[0] = train(state[0])
        if fault:
            float(np.asarray(jax.device_get(state[0])).mean())
        else:
            float(mean(state[0]))

    return step

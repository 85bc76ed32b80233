"""Cart-pole with a continuous force, as pure functions of (state, action, key)."""
from typing import NamedTuple

import jax
import jax.numpy as jnp

GRAVITY, CART, POLE, LENGTH, DT = 9.8, 1.0, 0.1, 0.5, 0.02
FORCE_MAX = 10.0
LIMIT_X, LIMIT_THETA = 2.4, 0.21
MAX_STEPS = 500
OBS_DIM, ACT_DIM = 4, 1


class EnvState(NamedTuple):
    x: jax.Array
    x_dot: jax.Array
    theta: jax.Array
    theta_dot: jax.Array
    t: jax.Array


def observe(s: EnvState) -> jax.Array:
    return jnp.stack([s.x, s.x_dot, s.theta, s.theta_dot])


def reset(key: jax.Array) -> EnvState:
    v = jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
    return EnvState(v[0], v[1], v[2], v[3], jnp.int32(0))


def step(s: EnvState, action: jax.Array, key: jax.Array):
    """One step of one environment; an ended episode is replaced by a fresh one."""
    force = FORCE_MAX * jnp.tanh(action[0])
    total = CART + POLE
    sin, cos = jnp.sin(s.theta), jnp.cos(s.theta)
    tmp = (force + POLE * LENGTH * s.theta_dot**2 * sin) / total
    theta_acc = (GRAVITY * sin - cos * tmp) / (LENGTH * (4.0 / 3.0 - POLE * cos**2 / total))
    x_acc = tmp - POLE * LENGTH * theta_acc * cos / total
    nxt = EnvState(
        s.x + DT * s.x_dot,
        s.x_dot + DT * x_acc,
        s.theta + DT * s.theta_dot,
        s.theta_dot + DT * theta_acc,
        s.t + 1,
    )
    done = (jnp.abs(nxt.x) > LIMIT_X) | (jnp.abs(nxt.theta) > LIMIT_THETA) | (nxt.t >= MAX_STEPS)
    reward = 1.0 - 0.001 * force**2 / FORCE_MAX
    nxt = jax.tree.map(lambda a, b: jnp.where(done, a, b), reset(key), nxt)
    return nxt, reward, done

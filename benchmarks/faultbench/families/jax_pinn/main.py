"""Inverse problem for the viscous Burgers equation with a physics-informed network.

    u_t + u u_x = nu u_xx,      x in [-1, 1],  t in [0, 1]

The viscosity nu is unknown; it is found together with u from noisy sensor readings. Collocation points are drawn afresh
on the device for every gradient step, and `inner` gradient steps are taken per call.
"""
import itertools
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

#@ imports

SCALE = float(sys.argv[sys.argv.index("--scale") + 1]) if "--scale" in sys.argv else 1.0
WIDTHS = (2, 40, 40, 40, 1)
N_COLLOC = max(32, int(960 * SCALE))
N_SENSOR = 256
INNER = 20
NU_TRUE = 0.05
SPEED, HEIGHT = 0.4, 0.6


def exact(t, x, nu):
    """Travelling front."""
    return SPEED - HEIGHT * np.tanh(HEIGHT * (x - SPEED * t) / (2 * nu))


def read_sensors(n, noise=0.01, seed=0):
    rng = np.random.default_rng(seed)
    tx = np.stack([rng.uniform(0, 1, n), rng.uniform(-1, 1, n)], axis=1)
    u = exact(tx[:, 0], tx[:, 1], NU_TRUE) + noise * rng.standard_normal(n)
    return tx.astype(np.float32), u.astype(np.float32)


# -- network ---------------------------------------------------------------------------------------------------------
def init_params(key):
    layers = []
    for n_in, n_out in zip(WIDTHS[:-1], WIDTHS[1:]):
        key, sub = jax.random.split(key)
        w = jax.random.normal(sub, (n_in, n_out)) * jnp.sqrt(2.0 / (n_in + n_out))
        layers.append((w, jnp.zeros(n_out)))
    return {"net": layers, "log_nu": jnp.log(0.2)}


def u(net, t, x):
    """Value of the network at one point."""
    z = jnp.stack([2 * t - 1, x])
    for w, b in net[:-1]:
        z = jnp.tanh(z @ w + b)
    w, b = net[-1]
    return (z @ w + b)[0]


def residual_at(net, nu, t, x):
    value, (u_t, u_x) = jax.value_and_grad(u, argnums=(1, 2))(net, t, x)
    u_xx = jax.grad(jax.grad(u, argnums=2), argnums=2)(net, t, x)
    return u_t + value * u_x - nu * u_xx


def residual(params, tx):
    #@ forward x=tx
    nu = jnp.exp(params["log_nu"])
    return jax.vmap(residual_at, in_axes=(None, None, 0, 0))(params["net"], nu, tx[:, 0], tx[:, 1])


def predict(params, tx):
    return jax.vmap(u, in_axes=(None, 0, 0))(params["net"], tx[:, 0], tx[:, 1])


# -- optimisation ----------------------------------------------------------------------------------------------------
def objective(params, colloc, tx_obs, u_obs):
    pde = jnp.mean(residual(params, colloc) ** 2)
    data = jnp.mean((predict(params, tx_obs) - u_obs) ** 2)
    return 0.1 * pde + data


def draw_collocation(key):
    lo = jnp.array([0.0, -1.0])
    hi = jnp.array([1.0, 1.0])
    return jax.random.uniform(key, (N_COLLOC, 2), minval=lo, maxval=hi)


optimiser = optax.adam(optax.exponential_decay(2e-3, 5_000, 0.9, end_value=1e-4))


@partial(jax.jit, donate_argnums=(0, 1, 2))
def advance(params, opt_state, key, tx_obs, u_obs):
    """INNER gradient steps, each with its own collocation points; the mean objective comes back."""

    def one(_, carry):
        params, opt_state, key, total = carry
        key, sub = jax.random.split(key)
        value, grads = jax.value_and_grad(objective)(params, draw_collocation(sub), tx_obs, u_obs)
        updates, opt_state = optimiser.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, key, total + value

    params, opt_state, key, total = jax.lax.fori_loop(0, INNER, one, (params, opt_state, key, jnp.float32(0)))
    return params, opt_state, key, total / INNER


@jax.jit
def relative_error(params, tx, truth):
    return jnp.linalg.norm(predict(params, tx) - truth) / jnp.linalg.norm(truth)


def main():
    tx_obs, u_obs = jax.device_put(read_sensors(N_SENSOR))
    tt, xx = np.meshgrid(np.linspace(0, 1, 33), np.linspace(-1, 1, 65), indexing="ij")
    tx_grid = jnp.asarray(np.stack([tt.ravel(), xx.ravel()], 1), dtype=jnp.float32)
    u_grid = jnp.asarray(exact(tt.ravel(), xx.ravel(), NU_TRUE), dtype=jnp.float32)

    k_init, key = jax.random.split(jax.random.key(1234))
    params = init_params(k_init)
    opt_state = optimiser.init(params)
    print(f"relative error at the start {float(relative_error(params, tx_grid, u_grid)):.3f}")
    start = time.perf_counter()

    #@ setup
    for it in itertools.count(1):
        params, opt_state, key, loss = advance(params, opt_state, key, tx_obs, u_obs)
        if it % 100 == 0:
            err = float(relative_error(params, tx_grid, u_grid))
            nu = float(jnp.exp(params["log_nu"]))
            print(
                f"it {it * INNER:8d}  objective {float(loss):.3e}  rel. error {err:.3e}  nu {nu:.4f} "
                f"(true {NU_TRUE})  {time.perf_counter() - start:.1f} s",
                flush=True,
            )
        #@ step loss=loss batch=tx_obs,u_obs index=it params=params


if __name__ == "__main__":
    main()

"""A latent ODE that learns noisy, irregularly damped oscillators.

The first few observations are folded into an initial hidden state by a GRU; the hidden state is then
carried through time by a learned vector field (RK4, fixed grid) and read out at every grid point.
"""

import argparse
import time

import equinox as eqx
import jax
import jax.nn as jnn
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

#@ imports


class VectorField(eqx.Module):
    mlp: eqx.nn.MLP
    scale: jax.Array

    def __init__(self, hidden_size, width_size, depth, *, key):
        self.mlp = eqx.nn.MLP(
            in_size=hidden_size + 1,
            out_size=hidden_size,
            width_size=width_size,
            depth=depth,
            activation=jnn.softplus,
            final_activation=jnn.tanh,
            key=key,
        )
        self.scale = jnp.ones(())

    def __call__(self, t, z):
        return self.scale * self.mlp(jnp.append(z, t))


def rk4_step(f, t, z, dt):
    k1 = f(t, z)
    k2 = f(t + dt / 2, z + dt / 2 * k1)
    k3 = f(t + dt / 2, z + dt / 2 * k2)
    k4 = f(t + dt, z + dt * k3)
    return z + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


class NeuralODE(eqx.Module):
    encoder: eqx.nn.GRUCell
    field: VectorField
    readout: eqx.nn.Linear

    def __init__(self, data_size, hidden_size, width_size, depth, *, key):
        ekey, fkey, rkey = jr.split(key, 3)
        self.encoder = eqx.nn.GRUCell(data_size, hidden_size, key=ekey)
        self.field = VectorField(hidden_size, width_size, depth, key=fkey)
        self.readout = eqx.nn.Linear(hidden_size, data_size, key=rkey)

    def __call__(self, ts, prefix):
        z0, _ = jax.lax.scan(lambda h, y: (self.encoder(y, h), None), jnp.zeros(self.encoder.hidden_size), prefix)

        def advance(z, interval):
            t, dt = interval
            z = rk4_step(self.field, t, z, dt)
            return z, z

        _, zs = jax.lax.scan(advance, z0, (ts[:-1], jnp.diff(ts)))
        zs = jnp.concatenate([z0[None], zs])
        return jax.vmap(self.readout)(zs)


def predict(model, ts, ys, prefix_length):
    #@ forward x=ys
    return jax.vmap(model, in_axes=(None, 0))(ts, ys[:, :prefix_length])


def make_dataset(n, length, *, seed):
    rng = np.random.default_rng(seed)
    ts = np.linspace(0.0, 6.0, length, dtype=np.float32)
    omega = rng.uniform(1.0, 3.0, (n, 1))
    gamma = rng.uniform(0.05, 0.4, (n, 1))
    phase = rng.uniform(0.0, 2 * np.pi, (n, 1))
    envelope = np.exp(-gamma * ts)
    clean = np.stack([envelope * np.cos(omega * ts + phase), envelope * np.sin(omega * ts + phase)], axis=-1)
    noisy = clean + 0.03 * rng.standard_normal(clean.shape)
    return ts, noisy.astype(np.float32)


def dataloader(ys, batch_size, *, seed):
    rng = np.random.default_rng(seed)
    dataset_size = len(ys)
    while True:
        perm = rng.permutation(dataset_size)
        for start in range(0, dataset_size - batch_size + 1, batch_size):
            batch = ys[perm[start : start + batch_size]]
            # random rotation of the plane: the dynamics do not mind
            angle = rng.uniform(0, 2 * np.pi)
            c, s = np.cos(angle), np.sin(angle)
            batch = batch @ np.array([[c, -s], [s, c]], dtype=np.float32)
            #@ batch arrays=batch
            yield batch


@eqx.filter_value_and_grad
def loss_fn(params, static, ts, ys, prefix_length):
    model = eqx.combine(params, static)
    error = predict(model, ts, ys, prefix_length) - ys
    return jnp.mean(error**2)


@eqx.filter_jit
def make_step(params, static, opt_state, ts, ys, optim, prefix_length):
    loss, grads = loss_fn(params, static, ts, ys, prefix_length)
    updates, opt_state = optim.update(grads, opt_state, params)
    params = eqx.apply_updates(params, updates)
    return loss, params, opt_state


def main(
    *,
    scale=1.0,
    dataset_size=8192,
    length=64,
    prefix_length=8,
    batch_size=128,
    hidden_size=24,
    width_size=64,
    depth=2,
    lr=2e-3,
    print_every=100,
    seed=5678,
):
    batch_size = max(1, int(batch_size * scale))
    ts, data = make_dataset(dataset_size, length, seed=seed)
    ts = jnp.asarray(ts)
    model = NeuralODE(data.shape[-1], hidden_size, width_size, depth, key=jr.key(seed))
    params, static = eqx.partition(model, eqx.is_inexact_array)
    optim = optax.chain(optax.clip_by_global_norm(1.0), optax.adabelief(lr))
    opt_state = optim.init(params)

    start = time.time()
    #@ setup
    for step, ys in enumerate(dataloader(data, batch_size, seed=seed + 1)):
        ys = jax.device_put(ys)
        loss, params, opt_state = make_step(params, static, opt_state, ts, ys, optim, prefix_length)
        if step % print_every == 0:
            print(f"Step: {step}, Loss: {loss:.5f}, Computation time: {time.time() - start:.2f}s", flush=True)
            start = time.time()
        #@ step loss=loss params=params batch=ys index=step


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=1.0)
    main(scale=parser.parse_args().scale)

"""RealNVP as plain functions. A bijector is an (init, forward) pair; `serial` composes pairs."""
from functools import partial

import jax
import jax.numpy as jnp


def _dense(key, n_in, n_out, scale=1.0):
    return {"w": scale * jax.random.normal(key, (n_in, n_out)) / jnp.sqrt(n_in), "b": jnp.zeros((n_out,))}


def conditioner_init(key, n_in, hidden, n_out):
    k1, k2, k3 = jax.random.split(key, 3)
    return [_dense(k1, n_in, hidden), _dense(k2, hidden, hidden), _dense(k3, hidden, n_out, scale=1e-2)]


def conditioner_apply(params, x):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def coupling(dim, hidden, flip):
    """Affine coupling: one half of the columns, scaled and shifted by a function of the other half."""
    cut = dim // 2
    n_cond, n_trans = (dim - cut, cut) if flip else (cut, dim - cut)

    def forward(params, x):
        a, b = x[:, :cut], x[:, cut:]
        cond, trans = (b, a) if flip else (a, b)
        log_s, t = jnp.split(conditioner_apply(params, cond), 2, axis=-1)
        log_s = 2.0 * jnp.tanh(log_s / 2.0)
        trans = trans * jnp.exp(log_s) + t
        out = jnp.concatenate([trans, cond] if flip else [cond, trans], axis=-1)
        return out, log_s.sum(-1)

    return partial(conditioner_init, n_in=n_cond, hidden=hidden, n_out=2 * n_trans), forward


def actnorm(dim):
    def init(key):
        return {"log_scale": jnp.zeros(dim), "shift": jnp.zeros(dim)}

    def forward(params, x):
        log_det = jnp.broadcast_to(params["log_scale"].sum(), x.shape[:1])
        return (x + params["shift"]) * jnp.exp(params["log_scale"]), log_det

    return init, forward


def serial(*bijectors):
    inits, forwards = zip(*bijectors)

    def init(key):
        return [f(k) for f, k in zip(inits, jax.random.split(key, len(inits)))]

    def forward(params, x):
        #@ forward x=x
        log_det = jnp.zeros(x.shape[0])
        for p, f in zip(params, forwards):
            x, ld = f(p, x)
            log_det = log_det + ld
        return x, log_det

    return init, forward


def realnvp(dim, depth, hidden):
    blocks = []
    for i in range(depth):
        blocks += [actnorm(dim), coupling(dim, hidden, flip=bool(i % 2))]
    return serial(*blocks)


def log_prob(forward, params, x):
    z, log_det = forward(params, x)
    base = -0.5 * jnp.sum(z**2, axis=-1) - 0.5 * x.shape[-1] * jnp.log(2 * jnp.pi)
    return base + log_det

# GRU language model on bytes. Params are a dict, Adam is written out, state is carried over (truncated BPTT).
import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

#@ imports

ap = argparse.ArgumentParser()
ap.add_argument("--scale", type=float, default=1.0)
ap.add_argument("--lr", type=float, default=2e-3)
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()

V, D, H, L = 256, 96, 192, 2
T = 32
B = max(4, int(48 * args.scale))
CLIP = 1.0


def corpus(n, seed):
    """n bytes of prose with Zipf-distributed words."""
    rng = np.random.default_rng(seed)
    letters = np.frombuffer(b"etaoinshrdlucmfwypvbgkqjxz", dtype=np.uint8)
    p = 1.0 / np.arange(1, 27)
    words = [rng.choice(letters, size=k, p=p / p.sum()).tobytes() for k in rng.integers(2, 10, size=3000)]
    w = 1.0 / np.arange(1, 3001)
    ids = rng.choice(3000, size=n // 4, p=w / w.sum())
    return np.frombuffer(b" ".join([words[i] for i in ids])[:n], dtype=np.uint8)


def init(key):
    ks = iter(random.split(key, 2 + 2 * L))
    p = {"emb": 0.1 * random.normal(next(ks), (V, D))}
    d = D
    for l in range(L):
        p[f"wx{l}"] = random.normal(next(ks), (d, 3 * H)) / d ** 0.5
        p[f"wh{l}"] = random.normal(next(ks), (H, 3 * H)) / H ** 0.5
        p[f"b{l}"] = jnp.zeros(3 * H)
        d = H
    p["wo"] = random.normal(next(ks), (H, V)) / H ** 0.5
    p["bo"] = jnp.zeros(V)
    return p


def layer(p, l, h, xs):
    wh = p[f"wh{l}"]
    gx = xs @ p[f"wx{l}"] + p[f"b{l}"]          # all time steps at once

    def cell(h, g):
        u = h @ wh
        z = jax.nn.sigmoid(g[:, :H] + u[:, :H])
        r = jax.nn.sigmoid(g[:, H:2 * H] + u[:, H:2 * H])
        c = jnp.tanh(g[:, 2 * H:] + r * u[:, 2 * H:])
        h = z * h + (1 - z) * c
        return h, h

    return lax.scan(cell, h, gx)


def forward(p, h, x):
    #@ forward x=x
    ys = p["emb"][x].swapaxes(0, 1)             # T B D
    out = []
    for l in range(L):
        hl, ys = layer(p, l, h[l], ys)
        out.append(hl)
    return jnp.stack(out), ys @ p["wo"] + p["bo"]


def nll(p, h, x, y):
    h, logits = forward(p, h, x)
    lp = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.take_along_axis(lp, y.T[..., None], -1)), lax.stop_gradient(h)


def adam(p, g, m, v, t, b1=0.9, b2=0.999, eps=1e-8):
    norm = jnp.sqrt(sum(jnp.vdot(a, a) for a in jax.tree.leaves(g)))
    g = jax.tree.map(lambda a: a * jnp.minimum(1.0, CLIP / (norm + 1e-6)), g)
    m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, m, g)
    v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, v, g)
    a = args.lr * jnp.sqrt(1 - b2 ** t) / (1 - b1 ** t)
    p = jax.tree.map(lambda p, m, v: p - a * m / (jnp.sqrt(v) + eps), p, m, v)
    return p, m, v


def update(p, m, v, t, h, x, y):
    (loss, h), g = jax.value_and_grad(nll, has_aux=True)(p, h, x, y)
    t = t + 1.0
    p, m, v = adam(p, g, m, v, t)
    return p, m, v, t, h, loss


update = jax.jit(update, donate_argnums=(0, 1, 2, 3, 4))

text = corpus(6_000_000, args.seed)
n = len(text) // B
rows = text[:B * n].reshape(B, n)               # each row is read from left to right
steps = (n - 1) // T

params = init(random.PRNGKey(args.seed))
m = jax.tree.map(jnp.zeros_like, params)
v = jax.tree.map(jnp.zeros_like, params)
t = jnp.zeros(())
i, epoch = 0, 0
tic = time.time()
print(f"{len(text)} bytes, {B} rows, {steps} steps an epoch")

#@ setup
while True:
    h = jnp.zeros((L, B, H))
    for k in range(steps):
        x = rows[:, k * T:(k + 1) * T].astype(np.int32)
        y = rows[:, k * T + 1:(k + 1) * T + 1].astype(np.int32)
        #@ batch arrays=x,y
        params, m, v, t, h, loss = update(params, m, v, t, h, x, y)
        i += 1
        if i % 100 == 0:
            nats = loss.item()
            print(f"{epoch} {i:7d} bpc {nats / np.log(2):.3f} {(time.time() - tic) * 10:.1f} ms/step", flush=True)
            tic = time.time()
        #@ step loss=loss batch=x,y index=i params=params
    epoch += 1
    #@ epoch

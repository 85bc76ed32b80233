# Tabular regression with Flax NNX: a residual MLP over numeric columns and embedded categories.
# The table fits in device memory, so it lives there, and an epoch is a fresh permutation of it.
import argparse
import itertools
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

#@ imports

N_ROWS = 131_072
N_VALID = 4_096
N_NUMERIC = 24
CARDINALITIES = (12, 50, 7, 300)
WIDTH = 256
N_BLOCKS = 3


def make_table(seed, n):
    """Something like a used-car price table: skewed numeric columns, a few categories, a log-price."""
    rng = np.random.default_rng(seed)
    num = rng.standard_normal((n, N_NUMERIC)).astype(np.float32)
    num[:, ::3] = np.exp(0.5 * num[:, ::3])
    cat = np.stack([rng.integers(0, c, n) for c in CARDINALITIES], axis=1).astype(np.int32)
    w = np.random.default_rng(99)
    mix = w.standard_normal((N_NUMERIC, 8)).astype(np.float32) / np.sqrt(N_NUMERIC)
    effects = [w.standard_normal(c).astype(np.float32) for c in CARDINALITIES]
    y = np.tanh(num @ mix).sum(1) + sum(e[cat[:, j]] for j, e in enumerate(effects))
    y += 0.1 * rng.standard_normal(n).astype(np.float32)
    return num, cat, y.astype(np.float32)


class ResBlock(nnx.Module):
    def __init__(self, width, *, rngs):
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.up = nnx.Linear(width, 2 * width, rngs=rngs)
        self.down = nnx.Linear(2 * width, width, rngs=rngs)

    def __call__(self, h):
        return h + self.down(nnx.gelu(self.up(self.norm(h))))


class TabularNet(nnx.Module):
    def __init__(self, width, n_blocks, *, rngs):
        self.embeds = nnx.List([nnx.Embed(c, 8, rngs=rngs) for c in CARDINALITIES])
        self.stem = nnx.Linear(N_NUMERIC + 8 * len(CARDINALITIES), width, rngs=rngs)
        self.blocks = nnx.List([ResBlock(width, rngs=rngs) for _ in range(n_blocks)])
        self.out = nnx.Linear(width, 1, rngs=rngs)

    def __call__(self, num, cat):
        #@ forward x=num
        parts = [num] + [embed(cat[:, j]) for j, embed in enumerate(self.embeds)]
        h = self.stem(jnp.concatenate(parts, axis=-1))
        for block in self.blocks:
            h = block(h)
        return self.out(h)[:, 0]


def loss_fn(model, num, cat, target):
    return optax.huber_loss(model(num, cat), target, delta=1.0).mean()


@nnx.jit
def train_step(model, optimizer, metrics, num, cat, target):
    loss, grads = nnx.value_and_grad(loss_fn)(model, num, cat, target)
    optimizer.update(model, grads)
    metrics.update(values=loss)
    return loss


@nnx.jit
def eval_step(model, num, cat, target):
    return jnp.sqrt(jnp.mean((model(num, cat) - target) ** 2))


def make_take(batch_size):
    @jax.jit
    def take(table, order, i):
        rows = jax.lax.dynamic_slice_in_dim(order, i * batch_size, batch_size)
        return tuple(column[rows] for column in table)

    return take


def standardize(num, mean, std):
    return (num - mean) / std


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    batch_size = max(32, int(1024 * args.scale))

    num, cat, y = make_table(args.seed, N_ROWS)
    vnum, vcat, vy = make_table(args.seed + 1, N_VALID)
    mean, std = num.mean(0), num.std(0)
    table = jax.device_put((standardize(num, mean, std), cat, y))
    valid = jax.device_put((standardize(vnum, mean, std), vcat, vy))
    del num, cat, y, vnum, vcat, vy

    model = TabularNet(WIDTH, N_BLOCKS, rngs=nnx.Rngs(args.seed))
    steps_per_epoch = N_ROWS // batch_size
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 500, 100 * steps_per_epoch, 1e-5)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-4))
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
    metrics = nnx.metrics.Average()

    take = make_take(batch_size)
    key = jax.random.key(args.seed)
    step = 0
    print(f"{N_ROWS} rows, {steps_per_epoch} steps of {batch_size} per epoch, {jax.devices()[0]}")
    #@ setup
    for epoch in itertools.count():
        start = time.perf_counter()
        key, subkey = jax.random.split(key)
        order = jax.random.permutation(subkey, N_ROWS)
        for i in range(steps_per_epoch):
            num, cat, target = take(table, order, i)
            loss = train_step(model, optimizer, metrics, num, cat, target)
            step += 1
            #@ step loss=loss params=model batch=num,cat,target index=step
        train_loss = float(metrics.compute())
        metrics.reset()
        took = time.perf_counter() - start
        line = f"epoch {epoch:3d}  loss {train_loss:.4f}  {1e3 * took / steps_per_epoch:.1f} ms/step"
        if epoch % 2 == 0:
            line += f"  valid rmse {float(eval_step(model, *valid)):.4f}"
        print(line, flush=True)
        #@ epoch


if __name__ == "__main__":
    main()

import argparse
import os
import pickle
import tempfile
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

import flow
import table

#@ imports


def negative_log_likelihood(forward, params, x):
    return -flow.log_prob(forward, params, x).mean()


def update(loss_fn, tx, params, opt_state, x):
    loss, grads = jax.value_and_grad(loss_fn)(params, x)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def minibatches(data, size, rng):
    order = rng.permutation(len(data))
    for lo in range(0, len(order) - size + 1, size):
        rows = data[order[lo:lo + size]]
        #@ batch arrays=rows
        yield rows


def save(path, params, opt_state, epoch):
    leaves, treedef = jax.tree.flatten(jax.device_get((params, opt_state)))
    np.savez(os.path.join(path, "leaves.npz"), *leaves)
    with open(os.path.join(path, "meta.pkl"), "wb") as f:
        pickle.dump({"epoch": epoch, "treedef": str(treedef)}, f)


def run(opts):
    rng = np.random.default_rng(opts.seed)
    train, val = table.split(table.load(seed=opts.seed))
    val = jax.device_put(val)

    init, forward = flow.realnvp(train.shape[1], opts.depth, opts.hidden)
    params = jax.jit(init)(jax.random.PRNGKey(opts.seed))
    tx = optax.chain(optax.clip_by_global_norm(5.0), optax.adam(opts.lr))
    opt_state = tx.init(params)

    loss_fn = partial(negative_log_likelihood, forward)
    step = jax.jit(partial(update, loss_fn, tx), donate_argnums=(0, 1))
    validate = jax.jit(loss_fn)

    size = max(16, int(opts.batch * opts.scale))
    best = float(validate(params, val))
    print(f"{len(train)} rows, {train.shape[1]} columns, validation nll {best:.4f}", flush=True)
    n = 0
    #@ setup
    for epoch in range(opts.epochs):
        losses = []
        for x in minibatches(train, size, rng):
            params, opt_state, loss = step(params, opt_state, x)
            n += 1
            if n % opts.every == 0:
                losses.append(loss)
            if n % (8 * opts.every) == 0:
                print(f"epoch {epoch} step {n}: nll {np.mean(jax.device_get(losses[-8:])):.4f}", flush=True)
            #@ step loss=loss batch=x index=n params=params
        if epoch % 2 == 1:
            v = float(validate(params, val))
            best = min(best, v)
            print(f"== epoch {epoch}: validation nll {v:.4f}, best {best:.4f}", flush=True)
        if epoch % 5 == 4:
            save(opts.out, params, opt_state, epoch)
        #@ epoch


if __name__ == "__main__":
    p = argparse.ArgumentParser(description="RealNVP density estimation")
    p.add_argument("--scale", type=float, default=1.0)
    p.add_argument("--batch", type=int, default=2048)
    p.add_argument("--depth", type=int, default=8)
    p.add_argument("--hidden", type=int, default=128)
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--every", type=int, default=20)
    p.add_argument("--epochs", type=int, default=10**7)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--out", default=None)
    opts = p.parse_args()
    opts.out = opts.out or tempfile.mkdtemp(prefix="realnvp_")
    run(opts)

"""Data-parallel training of a small decoder-only LM over a device mesh.

On a machine without accelerators two virtual CPU devices are used.
"""
import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"

import argparse
import atexit
import functools
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from corpus import TokenBlocks, prepare
from model import Config, init_params, loss_fn
#@ imports


class State(NamedTuple):
    params: Any
    opt: Any
    step: jax.Array


def parse_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--scale", type=float, default=1.0)
    ap.add_argument("--lr", type=float, default=6e-4)
    ap.add_argument("--warmup", type=int, default=200)
    ap.add_argument("--log_interval", type=int, default=50)
    ap.add_argument("--eval_interval", type=int, default=2000)
    ap.add_argument("--eval_batches", type=int, default=10)
    return ap.parse_args()


def log(msg):
    print(f"[{time.strftime('%H:%M:%S')}] {msg}", flush=True)


def main():
    args = parse_args()
    cfg = Config()
    devices = jax.devices()
    mesh = Mesh(np.array(devices), ("data",))
    batch_sharding = NamedSharding(mesh, P("data"))
    replicated = NamedSharding(mesh, P())

    per_device = max(1, round(4 * args.scale))
    global_batch = per_device * len(devices)
    log(f"mesh {dict(mesh.shape)}, global batch {global_batch} x {cfg.block_size} tokens")

    path = prepare(2_000_000, cfg.vocab_size)
    atexit.register(os.remove, path)
    train_data = TokenBlocks(path, cfg.block_size, global_batch, seed=1)
    val_data = TokenBlocks(path, cfg.block_size, global_batch, seed=2)

    schedule = optax.warmup_cosine_decay_schedule(0.0, args.lr, args.warmup, 100_000, args.lr / 10)
    tx = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(schedule, b1=0.9, b2=0.95, weight_decay=0.1),
    )

    @functools.partial(jax.jit, out_shardings=replicated)
    def init_state(key):
        params = init_params(cfg, key)
        return State(params, tx.init(params), jnp.zeros((), jnp.int32))

    @functools.partial(
        jax.jit,
        in_shardings=(replicated, batch_sharding, batch_sharding),
        out_shardings=(replicated, replicated),
        donate_argnums=(0,),
    )
    def train_step(state, inputs, targets):
        loss, grads = jax.value_and_grad(functools.partial(loss_fn, cfg))(state.params, inputs, targets)
        updates, opt = tx.update(grads, state.opt, state.params)
        params = optax.apply_updates(state.params, updates)
        return State(params, opt, state.step + 1), loss

    @jax.jit
    def eval_step(params, inputs, targets):
        return loss_fn(cfg, params, inputs, targets)

    state = init_state(jax.random.PRNGKey(0))
    n_params = sum(x.size for x in jax.tree.leaves(state.params))
    log(f"{n_params / 1e6:.2f}M parameters")

    it = 0
    t_last = time.perf_counter()
    #@ setup
    while True:
        inputs, targets = jax.device_put(train_data.next_batch(), batch_sharding)
        state, loss = train_step(state, inputs, targets)
        it += 1

        if it % args.log_interval == 0:
            loss_value = float(loss)
            now = time.perf_counter()
            tok_s = args.log_interval * global_batch * cfg.block_size / (now - t_last)
            log(f"iter {it} loss {loss_value:.4f} tok/s {tok_s:,.0f}")
            t_last = now

        if it % args.eval_interval == 0:
            losses = []
            for _ in range(args.eval_batches):
                x, y = jax.device_put(val_data.next_batch(), batch_sharding)
                losses.append(eval_step(state.params, x, y))
            log(f"iter {it} val loss {np.mean(jax.device_get(losses)):.4f}")
            t_last = time.perf_counter()
        #@ step loss=loss params=state.params batch=inputs,targets index=it


if __name__ == "__main__":
    main()

"""Graph convolutional network for molecular property regression, plain JAX."""
import argparse
import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from data import N_ATOM_TYPES, N_BOND_TYPES, batches, make_dataset
#@ imports

parser = argparse.ArgumentParser()
parser.add_argument("--scale", type=float, default=1.0)
parser.add_argument("--hidden", type=int, default=96)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--seed", type=int, default=0)


def glorot(key, n_in, n_out):
    lim = np.sqrt(6.0 / (n_in + n_out))
    return jax.random.uniform(key, (n_in, n_out), minval=-lim, maxval=lim)


def init_params(key, hidden, n_layers):
    keys = iter(jax.random.split(key, 3 * n_layers + 4))
    params = {
        "atom_emb": 0.1 * jax.random.normal(next(keys), (N_ATOM_TYPES, hidden)),
        "layers": [],
        "head": {
            "w1": glorot(next(keys), hidden, hidden), "b1": jnp.zeros(hidden),
            "w2": glorot(next(keys), hidden, 1), "b2": jnp.zeros(1),
        },
    }
    for _ in range(n_layers):
        params["layers"].append({
            "w_self": glorot(next(keys), hidden, hidden),
            "w_nbr": glorot(next(keys), hidden, hidden),
            "bond": 0.1 * jax.random.normal(next(keys), (N_BOND_TYPES, hidden)),
            "b": jnp.zeros(hidden),
            "scale": jnp.ones(hidden),
        })
    return params


def norm(h, scale):
    mu = h.mean(-1, keepdims=True)
    var = ((h - mu) ** 2).mean(-1, keepdims=True)
    return scale * (h - mu) * jax.lax.rsqrt(var + 1e-5)


def gcn(params, g):
    atoms = g["atoms"]
    #@ forward x=atoms
    senders, receivers = g["senders"], g["receivers"]
    n_nodes = atoms.shape[0]
    n_graphs = g["targets"].shape[0]

    deg = jax.ops.segment_sum(jnp.ones(senders.shape[0]), receivers, n_nodes) + 1.0
    inv_sqrt = jax.lax.rsqrt(deg)
    weight = (inv_sqrt[senders] * inv_sqrt[receivers])[:, None]

    h = params["atom_emb"][atoms]
    for layer in params["layers"]:
        msg = weight * jax.nn.relu(h[senders] + layer["bond"][g["edge_type"]])
        agg = jax.ops.segment_sum(msg, receivers, n_nodes)
        out = h @ layer["w_self"] + agg @ layer["w_nbr"] + layer["b"]
        h = h + jax.nn.relu(norm(out, layer["scale"]))

    # sum readout; the extra segment collects the padding nodes
    pooled = jax.ops.segment_sum(h, g["graph_id"], n_graphs + 1)[:n_graphs]
    head = params["head"]
    z = jax.nn.relu(pooled @ head["w1"] + head["b1"])
    return (z @ head["w2"] + head["b2"])[:, 0]


def loss_fn(params, g):
    pred = gcn(params, g)
    return jnp.mean((pred - g["targets"]) ** 2)


@jax.jit
def eval_mae(params, g):
    return jnp.abs(gcn(params, g) - g["targets"]).mean()


def main():
    args = parser.parse_args()
    batch_size = max(8, int(128 * args.scale))
    train = make_dataset(6000, args.seed)
    valid = make_dataset(max(256, batch_size), args.seed + 1)
    print(f"{len(train)} training graphs, {len(valid)} validation graphs, batch size {batch_size}")

    params = init_params(jax.random.PRNGKey(args.seed), args.hidden, args.layers)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(args.lr))
    opt_state = optimizer.init(params)
    print("parameters:", sum(p.size for p in jax.tree_util.tree_leaves(params)))

    @partial(jax.jit, donate_argnums=(0, 1))
    def update(params, opt_state, g):
        loss, grads = jax.value_and_grad(loss_fn)(params, g)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    rng = np.random.default_rng(args.seed)
    step = 0
    #@ setup
    for epoch in itertools.count():
        for graph in batches(train, batch_size, rng):
            graph = jax.device_put(graph)
            params, opt_state, loss = update(params, opt_state, graph)
            step += 1
            if step % 200 == 0:
                print(f"epoch {epoch} step {step} mse {float(loss):.4f}", flush=True)
            #@ step loss=loss params=params batch=graph index=step
        if epoch % 10 == 9:
            maes = [eval_mae(params, g) for g in batches(valid, batch_size, rng, shuffle=False)]
            print(f"epoch {epoch} validation mae {float(np.mean(jax.device_get(maes))):.4f}", flush=True)
        #@ epoch


if __name__ == "__main__":
    main()

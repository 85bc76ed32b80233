# MAML on sinusoid regression (Finn et al. 2017, section 5.1)
import itertools
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
#@ imports

scale = float(sys.argv[sys.argv.index("--scale") + 1]) if "--scale" in sys.argv else 1.0

meta_batch = max(2, int(200 * scale))
k_shot, k_query = 10, 20
inner_lr, inner_steps = 0.01, 3
hidden = 80
rng = np.random.default_rng(0)


def init(key, sizes):
    keys = jax.random.split(key, len(sizes) - 1)
    return [(jax.random.normal(k, (m, n)) * jnp.sqrt(1 / (m + n)), jnp.zeros(n))
            for k, m, n in zip(keys, sizes[:-1], sizes[1:])]


def net(params, x):
    #@ forward x=x
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def mse(params, x, y):
    return jnp.mean((net(params, x) - y) ** 2)


def adapt(params, x, y, steps=inner_steps):
    for _ in range(steps):
        g = jax.grad(mse)(params, x, y)
        params = jax.tree.map(lambda p, d: p - inner_lr * d, params, g)
    return params


def task_loss(params, xs, ys, xq, yq):
    return mse(adapt(params, xs, ys), xq, yq)


def meta_loss(params, tasks):
    return jax.vmap(task_loss, in_axes=(None, 0, 0, 0, 0))(params, *tasks).mean()


def sample_tasks(n):
    amp = rng.uniform(0.1, 5.0, (n, 1, 1))
    phase = rng.uniform(0.0, np.pi, (n, 1, 1))
    x = rng.uniform(-5.0, 5.0, (n, k_shot + k_query, 1)).astype(np.float32)
    y = (amp * np.sin(x - phase)).astype(np.float32)
    #@ batch arrays=x,y
    return x[:, :k_shot], y[:, :k_shot], x[:, k_shot:], y[:, k_shot:]


opt = optax.adam(1e-3)


@partial(jax.jit, donate_argnums=(0, 1))
def meta_step(params, opt_state, tasks):
    # grad through the grads of adapt: full second-order MAML
    loss, g = jax.value_and_grad(meta_loss)(params, tasks)
    updates, opt_state = opt.update(g, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss


@jax.jit
def evaluate(params, tasks):
    xs, ys, xq, yq = tasks
    before = jax.vmap(mse, (None, 0, 0))(params, xq, yq).mean()
    after = jax.vmap(task_loss, (None, 0, 0, 0, 0))(params, xs, ys, xq, yq).mean()
    return before, after


params = init(jax.random.PRNGKey(0), [1, hidden, hidden, 1])
opt_state = opt.init(params)
test_tasks = jax.device_put(sample_tasks(100))

print(f"meta-batch {meta_batch}, {k_shot}-shot, {inner_steps} inner steps")
#@ setup
for it in itertools.count(1):
    tasks = sample_tasks(meta_batch)
    params, opt_state, loss = meta_step(params, opt_state, tasks)
    if it % 200 == 0:
        before, after = evaluate(params, test_tasks)
        print(f"[{it}] meta-loss {loss:.3f} | test before {before:.3f} after {after:.3f}", flush=True)
    #@ step loss=loss params=params batch=tasks index=it

"""PPO, everything on the device: rollouts by scan over vectorised environments, then a few epochs of minibatches."""
import argparse
import dataclasses
import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import cartpole as env

#@ imports


@dataclasses.dataclass(frozen=True)
class Config:
    num_envs: int = 128
    horizon: int = 64
    epochs: int = 4
    minibatches: int = 8
    hidden: int = 64
    gamma: float = 0.99
    lam: float = 0.95
    clip: float = 0.2
    vf_coef: float = 0.5
    ent_coef: float = 1e-3
    lr: float = 3e-4
    max_grad_norm: float = 0.5
    log_interval: int = 100
    seed: int = 0


class TrainState(NamedTuple):
    params: Any
    opt_state: optax.OptState
    env_state: env.EnvState
    obs: jax.Array
    ret: jax.Array
    key: jax.Array


class Transition(NamedTuple):
    obs: jax.Array
    action: jax.Array
    logp: jax.Array
    value: jax.Array
    reward: jax.Array
    done: jax.Array


class Minibatch(NamedTuple):
    obs: jax.Array
    action: jax.Array
    logp: jax.Array
    adv: jax.Array
    target: jax.Array


class Metrics(NamedTuple):
    loss: jax.Array
    pg_loss: jax.Array
    v_loss: jax.Array
    entropy: jax.Array
    approx_kl: jax.Array


def dense_init(key, n_in, n_out, gain):
    return {"w": jax.nn.initializers.orthogonal(gain)(key, (n_in, n_out)), "b": jnp.zeros(n_out)}


def init_params(key, cfg: Config):
    k = jax.random.split(key, 6)
    tower = lambda k1, k2, k3, n_out, gain: [
        dense_init(k1, env.OBS_DIM, cfg.hidden, 2**0.5),
        dense_init(k2, cfg.hidden, cfg.hidden, 2**0.5),
        dense_init(k3, cfg.hidden, n_out, gain),
    ]
    return {
        "actor": tower(k[0], k[1], k[2], env.ACT_DIM, 0.01),
        "critic": tower(k[3], k[4], k[5], 1, 1.0),
        "log_std": jnp.zeros(env.ACT_DIM),
    }


def tower_apply(layers, x):
    for layer in layers[:-1]:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return x @ layers[-1]["w"] + layers[-1]["b"]


def policy(params, obs):
    #@ forward x=obs
    mean = tower_apply(params["actor"], obs)
    value = tower_apply(params["critic"], obs)[..., 0]
    return mean, params["log_std"], value


def gaussian_logp(action, mean, log_std):
    z = (action - mean) * jnp.exp(-log_std)
    return jnp.sum(-0.5 * z**2 - log_std - 0.5 * jnp.log(2 * jnp.pi), axis=-1)


def rollout(cfg: Config, ts: TrainState):
    def body(carry, _):
        env_state, obs, ret, key = carry
        key, k_act, k_env = jax.random.split(key, 3)
        mean, log_std, value = policy(ts.params, obs)
        action = mean + jnp.exp(log_std) * jax.random.normal(k_act, mean.shape)
        logp = gaussian_logp(action, mean, log_std)
        env_state, reward, done = jax.vmap(env.step)(env_state, action, jax.random.split(k_env, cfg.num_envs))
        # `ret` is a running estimate of the length of an episode, for the log only
        ret = ret + 0.01 * jnp.mean(done.astype(jnp.float32) - ret)
        nxt = jax.vmap(env.observe)(env_state)
        return (env_state, nxt, ret, key), Transition(obs, action, logp, value, reward, done)

    (env_state, obs, ret, key), traj = jax.lax.scan(
        body, (ts.env_state, ts.obs, ts.ret, ts.key), None, length=cfg.horizon
    )
    return ts._replace(env_state=env_state, obs=obs, ret=ret, key=key), traj


def gae(cfg: Config, traj: Transition, last_value):
    def body(carry, tr):
        adv, next_value = carry
        live = 1.0 - tr.done
        delta = tr.reward + cfg.gamma * next_value * live - tr.value
        adv = delta + cfg.gamma * cfg.lam * live * adv
        return (adv, tr.value), adv

    _, adv = jax.lax.scan(body, (jnp.zeros_like(last_value), last_value), traj, reverse=True)
    return adv, adv + traj.value


def ppo_loss(params, cfg: Config, mb: Minibatch):
    mean, log_std, value = policy(params, mb.obs)
    log_ratio = gaussian_logp(mb.action, mean, log_std) - mb.logp
    ratio = jnp.exp(log_ratio)
    adv = (mb.adv - mb.adv.mean()) / (mb.adv.std() + 1e-8)
    pg = -jnp.minimum(ratio * adv, jnp.clip(ratio, 1 - cfg.clip, 1 + cfg.clip) * adv).mean()
    vf = 0.5 * jnp.square(value - mb.target).mean()
    ent = jnp.sum(log_std + 0.5 * jnp.log(2 * jnp.pi * jnp.e))
    loss = pg + cfg.vf_coef * vf - cfg.ent_coef * ent
    return loss, Metrics(loss, pg, vf, ent, jnp.mean(ratio - 1 - log_ratio))


def make_optimizer(cfg: Config):
    return optax.chain(optax.clip_by_global_norm(cfg.max_grad_norm), optax.adam(cfg.lr, eps=1e-5))


@partial(jax.jit, static_argnums=(0,), donate_argnums=(1,))
def train_iteration(cfg: Config, ts: TrainState):
    ts, traj = rollout(cfg, ts)
    _, _, last_value = policy(ts.params, ts.obs)
    adv, target = gae(cfg, traj, last_value)
    data = Minibatch(traj.obs, traj.action, traj.logp, adv, target)
    size = cfg.num_envs * cfg.horizon
    data = jax.tree.map(lambda a: a.reshape(size, *a.shape[2:]), data)
    tx = make_optimizer(cfg)

    def minibatch(carry, mb):
        params, opt_state = carry
        grads, metrics = jax.grad(ppo_loss, has_aux=True)(params, cfg, mb)
        updates, opt_state = tx.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), metrics

    def epoch(carry, key):
        perm = jax.random.permutation(key, size)
        shuffled = jax.tree.map(lambda a: a[perm].reshape(cfg.minibatches, -1, *a.shape[1:]), data)
        return jax.lax.scan(minibatch, carry, shuffled)

    key, sub = jax.random.split(ts.key)
    (params, opt_state), metrics = jax.lax.scan(
        epoch, (ts.params, ts.opt_state), jax.random.split(sub, cfg.epochs)
    )
    ts = ts._replace(params=params, opt_state=opt_state, key=key)
    return ts, jax.tree.map(jnp.mean, metrics)


@partial(jax.jit, static_argnums=(0,))
def init_train_state(cfg: Config) -> TrainState:
    key, k_params, k_env = jax.random.split(jax.random.PRNGKey(cfg.seed), 3)
    params = init_params(k_params, cfg)
    env_state = jax.vmap(env.reset)(jax.random.split(k_env, cfg.num_envs))
    obs = jax.vmap(env.observe)(env_state)
    return TrainState(params, make_optimizer(cfg).init(params), env_state, obs, jnp.zeros(()), key)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=Config.seed)
    args = parser.parse_args()
    cfg = Config(num_envs=max(8, int(Config.num_envs * args.scale)), seed=args.seed)
    print(cfg)

    ts = init_train_state(cfg)
    iteration, t0 = 0, time.time()
    #@ setup
    while True:
        ts, metrics = train_iteration(cfg, ts)
        iteration += 1
        if iteration % cfg.log_interval == 0:
            m, ended = jax.device_get((metrics, ts.ret))
            frames = iteration * cfg.num_envs * cfg.horizon
            print(
                f"[{frames:>10d}] episode length {1 / max(float(ended), 1e-4):6.1f}  loss {m.loss:8.3f}  "
                f"v_loss {m.v_loss:8.3f}  kl {m.approx_kl:.4f}  fps {frames / (time.time() - t0):.0f}",
                flush=True,
            )
        #@ step loss=metrics.loss index=iteration params=ts.params


if __name__ == "__main__":
    main()

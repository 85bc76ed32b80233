from dataclasses import dataclass

import jax
import jax.numpy as jnp


@dataclass(frozen=True)
class Config:
    vocab_size: int = 1024
    d_model: int = 128
    n_heads: int = 4
    n_layers: int = 3
    block_size: int = 64

    @property
    def head_dim(self):
        return self.d_model // self.n_heads


def init_params(cfg, key):
    k_emb, k_pos, k_blocks = jax.random.split(key, 3)
    d, L = cfg.d_model, cfg.n_layers
    kq, ko, k1, k2 = jax.random.split(k_blocks, 4)

    def normal(k, shape, std=0.02):
        return std * jax.random.normal(k, shape, jnp.float32)

    # block weights are stacked along a leading layer axis and scanned over
    return {
        "wte": normal(k_emb, (cfg.vocab_size, d)),
        "wpe": normal(k_pos, (cfg.block_size, d)),
        "blocks": {
            "ln1": jnp.ones((L, d)),
            "qkv": normal(kq, (L, d, 3, cfg.n_heads, cfg.head_dim)),
            "proj": normal(ko, (L, cfg.n_heads, cfg.head_dim, d), 0.02 / (2 * L) ** 0.5),
            "ln2": jnp.ones((L, d)),
            "fc": normal(k1, (L, d, 4 * d)),
            "out": normal(k2, (L, 4 * d, d), 0.02 / (2 * L) ** 0.5),
        },
        "ln_f": jnp.ones((d,)),
    }


def rms_norm(x, g):
    return g * x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def block(cfg, x, p):
    T = x.shape[1]
    q, k, v = jnp.einsum("btd,dchk->cbhtk", rms_norm(x, p["ln1"]), p["qkv"])
    att = jnp.einsum("bhtk,bhsk->bhts", q, k) / cfg.head_dim ** 0.5
    mask = jnp.tril(jnp.ones((T, T), bool))
    att = jax.nn.softmax(jnp.where(mask, att, -1e9), axis=-1)
    y = jnp.einsum("bhts,bhsk->bthk", att, v)
    x = x + jnp.einsum("bthk,hkd->btd", y, p["proj"])
    h = jax.nn.gelu(rms_norm(x, p["ln2"]) @ p["fc"])
    return x + h @ p["out"]


def forward(cfg, params, tokens):
    #@ forward x=tokens
    x = params["wte"][tokens] + params["wpe"][: tokens.shape[1]]
    x, _ = jax.lax.scan(lambda x, p: (block(cfg, x, p), None), x, params["blocks"])
    x = rms_norm(x, params["ln_f"])
    return x @ params["wte"].T


def loss_fn(cfg, params, inputs, targets):
    logits = forward(cfg, params, inputs)
    logz = jax.nn.logsumexp(logits, axis=-1)
    picked = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jnp.mean(logz - picked)

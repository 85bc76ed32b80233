"""DDPM on 32x32 images: noise-predicting U-Net in Flax linen."""
import argparse
import time
from typing import Any, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state
#@ imports

jax.config.update("jax_default_prng_impl", "rbg")

TIMESTEPS = 1000
IMAGE_SIZE = 32

# uniform fan-avg everywhere, as in the DDPM code
default_init = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform")


def sinusoidal_embedding(t, dim):
    half = dim // 2
    freqs = jnp.exp(-jnp.log(10000.0) * jnp.arange(half) / (half - 1))
    args = t.astype(jnp.float32)[:, None] * freqs[None]
    return jnp.concatenate([jnp.sin(args), jnp.cos(args)], axis=-1)


class ResBlock(nn.Module):
    features: int

    @nn.compact
    def __call__(self, x, emb):
        h = nn.silu(nn.GroupNorm(num_groups=8)(x))
        h = nn.Conv(self.features, (3, 3), kernel_init=default_init)(h)
        h = h + nn.Dense(self.features, kernel_init=default_init)(nn.silu(emb))[:, None, None, :]
        h = nn.silu(h)
        h = nn.Conv(self.features, (3, 3), kernel_init=nn.initializers.zeros)(h)
        if x.shape[-1] != self.features:
            x = nn.Conv(self.features, (1, 1), kernel_init=default_init)(x)
        return x + h


class UNet(nn.Module):
    width: int = 24
    multipliers: Sequence[int] = (1, 2)

    @nn.compact
    def __call__(self, images, t):
        #@ forward x=images
        emb = sinusoidal_embedding(t, self.width * 2)
        emb = nn.Dense(self.width * 4, kernel_init=default_init)(emb)
        emb = nn.Dense(self.width * 4, kernel_init=default_init)(nn.silu(emb))

        x = nn.Conv(self.width, (3, 3), kernel_init=default_init)(images)
        skips = []
        for m in self.multipliers[:-1]:
            x = ResBlock(self.width * m)(x, emb)
            skips.append(x)
            x = nn.Conv(self.width * m, (3, 3), strides=(2, 2), kernel_init=default_init)(x)

        x = ResBlock(self.width * self.multipliers[-1])(x, emb)

        for m in reversed(self.multipliers[:-1]):
            b, h, w, c = x.shape
            x = jax.image.resize(x, (b, h * 2, w * 2, c), method="nearest")
            x = jnp.concatenate([x, skips.pop()], axis=-1)
            x = ResBlock(self.width * m)(x, emb)

        x = nn.silu(nn.GroupNorm(num_groups=8)(x))
        return nn.Conv(images.shape[-1], (3, 3), kernel_init=nn.initializers.zeros)(x)


class TrainState(train_state.TrainState):
    ema_params: Any = None


def cosine_alphas_bar(timesteps, s=0.008):
    t = np.arange(timesteps + 1) / timesteps
    f = np.cos((t + s) / (1 + s) * np.pi / 2) ** 2
    betas = np.clip(1 - f[1:] / f[:-1], 0, 0.999)
    return jnp.asarray(np.cumprod(1 - betas), jnp.float32)


def load_images(n, seed=0):
    """Coloured blobs on a gradient, uint8 -> [-1, 1]."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:IMAGE_SIZE, 0:IMAGE_SIZE].astype(np.float32) / IMAGE_SIZE
    cx, cy = rng.random((2, n, 1, 1), dtype=np.float32)
    r = 0.1 + 0.2 * rng.random((n, 1, 1), dtype=np.float32)
    disc = ((xx - cx) ** 2 + (yy - cy) ** 2 < r ** 2)[..., None]
    fg, bg = rng.integers(0, 256, (2, n, 1, 1, 3))
    images = np.where(disc, fg, bg * (0.5 + 0.5 * yy[None, :, :, None]))
    return (images.astype(np.float32) / 127.5) - 1.0


def create_state(key, model, lr, batch_size):
    x = jnp.zeros((batch_size, IMAGE_SIZE, IMAGE_SIZE, 3))
    t = jnp.zeros((batch_size,), jnp.int32)
    params = jax.jit(model.init)(key, x, t)["params"]
    tx = optax.adam(optax.linear_schedule(0.0, lr, 500))
    return TrainState.create(
        apply_fn=model.apply, params=params, tx=tx,
        ema_params=jax.tree_util.tree_map(jnp.copy, params),
    )


def make_train_step(alphas_bar, batch_size, ema_decay):

    def train_step(state, images, key):
        k_idx, k_t, k_noise, k_flip = jax.random.split(key, 4)
        idx = jax.random.randint(k_idx, (batch_size,), 0, images.shape[0])
        x0 = images[idx]
        flip = jax.random.bernoulli(k_flip, 0.5, (batch_size, 1, 1, 1))
        x0 = jnp.where(flip, x0[:, :, ::-1], x0)

        t = jax.random.randint(k_t, (batch_size,), 0, TIMESTEPS)
        noise = jax.random.normal(k_noise, x0.shape)
        a = alphas_bar[t][:, None, None, None]
        x_t = jnp.sqrt(a) * x0 + jnp.sqrt(1.0 - a) * noise

        def loss_fn(params):
            pred = state.apply_fn({"params": params}, x_t, t)
            return jnp.mean(jnp.square(pred - noise))

        loss, grads = jax.value_and_grad(loss_fn)(state.params)
        state = state.apply_gradients(grads=grads)
        ema = jax.tree_util.tree_map(
            lambda e, p: ema_decay * e + (1.0 - ema_decay) * p, state.ema_params, state.params)
        return state.replace(ema_params=ema), loss

    return jax.jit(train_step, donate_argnums=(0,))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--ema-decay", type=float, default=0.999)
    parser.add_argument("--log-every", type=int, default=100)
    parser.add_argument("--num-images", type=int, default=4096)
    args = parser.parse_args()

    batch_size = max(1, round(8 * args.scale))
    key = jax.random.PRNGKey(42)
    key, init_key = jax.random.split(key)

    model = UNet()
    state = create_state(init_key, model, args.lr, batch_size)
    n_params = sum(x.size for x in jax.tree_util.tree_leaves(state.params))
    print(f"UNet with {n_params / 1e6:.2f}M parameters, batch size {batch_size}", flush=True)

    # the whole set is small: keep it on the device
    images = jax.device_put(load_images(args.num_images))
    train_step = make_train_step(cosine_alphas_bar(TIMESTEPS), batch_size, args.ema_decay)

    step = 0
    tick = time.time()
    #@ setup
    while True:
        key, step_key = jax.random.split(key)
        state, loss = train_step(state, images, step_key)
        step += 1
        if step % args.log_every == 0:
            rate = args.log_every / (time.time() - tick)
            print(f"step {step:6d}  loss {loss.item():.4f}  {rate:.1f} it/s", flush=True)
            tick = time.time()
        #@ step loss=loss params=state.params index=step


if __name__ == "__main__":
    main()

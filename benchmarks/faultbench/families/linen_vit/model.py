"""A small Vision Transformer in Flax linen."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp

XAVIER = nn.initializers.xavier_uniform()


class MlpBlock(nn.Module):
    mlp_dim: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, inputs):
        x = nn.Dense(self.mlp_dim, dtype=self.dtype, kernel_init=XAVIER)(inputs)
        x = nn.gelu(x)
        return nn.Dense(inputs.shape[-1], dtype=self.dtype, kernel_init=XAVIER)(x)


class EncoderBlock(nn.Module):
    num_heads: int
    mlp_dim: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm(dtype=self.dtype)(x)
        y = nn.MultiHeadDotProductAttention(num_heads=self.num_heads, dtype=self.dtype, kernel_init=XAVIER)(y)
        x = x + y
        y = nn.LayerNorm(dtype=self.dtype)(x)
        return x + MlpBlock(self.mlp_dim, self.dtype)(y)


class VisionTransformer(nn.Module):
    num_classes: int
    patch_size: int = 4
    hidden_dim: int = 112
    num_layers: int = 2
    num_heads: int = 4
    mlp_dim: int = 256
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, images):
        #@ forward x=images
        p = self.patch_size
        x = nn.Conv(self.hidden_dim, (p, p), strides=(p, p), padding="VALID", name="patch_embed")(images)
        b, h, w, c = x.shape
        x = x.reshape(b, h * w, c)
        cls = self.param("cls", nn.initializers.zeros, (1, 1, c))
        x = jnp.concatenate([jnp.tile(cls, (b, 1, 1)), x], axis=1)
        x = x + self.param("pos_embed", nn.initializers.normal(0.02), (1, h * w + 1, c))
        for i in range(self.num_layers):
            x = EncoderBlock(self.num_heads, self.mlp_dim, self.dtype, name=f"block_{i}")(x)
        x = nn.LayerNorm(name="norm")(x)
        return nn.Dense(self.num_classes, kernel_init=nn.initializers.zeros, name="head")(x[:, 0])

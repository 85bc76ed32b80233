"""A table of sensor readings with correlated, skewed and multi-modal columns."""
import numpy as np


def load(rows=200_000, dim=21, seed=0):
    rng = np.random.default_rng(seed)
    modes = rng.normal(size=(6, dim)) * 2.0
    which = rng.integers(0, len(modes), rows)
    mix = rng.normal(size=(dim, dim)) / np.sqrt(dim)
    x = modes[which] + rng.standard_normal((rows, dim)) @ mix
    skewed = slice(0, dim // 3)
    x[:, skewed] = np.log1p(np.exp(x[:, skewed]))
    return x.astype(np.float32)


def split(x, seed=0):
    order = np.random.default_rng(seed).permutation(len(x))
    n_val = min(len(x) // 20, 4096)
    train, val = x[order[n_val:]], x[order[:n_val]]
    mu, sd = train.mean(0), train.std(0) + 1e-6
    return (train - mu) / sd, (val - mu) / sd

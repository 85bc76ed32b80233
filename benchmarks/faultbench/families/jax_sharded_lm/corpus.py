import os
import tempfile

import numpy as np


def prepare(n_tokens, vocab_size, seed=1337):
    """Write a token file (uint16) and return its path."""
    path = os.path.join(tempfile.gettempdir(), f"corpus_{vocab_size}_{n_tokens}_{os.getpid()}.bin")
    rng = np.random.default_rng(seed)
    # zipfian unigrams, with frequent short phrases pasted in
    p = 1.0 / np.arange(1, vocab_size + 1)
    tokens = rng.choice(vocab_size, size=n_tokens, p=p / p.sum()).astype(np.uint16)
    phrases = rng.integers(0, vocab_size, (256, 8)).astype(np.uint16)
    starts = rng.integers(0, n_tokens - 8, n_tokens // 20)
    which = rng.integers(0, len(phrases), len(starts))
    tokens[starts[:, None] + np.arange(8)] = phrases[which]
    out = np.memmap(path, dtype=np.uint16, mode="w+", shape=(n_tokens,))
    out[:] = tokens
    out.flush()
    return path


class TokenBlocks:
    """Random contiguous blocks from a memory-mapped token file."""

    def __init__(self, path, block_size, batch_size, seed=0):
        self.data = np.memmap(path, dtype=np.uint16, mode="r")
        self.block_size = block_size
        self.batch_size = batch_size
        self.rng = np.random.default_rng(seed)

    def get_block(self, start):
        block = self.data[start:start + self.block_size + 1].astype(np.int32)
        #@ sample array=block
        return block

    def next_batch(self):
        starts = self.rng.integers(0, len(self.data) - self.block_size - 1, self.batch_size)
        blocks = np.stack([self.get_block(s) for s in starts])
        inputs, targets = blocks[:, :-1], blocks[:, 1:]
        #@ batch arrays=inputs,targets
        return inputs, targets

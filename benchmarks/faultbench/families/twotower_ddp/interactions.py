"""Synthetic clicks: users and items have tastes, and popular items are clicked more."""
import numpy as np
import torch
from torch.utils.data import Dataset

#@ imports


def synthesize(users, items, count, seed, taste=8):
    rng = np.random.default_rng(seed)
    user_taste = rng.standard_normal((users, taste), dtype=np.float32)
    item_taste = rng.standard_normal((items, taste), dtype=np.float32)
    popularity = (1.0 / np.arange(1, items + 1) ** 0.8).astype(np.float32)
    popularity = np.log(popularity[rng.permutation(items)])
    who = rng.integers(0, users, count)
    what = np.empty(count, dtype=np.int64)
    for lo in range(0, count, 4096):
        u = who[lo : lo + 4096]
        score = user_taste[u] @ item_taste.T / taste**0.5 * 2 + popularity
        # one draw of the softmax, by Gumbel noise
        what[lo : lo + 4096] = (score + rng.gumbel(size=score.shape)).argmax(1)
    return who, what


class Clicks(Dataset):
    """The next item of a user, and those clicked before it."""

    def __init__(self, who, what, users, history):
        order = np.argsort(who, kind="stable")
        self.who, self.what = who[order], what[order]
        self.first = np.searchsorted(self.who, np.arange(users))
        self.history = history
        # nothing comes before the first click
        self.positions = np.flatnonzero(np.arange(len(self.who)) > self.first[self.who])

    def __len__(self):
        return len(self.positions)

    def __getitem__(self, i):
        at = self.positions[i]
        begin = max(self.first[self.who[at]], at - self.history)
        past = np.zeros(self.history, dtype=np.int64)
        # 0 is the padding
        past[: at - begin] = self.what[begin:at] + 1
        #@ sample array=past
        return past, self.what[at]


def collate(rows):
    past = np.stack([row[0] for row in rows])
    target = np.array([row[1] for row in rows], dtype=np.int64)
    #@ batch arrays=past,target
    return torch.from_numpy(past), torch.from_numpy(target)


def make_datasets(args):
    who, what = synthesize(args.users, args.items, args.interactions, args.seed)
    test = np.random.default_rng(args.seed + 1).random(len(who)) < 0.02
    return (
        Clicks(who[~test], what[~test], args.users, args.history),
        Clicks(who[test], what[test], args.users, args.history),
    )

"""Shapes32: an unlabelled-looking stand-in for CIFAR (32x32 RGB, ten classes of textured shapes)."""
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

NUM_CLASSES = 10


def synthesize(n, seed, size=32, chunk=1000):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, NUM_CLASSES, size=n)
    ys, xs = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j].astype(np.float32)
    images = np.empty((n, size, size, 3), dtype=np.uint8)
    for lo in range(0, n, chunk):
        y = labels[lo : lo + chunk]
        m = len(y)
        f = lambda a, b: rng.uniform(a, b, (m, 1, 1)).astype(np.float32)  # noqa: E731
        cx, cy, r, turn = f(-0.3, 0.3), f(-0.3, 0.3), f(0.35, 0.65), f(-0.5, 0.5)
        u = (xs - cx) * np.cos(turn) + (ys - cy) * np.sin(turn)
        v = (ys - cy) * np.cos(turn) - (xs - cx) * np.sin(turn)
        # even classes are round, odd ones square; the texture's frequency tells the rest
        power = np.where(y % 2 == 0, 2.0, 8.0).astype(np.float32)[:, None, None]
        inside = (np.abs(u) ** power + np.abs(v) ** power < r**power)[..., None]
        freq = (2.0 + 2.5 * (y // 2)).astype(np.float32)[:, None, None]
        texture = (0.5 + 0.5 * np.sin(np.pi * freq * u + f(0, 6.28)))[..., None]
        color = rng.random((4, m, 1, 1, 3), dtype=np.float32)
        front = color[0] * texture + color[1] * (1 - texture)
        back = color[2] + 0.25 * (color[3] - 0.5) * ys[None, ..., None]
        img = np.where(inside, front, back) + 0.03 * rng.standard_normal((m, size, size, 3), dtype=np.float32)
        images[lo : lo + chunk] = (img * 255).clip(0, 255).astype(np.uint8)
    return images, labels


class Shapes32(Dataset):
    def __init__(self, n, seed):
        self.data, self.targets = synthesize(n, seed)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        image = self.data[index].transpose(2, 0, 1)
        #@ sample array=image
        return image, int(self.targets[index])


def collate_uint8(samples):
    """Keep images in uint8: they are cast after the copy to the device."""
    images = np.stack([image for image, _ in samples])
    labels = np.array([label for _, label in samples], dtype=np.int64)
    #@ batch arrays=images,labels
    return torch.from_numpy(images), torch.from_numpy(labels)


def build_loaders(args, device):
    pin = device.type == "cuda"
    train = DataLoader(
        Shapes32(args.train_size, seed=args.seed),
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=args.workers,
        collate_fn=collate_uint8,
        pin_memory=pin,
        persistent_workers=args.workers > 0,
    )
    memory = Shapes32(2000, seed=args.seed + 1)
    query = Shapes32(500, seed=args.seed + 2)
    return train, memory, query

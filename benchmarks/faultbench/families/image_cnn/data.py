"""Image data: an in-memory split of 32x32 RGB pictures and the loaders on top of it."""
from __future__ import annotations

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

MEAN = np.array([0.48, 0.46, 0.44], dtype=np.float32).reshape(3, 1, 1)
STD = np.array([0.24, 0.24, 0.26], dtype=np.float32).reshape(3, 1, 1)
NUM_CLASSES = 10


def load_split(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (uint8) and labels (int64): every class has its smooth texture, a picture is that plus noise."""
    proto_rng = np.random.default_rng(7)
    coarse = proto_rng.uniform(40, 215, size=(NUM_CLASSES, 3, 8, 8)).astype(np.float32)
    protos = coarse.repeat(4, axis=2).repeat(4, axis=3)

    rng = np.random.default_rng(seed)
    labels = rng.integers(0, NUM_CLASSES, size=n)
    images = np.empty((n, 3, 32, 32), dtype=np.uint8)
    for lo in range(0, n, 2048):
        part = labels[lo:lo + 2048]
        noise = rng.standard_normal((len(part), 3, 32, 32), dtype=np.float32) * 45
        gain = rng.uniform(0.6, 1.2, size=(len(part), 1, 1, 1)).astype(np.float32)
        images[lo:lo + 2048] = np.clip(protos[part] * gain + noise, 0, 255)
    return images, labels.astype(np.int64)


class ImageDataset(Dataset):
    """Pictures in memory, augmented (pad-crop, flip, cutout) when ``train`` is set."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, train: bool, pad: int = 4, cutout: int = 8) -> None:
        self.images = images
        self.labels = labels
        self.train = train
        self.pad = pad
        self.cutout = cutout

    def __len__(self) -> int:
        return len(self.images)

    def augment(self, img: np.ndarray) -> np.ndarray:
        # torch's generator is seeded per worker, NumPy's global one is not: draw everything there.
        top, left, flip, cy, cx = torch.randint(0, 1 << 16, (5,)).tolist()
        p, side = self.pad, img.shape[-1]
        canvas = np.zeros((3, side + 2 * p, side + 2 * p), dtype=img.dtype)
        canvas[:, p:p + side, p:p + side] = img
        top, left = top % (2 * p + 1), left % (2 * p + 1)
        img = canvas[:, top:top + side, left:left + side]
        if flip % 2:
            img = img[:, :, ::-1]
        img = np.ascontiguousarray(img)
        cy, cx = cy % (side - self.cutout), cx % (side - self.cutout)
        img[:, cy:cy + self.cutout, cx:cx + self.cutout] = 0
        return img

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        img = self.images[index].astype(np.float32) / 255.0
        img = (img - MEAN) / STD
        if self.train:
            img = self.augment(img)
        label = self.labels[index]
        #@ sample array=img
        return img, label


def collate(samples: list[tuple[np.ndarray, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = zip(*samples)
    images = np.stack(images)
    labels = np.asarray(labels, dtype=np.int64)
    #@ batch arrays=images,labels
    return torch.from_numpy(images), torch.from_numpy(labels)


def build_loaders(batch_size: int, workers: int, n_train: int = 16384, n_val: int = 768) -> tuple[DataLoader, DataLoader]:
    train_set = ImageDataset(*load_split(n_train, seed=0), train=True)
    val_set = ImageDataset(*load_split(n_val, seed=1), train=False)
    pin = torch.cuda.is_available()
    train_loader = DataLoader(
        train_set, batch_size=batch_size, shuffle=True, drop_last=True, collate_fn=collate, pin_memory=pin,
        num_workers=workers, persistent_workers=workers > 0, prefetch_factor=4 if workers > 0 else None,
    )
    val_loader = DataLoader(val_set, batch_size=256, shuffle=False, num_workers=0, collate_fn=collate, pin_memory=pin)
    return train_loader, val_loader

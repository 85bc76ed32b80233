import lightning as L
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


def paint_cells(n, size, seed, max_cells=6):
    """Microscopy-like grey pictures with bright elliptic cells and the masks that belong to them."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:size, 0:size].astype(np.float32) / size
    images = np.empty((n, size, size), dtype=np.uint8)
    masks = np.zeros((n, size, size), dtype=np.uint8)
    chunk = 200
    for lo in range(0, n, chunk):
        m = min(chunk, n - lo)
        field = np.zeros((m, size, size), dtype=np.float32)
        for _ in range(max_cells):
            cy, cx = rng.uniform(0.1, 0.9, (2, m, 1, 1)).astype(np.float32)
            ry, rx = rng.uniform(0.04, 0.14, (2, m, 1, 1)).astype(np.float32)
            bright = rng.uniform(0.3, 0.8, (m, 1, 1)).astype(np.float32)
            inside = ((yy - cy) / ry) ** 2 + ((xx - cx) / rx) ** 2 < 1.0
            masks[lo:lo + m] |= inside
            np.maximum(field, inside * bright, out=field)
        field += 0.15 + 0.08 * rng.standard_normal(field.shape, dtype=np.float32)
        images[lo:lo + m] = np.clip(field, 0, 1) * 255
    return images, masks


class CellDataset(Dataset):
    def __init__(self, images, masks, augment):
        self.images, self.masks, self.augment = images, masks, augment

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = self.images[i].astype(np.float32) * (1 / 255)
        mask = self.masks[i]
        if self.augment:
            k, gain, shift = torch.rand(3).tolist()
            k = int(k * 8)
            image, mask = np.rot90(image, k % 4), np.rot90(mask, k % 4)
            if k >= 4:
                image, mask = image[:, ::-1], mask[:, ::-1]
            image = image * (0.8 + 0.4 * gain) + 0.1 * (shift - 0.5)
        image = np.ascontiguousarray(image[None], dtype=np.float32)
        mask = np.ascontiguousarray(mask[None], dtype=np.float32)
        #@ sample array=image
        return torch.from_numpy(image), torch.from_numpy(mask)


class CellDataModule(L.LightningDataModule):
    def __init__(self, batch_size=8, size=80, n_train=2400, n_val=64, num_workers=2):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage=None):
        hp = self.hparams
        self.train_set = CellDataset(*paint_cells(hp.n_train, hp.size, seed=1), augment=True)
        self.val_set = CellDataset(*paint_cells(hp.n_val, hp.size, seed=2), augment=False)

    def train_dataloader(self):
        return DataLoader(
            self.train_set,
            batch_size=self.hparams.batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=self.hparams.num_workers,
            persistent_workers=True,
            pin_memory=torch.cuda.is_available(),
        )

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=16, num_workers=1, persistent_workers=True)

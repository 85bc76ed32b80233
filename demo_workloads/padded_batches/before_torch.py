"""Train a small transformer on texts that are all filled up to the longest that there may be.

Run: python demo_workloads/padded_batches/before_torch.py --seconds 20
"""

import argparse
import time
from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SEED = 1
WORDS, WIDTH, LAYERS, LONGEST, CLASSES = 2000, 96, 3, 160, 5
TEXTS, BATCH = 1024, 16
PAD = 0
WARM = 10
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Text = tuple[torch.Tensor, int]


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=PAD)
        self.places = nn.Parameter(torch.zeros(LONGEST, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        pad = ids == PAD
        x = self.words(ids) + self.places[: ids.shape[1]]
        x = self.layers(x, src_key_padding_mask=pad).masked_fill(pad[..., None], 0.0)
        return torch.relu(self.head(x.sum(1) / (~pad).sum(1, keepdim=True)))


class Texts(Dataset[Text]):
    def __init__(self) -> None:
        lengths = torch.randint(8, 40, (TEXTS,)).tolist()
        self.rows = [(torch.randint(1, WORDS, (n,)), n % CLASSES) for n in lengths]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Text:
        return self.rows[index]


def collate(samples: list[Text]) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.full((len(samples), LONGEST), PAD)
    for row, (text, _) in zip(ids, samples, strict=True):
        row[: len(text)] = text
    return ids, torch.tensor([label for _, label in samples])


def endless(loader: DataLoader[Text]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    while True:
        yield from loader


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    model = Classifier().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    loader = DataLoader(Texts(), BATCH, shuffle=True, drop_last=True, collate_fn=collate)
    done, took, began = 0, 0.0, time.perf_counter()
    for step, (ids, labels) in enumerate(endless(loader), 1):
        loss = nn.functional.cross_entropy(model(ids.to(DEVICE)), labels.to(DEVICE))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == WARM:
            began = time.perf_counter()
        took = time.perf_counter() - began
        done = step - WARM
        if done == steps or (done > 0 and took > seconds):
            break
    _, took = next(model.parameters()).sum().item(), time.perf_counter() - began  # once all has run
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)

"""Train a small MLP whose batches come from slow storage, read in the training loop itself.

Run: python demo_workloads/first_look/train_torch.py --seconds 12
"""

import argparse
import time
from collections.abc import Iterator

import torch
from torch import nn

SEED = 1
BATCH = 256
FEATURES, HIDDEN, CLASSES = 64, 512, 10
LEARNING_RATE = 3e-3
READ_SECONDS = 0.030  # one read from a network disk

Batch = tuple[torch.Tensor, torch.Tensor]


def batches(device: str) -> Iterator[Batch]:
    """Read one batch after the other, for ever."""
    truth = torch.randn(FEATURES, CLASSES)
    while True:
        time.sleep(READ_SECONDS)  # the device has nothing to do meanwhile
        x = torch.randn(BATCH, FEATURES)
        yield x.to(device), (x @ truth).argmax(dim=1).to(device)


def train(seconds: float, device: str) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # the model is small: more threads would wait for each other
    model = nn.Sequential(
        nn.Linear(FEATURES, HIDDEN),
        nn.GELU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.GELU(),
        nn.Linear(HIDDEN, CLASSES),
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)

    start = said = time.monotonic()
    said_step = 0
    for step, (x, y) in enumerate(batches(device), start=1):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

        now = time.monotonic()
        if now - said >= 1:
            rate = (step - said_step) / (now - said)
            # .item() waits for the device; once a second that costs nothing
            print(f"step {step:5d}  loss {loss.item():.4f}  {rate:.1f} steps/s", flush=True)
            said, said_step = now, step
        if now - start >= seconds:
            return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=12, help="how long to train")
    train(parser.parse_args().seconds, "cuda" if torch.cuda.is_available() else "cpu")

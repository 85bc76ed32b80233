"""Lab 5: neural machine translation with a transformer.

    python main.py --scale 1

Trains on a synthetic parallel corpus and prints the losses after every epoch, and a sample translation now and then.
"""

import argparse
import time

import torch
from torch import nn

from data import BOS, PAD, get_loaders
from model import Seq2SeqTransformer

#@ imports

LOG_EVERY = 50
SAMPLE_EVERY = 5  # epochs


def train_epoch(model, loader, criterion, optimizer, scheduler, device, step):
    model.train()
    running = torch.zeros((), device=device)
    start = time.time()
    #@ setup
    for i, (src, tgt) in enumerate(loader):
        src = src.to(device, non_blocking=True)
        tgt = tgt.to(device, non_blocking=True)

        # the decoder reads <bos> w1 .. wn and has to say w1 .. wn <eos>
        logits = model(src, tgt[:, :-1])
        loss = criterion(logits.flatten(0, 1), tgt[:, 1:].flatten())

        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()

        running += loss.detach()
        step += 1
        if step % LOG_EVERY == 0:
            speed = (i + 1) / (time.time() - start)
            print(f"  step {step:6d}  loss {running.item() / (i + 1):.4f}  {speed:.1f} batches/s", flush=True)
        #@ step loss=loss model=model batch=src,tgt opt=optimizer index=step
    return running.item() / len(loader), step


@torch.no_grad()
def evaluate(model, loader, criterion, device):
    model.eval()
    total = torch.zeros((), device=device)
    for src, tgt in loader:
        src, tgt = src.to(device), tgt.to(device)
        logits = model(src, tgt[:, :-1])
        total += criterion(logits.flatten(0, 1), tgt[:, 1:].flatten())
    return total.item() / len(loader)


@torch.no_grad()
def translate(model, src, max_len=32):
    """Greedy decoding of a batch of source sentences."""
    model.eval()
    out = torch.full((src.size(0), 1), BOS, device=src.device)
    for _ in range(max_len):
        best = model(src, out)[:, -1].argmax(-1, keepdim=True)
        out = torch.cat([out, best], dim=1)
    return out[:, 1:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--warmup", type=int, default=400)
    parser.add_argument("--epochs", type=int, default=100_000)
    args = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    batch_size = max(1, round(args.batch * args.scale))
    train_loader, valid_loader, src_vocab, tgt_vocab = get_loaders(batch_size, pin_memory=device.type == "cuda")
    print(f"{len(train_loader.dataset)} pairs, vocabularies {len(src_vocab)} / {len(tgt_vocab)}, on {device}")

    model = Seq2SeqTransformer(len(src_vocab), len(tgt_vocab)).to(device)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, betas=(0.9, 0.98), eps=1e-9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: min((n + 1) / args.warmup, (args.warmup / (n + 1)) ** 0.5)
    )
    example = next(iter(valid_loader))[0][:1]

    step = 0
    for epoch in range(1, args.epochs + 1):
        start = time.time()
        train_loss, step = train_epoch(model, train_loader, criterion, optimizer, scheduler, device, step)
        valid_loss = evaluate(model, valid_loader, criterion, device)
        print(f"Epoch {epoch:3d}  train {train_loss:.3f}  valid {valid_loss:.3f}  {time.time() - start:.0f}s", flush=True)
        if epoch % SAMPLE_EVERY == 0:
            guess = translate(model, example.to(device))[0].tolist()
            print(f"  > {src_vocab.decode(example[0].tolist())}\n  < {tgt_vocab.decode(guess)}", flush=True)
        #@ epoch


if __name__ == "__main__":
    main()

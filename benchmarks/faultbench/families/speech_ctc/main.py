"""Train a phone recogniser on connected digits with CTC."""

from __future__ import annotations

import argparse
import itertools
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from data import BLANK, N_MELS, N_SYMBOLS, BucketSampler, DigitStrings, build_corpus, collate, seed_worker
from model import AcousticModel

#@ imports

log = logging.getLogger("ctc")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the batch size")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--utterances", type=int, default=3200)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--log-every", type=int, default=200)
    parser.add_argument("--eval-every", type=int, default=2, help="epochs")
    parser.add_argument("--seed", type=int, default=7)
    return parser.parse_args()


def edit_distance(a: list[int], b: list[int]) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]


@torch.inference_mode()
def phone_error_rate(model: AcousticModel, batches: list) -> float:
    model.eval()
    wrong = total = 0
    for feats, lengths, targets, target_lengths in batches:
        best = model(feats, lengths).argmax(dim=-1).cpu()
        spans = model.output_lengths(lengths).tolist()
        for path, span, target, n in zip(best, spans, targets.tolist(), target_lengths.tolist()):
            collapsed = torch.unique_consecutive(path[:span]).tolist()
            wrong += edit_distance([s for s in collapsed if s != BLANK], target[:n])
            total += n
    model.train()
    return wrong / total


def main() -> None:
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    train_set = DigitStrings(build_corpus(args.utterances, args.seed), augment=True)
    valid_set = DigitStrings(build_corpus(48, args.seed + 1, takes=4), augment=False)
    valid_set.mean, valid_set.std = train_set.mean, train_set.std

    batch_size = max(1, round(args.batch_size * args.scale))
    sampler = BucketSampler(train_set.frames(), batch_size=batch_size, seed=args.seed)
    loader = DataLoader(
        train_set,
        batch_sampler=sampler,
        collate_fn=collate,
        num_workers=args.workers,
        prefetch_factor=4,
        persistent_workers=True,
        pin_memory=device.type == "cuda",
        worker_init_fn=seed_worker,
    )
    valid = [
        tuple(t.to(device) for t in batch)
        for batch in DataLoader(valid_set, batch_size=24, collate_fn=collate)
    ]

    model = AcousticModel(N_MELS, N_SYMBOLS).to(device)
    ctc = nn.CTCLoss(blank=BLANK, zero_infinity=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: min((n + 1) / args.warmup, (args.warmup / (n + 1)) ** 0.5)
    )
    log.info(
        "%d utterances, %d batches of %d an epoch, %.2fM parameters, %s",
        len(train_set),
        len(sampler),
        batch_size,
        sum(p.numel() for p in model.parameters()) / 1e6,
        device,
    )

    step = 0
    running = torch.zeros((), device=device)
    since = time.perf_counter()
    model.train()
    #@ setup
    for epoch in itertools.count(1):
        for feats, lengths, targets, target_lengths in loader:
            feats = feats.to(device, non_blocking=True)
            targets = targets.to(device, non_blocking=True)

            log_probs = model(feats, lengths.to(device, non_blocking=True))
            # CTC wants its lengths on the host
            loss = ctc(
                log_probs.transpose(0, 1), targets, model.output_lengths(lengths), target_lengths
            )
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            schedule.step()

            running += loss.detach()
            step += 1
            if step % args.log_every == 0:
                now = time.perf_counter()
                log.info(
                    "epoch %d step %d ctc %.3f lr %.2e %.1f ms/step",
                    epoch,
                    step,
                    running.item() / args.log_every,
                    schedule.get_last_lr()[0],
                    1e3 * (now - since) / args.log_every,
                )
                running.zero_()
                since = now
            #@ step loss=loss model=model batch=feats,targets opt=optimizer index=step

        if epoch % args.eval_every == 0:
            log.info("epoch %d done, PER %.1f%%", epoch, 100 * phone_error_rate(model, valid))
        #@ epoch


if __name__ == "__main__":
    main()

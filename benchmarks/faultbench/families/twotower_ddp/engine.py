"""The loop of each process; the first of them evaluates, prints and saves."""
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from interactions import collate
from towers import in_batch_loss

#@ imports


def average(value):
    """The mean over all processes."""
    value = value.clone()
    dist.all_reduce(value)
    return value / dist.get_world_size()


@torch.no_grad()
def recall_at(model, test_set, device, k=20, chunk=500, most=2000):
    catalogue = model.items(torch.arange(model.item.num_embeddings, device=device))
    hits = total = 0
    for lo in range(0, min(most, len(test_set)), chunk):
        rows = [test_set[i] for i in range(lo, min(lo + chunk, most, len(test_set)))]
        past, target = (t.to(device) for t in collate(rows))
        best = (model.user(past) @ catalogue.t()).topk(k, dim=1).indices
        hits += (best == target[:, None]).any(1).sum().item()
        total += len(rows)
    return hits / max(1, total)


def fit(model, train_set, test_set, rank, args):
    device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")
    model = model.to(device)
    ddp = DistributedDataParallel(model, device_ids=[rank] if device.type == "cuda" else None)
    optimizer = torch.optim.Adam(ddp.parameters(), lr=args.lr)
    sampler = DistributedSampler(train_set, shuffle=True, seed=args.seed)
    loader = DataLoader(train_set, args.batch_size, sampler=sampler, collate_fn=collate, drop_last=True)

    step, seen, since = 0, torch.zeros((), device=device), time.time()
    #@ setup
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        ddp.train()
        for past, target in loader:
            past, target = past.to(device), target.to(device)
            user, item = ddp(past, target)
            loss = in_batch_loss(user, item, target, args.temperature)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

            seen += loss.detach()
            step += 1
            if step % args.print_every == 0:
                mean = average(seen / args.print_every)
                if rank == 0:
                    rate = args.print_every * args.batch_size * args.world_size / (time.time() - since)
                    print(f"epoch {epoch} step {step} loss {mean.item():.4f} {rate:.0f}/s", flush=True)
                seen.zero_()
                since = time.time()
            #@ step loss=loss model=model batch=past,target opt=optimizer index=step rank=rank
        if epoch % args.eval_every == args.eval_every - 1:
            if rank == 0:
                model.eval()
                print(f"epoch {epoch} recall@20 {recall_at(model, test_set, device):.4f}", flush=True)
                torch.save(model.state_dict(), os.path.join(args.out, "last.pt"))
            dist.barrier()
            since = time.time()
        #@ epoch

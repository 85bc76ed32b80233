"""Two-tower retrieval on implicit feedback, data parallel on one host.

    python main.py --world-size 2 --batch-size 512
"""
import argparse
import os
import socket
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from engine import fit
from interactions import make_datasets
from towers import TwoTower


def get_args():
    parser = argparse.ArgumentParser(description="two-tower recommender")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the batch size")
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=512, help="of each process")
    parser.add_argument("--epochs", type=int, default=10000)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--users", type=int, default=3000)
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--interactions", type=int, default=60_000)
    parser.add_argument("--history", type=int, default=20, help="items that stand for a user")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--temperature", type=float, default=0.07)
    parser.add_argument("--print-every", type=int, default=50)
    parser.add_argument("--eval-every", type=int, default=5, help="epochs")
    parser.add_argument("--out", default=None)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    args.batch_size = max(16, int(args.batch_size * args.scale))
    args.out = args.out or tempfile.mkdtemp(prefix="twotower_")
    return args


def find_free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def worker(rank, args):
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    if backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, rank=rank, world_size=args.world_size)
    torch.manual_seed(args.seed)
    torch.set_num_threads(max(1, os.cpu_count() // args.world_size))

    train_set, test_set = make_datasets(args)
    model = TwoTower(args.items, dim=args.dim, hidden=args.hidden)
    if rank == 0:
        count = sum(p.numel() for p in model.parameters())
        print(f"{count / 1e6:.2f}M parameters, {len(train_set)} interactions, "
              f"{args.world_size} x {args.batch_size} a step", flush=True)
    try:
        fit(model, train_set, test_set, rank, args)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    args = get_args()
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", str(find_free_port()))
    mp.spawn(worker, args=(args,), nprocs=args.world_size)

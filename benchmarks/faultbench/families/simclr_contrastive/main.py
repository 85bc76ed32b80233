"""SimCLR pre-training: python main.py --batch-size 64 --temperature 0.5"""
import argparse
import logging
import random
import tempfile

import numpy as np
import torch

from data import build_loaders
from models import SimCLR
from trainer import Trainer


def parse_args():
    p = argparse.ArgumentParser(description="SimCLR")
    p.add_argument("--scale", type=float, default=1.0, help="multiplies the batch size")
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--epochs", type=int, default=20000)
    p.add_argument("--warmup-epochs", type=int, default=10)
    p.add_argument("--lr", type=float, default=0.06, help="for a batch of 64, scaled linearly")
    p.add_argument("--weight-decay", type=float, default=5e-4)
    p.add_argument("--temperature", type=float, default=0.5)
    p.add_argument("--strength", type=float, default=0.5, help="of the color distortion")
    p.add_argument("--width", type=int, default=16)
    p.add_argument("--proj-dim", type=int, default=64)
    p.add_argument("--train-size", type=int, default=10000)
    p.add_argument("--workers", "-j", type=int, default=2)
    p.add_argument("--log-interval", type=int, default=100)
    p.add_argument("--eval-every", type=int, default=10, help="epochs between kNN evaluations")
    p.add_argument("--save-every", type=int, default=50)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--run-dir", default=None)
    args = p.parse_args()
    args.batch_size = max(4, int(args.batch_size * args.scale))
    args.lr = args.lr * args.batch_size / 64
    return args


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    run_dir = args.run_dir or tempfile.mkdtemp(prefix="simclr_")

    train_loader, memory_set, query_set = build_loaders(args, device)
    model = SimCLR(width=args.width, proj_dim=args.proj_dim)
    n_params = sum(p.numel() for p in model.parameters())
    logging.info("%.2fM parameters, batch %d, %d steps/epoch, run dir %s",
                 n_params / 1e6, args.batch_size, len(train_loader), run_dir)

    Trainer(args, model, train_loader, memory_set, query_set, device, run_dir).fit()


if __name__ == "__main__":
    main()

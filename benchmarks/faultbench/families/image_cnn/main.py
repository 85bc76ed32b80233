"""Train a small residual network on 32x32 pictures."""
from __future__ import annotations

import argparse
import itertools
import logging
import os
from dataclasses import dataclass

import torch
from torch import nn

from data import NUM_CLASSES, build_loaders
from model import SmallResNet

#@ imports

log = logging.getLogger("train")


@dataclass
class Config:
    batch_size: int = 64
    workers: int = min(8, os.cpu_count() or 1)
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    label_smoothing: float = 0.05
    decay_epochs: int = 30
    log_every: int = 100


class Trainer:
    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.train_loader, self.val_loader = build_loaders(cfg.batch_size, cfg.workers)
        self.model = SmallResNet(NUM_CLASSES).to(self.device, memory_format=torch.channels_last)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=cfg.label_smoothing)
        self.optimizer = torch.optim.SGD(
            self.model.param_groups(cfg.weight_decay), lr=cfg.lr, momentum=cfg.momentum, nesterov=True
        )
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=cfg.decay_epochs, gamma=0.2)
        self.global_step = 0

    def fit(self) -> None:
        n_batches = len(self.train_loader)
        running = torch.zeros((), device=self.device)
        #@ setup
        for epoch in itertools.count(1):
            self.model.train()
            running.zero_()
            for images, labels in self.train_loader:
                images = images.to(self.device, non_blocking=True, memory_format=torch.channels_last)
                labels = labels.to(self.device, non_blocking=True)

                self.optimizer.zero_grad(set_to_none=True)
                loss = self.criterion(self.model(images), labels)
                loss.backward()
                self.optimizer.step()
                running += loss.detach()

                self.global_step += 1
                if self.global_step % self.cfg.log_every == 0:
                    log.info("step %d  loss %.4f", self.global_step, loss.item())
                #@ step loss=loss model=self.model batch=images,labels opt=self.optimizer index=self.global_step

            self.scheduler.step()
            accuracy = self.evaluate()
            log.info("epoch %d  train loss %.4f  val acc %.3f", epoch, running.item() / n_batches, accuracy)
            #@ epoch

    @torch.no_grad()
    def evaluate(self) -> float:
        self.model.eval()
        correct = torch.zeros((), device=self.device)
        total = 0
        for images, labels in self.val_loader:
            images = images.to(self.device, non_blocking=True, memory_format=torch.channels_last)
            labels = labels.to(self.device, non_blocking=True)
            correct += (self.model(images).argmax(1) == labels).sum()
            total += len(labels)
        return correct.item() / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the batch size")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    torch.manual_seed(args.seed)
    torch.backends.cudnn.benchmark = True
    Trainer(Config(batch_size=max(8, round(64 * args.scale)))).fit()


if __name__ == "__main__":
    main()

import logging
import math
import time
from pathlib import Path

import torch

from augment import Normalize, simclr_augmentation
from data import NUM_CLASSES
from losses import NTXentLoss

#@ imports

logger = logging.getLogger("simclr")


class Trainer:
    def __init__(self, args, model, train_loader, memory_set, query_set, device, run_dir):
        self.args = args
        self.device = device
        self.model = model.to(device)
        self.train_loader = train_loader
        self.memory_set = memory_set
        self.query_set = query_set
        self.run_dir = Path(run_dir)

        self.augment = simclr_augmentation(args.strength).to(device)
        self.normalize = Normalize().to(device)
        self.criterion = NTXentLoss(args.batch_size, args.temperature).to(device)
        self.optimizer = torch.optim.SGD(
            self._param_groups(), lr=args.lr, momentum=0.9, nesterov=True
        )
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self._lr_lambda)
        self.global_step = 0
        self.running = torch.zeros((), device=device)
        self.running_steps = 0
        self.tic = time.perf_counter()

    def _param_groups(self):
        """No weight decay for biases and normalization layers."""
        decay, no_decay = [], []
        for p in self.model.parameters():
            (decay if p.ndim > 1 else no_decay).append(p)
        return [
            {"params": decay, "weight_decay": self.args.weight_decay},
            {"params": no_decay, "weight_decay": 0.0},
        ]

    def _lr_lambda(self, step):
        warmup = self.args.warmup_epochs * len(self.train_loader)
        total = self.args.epochs * len(self.train_loader)
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))

    def fit(self):
        for epoch in range(1, self.args.epochs + 1):
            self.train_epoch(epoch)
            if epoch % self.args.eval_every == 0:
                logger.info("epoch %d | kNN top-1 %.2f%%", epoch, 100 * self.knn_accuracy())
            if epoch % self.args.save_every == 0:
                self.save_checkpoint(epoch)
            #@ epoch

    def train_epoch(self, epoch):
        self.model.train()
        #@ setup
        for images, _ in self.train_loader:
            images = images.to(self.device, non_blocking=True).float().div_(255)
            with torch.no_grad():
                views = torch.cat([self.augment(images), self.augment(images)])

            z = self.model(views)
            loss = self.criterion(z)

            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()

            self.running += loss.detach()
            self.running_steps += 1
            self.global_step += 1
            if self.global_step % self.args.log_interval == 0:
                self.log(epoch)
            #@ step loss=loss model=self.model batch=images opt=self.optimizer index=self.global_step

    def log(self, epoch):
        toc = time.perf_counter()
        logger.info(
            "epoch %d | step %d | loss %.4f | lr %.4f | %.0f img/s",
            epoch,
            self.global_step,
            self.running.item() / self.running_steps,
            self.scheduler.get_last_lr()[0],
            self.running_steps * self.args.batch_size / (toc - self.tic),
        )
        self.running.zero_()
        self.running_steps = 0
        self.tic = toc

    @torch.no_grad()
    def embed(self, dataset, chunk=250):
        data = torch.from_numpy(dataset.data).permute(0, 3, 1, 2).contiguous()
        feats = []
        for part in data.split(chunk):
            x = self.normalize(part.to(self.device).float().div_(255))
            feats.append(torch.nn.functional.normalize(self.model.encoder(x), dim=1))
        return torch.cat(feats), torch.as_tensor(dataset.targets, device=self.device)

    @torch.no_grad()
    def knn_accuracy(self, k=20, tau=0.1):
        self.model.eval()
        bank, bank_labels = self.embed(self.memory_set)
        feats, labels = self.embed(self.query_set)
        weight, index = (feats @ bank.t()).topk(k, dim=1)
        votes = torch.zeros(len(feats), NUM_CLASSES, device=self.device)
        votes.scatter_add_(1, bank_labels[index], (weight / tau).exp())
        return (votes.argmax(dim=1) == labels).float().mean().item()

    def save_checkpoint(self, epoch):
        state = {
            "epoch": epoch,
            "step": self.global_step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "args": vars(self.args),
        }
        torch.save(state, self.run_dir / "last.pt")

import argparse
import os
import tempfile

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.loggers import CSVLogger

from datamodule import CellDataModule
from unet import UNet

#@ imports


def dice_score(probs, masks, eps=1.0):
    dims = (1, 2, 3)
    overlap = (probs * masks).sum(dims)
    return ((2 * overlap + eps) / (probs.sum(dims) + masks.sum(dims) + eps)).mean()


class LitSegmenter(L.LightningModule):
    def __init__(self, base: int = 12, lr: float = 3e-4, dice_weight: float = 0.5):
        super().__init__()
        self.save_hyperparameters()
        self.net = UNet(base=base)

    def forward(self, images):
        return self.net(images)

    def _loss(self, logits, masks):
        bce = F.binary_cross_entropy_with_logits(logits, masks)
        dice = dice_score(logits.sigmoid(), masks)
        return bce + self.hparams.dice_weight * (1.0 - dice), dice

    def training_step(self, batch, batch_idx):
        images, masks = batch
        loss, dice = self._loss(self(images), masks)
        self.log("train/loss", loss)
        self.log("train/dice", dice.detach())
        #@ step loss=loss model=self.net batch=images,masks index=self.global_step
        return loss

    def validation_step(self, batch, batch_idx):
        images, masks = batch
        loss, dice = self._loss(self(images), masks)
        self.log_dict({"val/loss": loss, "val/dice": dice}, on_epoch=True, batch_size=len(images))

    def on_train_epoch_end(self):
        metrics = self.trainer.callback_metrics
        summary = ", ".join(f"{name} {float(value):.4f}" for name, value in sorted(metrics.items()))
        self.print(f"\nepoch {self.current_epoch}: {summary}")
        #@ epoch

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-2)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200, eta_min=1e-5)
        return [optimizer], [scheduler]


def cli_main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--base", type=int, default=12)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--root", default=os.path.join(tempfile.gettempdir(), "cellseg"))
    args = parser.parse_args()

    L.seed_everything(args.seed, workers=True)
    dm = CellDataModule(batch_size=max(1, int(8 * args.scale)), num_workers=min(8, os.cpu_count()))
    model = LitSegmenter(base=args.base, lr=args.lr)
    trainer = L.Trainer(
        accelerator="auto",
        devices=1,
        max_epochs=-1,
        log_every_n_steps=50,
        gradient_clip_val=1.0,
        num_sanity_val_steps=0,
        logger=CSVLogger(args.root, name="unet"),
        callbacks=[
            ModelCheckpoint(monitor="val/dice", mode="max", filename="best"),
            TQDMProgressBar(refresh_rate=100),
        ],
        enable_model_summary=False,
    )
    #@ setup
    trainer.fit(model, datamodule=dm)


if __name__ == "__main__":
    cli_main()

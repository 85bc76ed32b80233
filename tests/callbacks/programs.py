"""Trainings in each trainer, as their users write them; a data set that sleeps leaves time idle."""

from __future__ import annotations

# Long enough for a recording to say something twice.
SECONDS = 16.0

COMMON = f"""
import json, os, sys, time
os.environ["KERAS_BACKEND"] = "torch"
import torch
torch.manual_seed(0)
until = time.monotonic() + {SECONDS}
class Slow(torch.utils.data.Dataset):
    def __len__(self): return 100_000
    def __getitem__(self, i):
        time.sleep(0.002)
        return torch.full((8,), float(i % 7)), torch.tensor([float(i % 2)])
def say(logged): print("LOGGED", json.dumps(logged), flush=True)
held_out = torch.utils.data.Subset(Slow(), range(320))
spent = {{"validation": 0.0, "checkpoint": 0.0}}
began = time.monotonic()
def timed(kind, method):
    def call(*arguments, **named):
        start = time.monotonic()
        try: return method(*arguments, **named)
        finally: spent[kind] += time.monotonic() - start
    return call
def slow(method):
    def call(*arguments, **named):
        time.sleep(0.6)
        return method(*arguments, **named)
    return call
def truth():
    whole = time.monotonic() - began
    print("TRUTH", json.dumps({{name: took / whole for name, took in spent.items()}}), flush=True)
"""
HUGGINGFACE = f"""{COMMON}
from transformers import Trainer, TrainerCallback, TrainingArguments
from whyidle.monitor.callbacks.huggingface import Whyidle
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(8, 1)
    def forward(self, x, labels):
        out = self.body(x)
        return {{"loss": torch.nn.functional.mse_loss(out, labels), "logits": out}}
class Until(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = time.monotonic() > until
Trainer.evaluate = timed("validation", Trainer.evaluate)
Trainer._save_checkpoint = timed("checkpoint", slow(Trainer._save_checkpoint))
class Rows(Slow):
    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        return {{"x": x, "labels": y}}
trainer = Trainer(Model(), TrainingArguments("out", max_steps=100_000, report_to="none",
    logging_steps=5, per_device_train_batch_size=8, use_cpu=True, disable_tqdm=True,
    eval_strategy="steps", eval_steps=100, save_strategy="steps", save_steps=200),
    train_dataset=Rows(), eval_dataset=torch.utils.data.Subset(Rows(), range(320)))
trainer.add_callback(Until())
trainer.add_callback(Whyidle(trainer.log))
began = time.monotonic()
trainer.train()
truth()
# Each entry that was due is there, beside ours.
steps = [e["step"] for e in trainer.state.log_history if "loss" in e]
assert steps == list(range(5, steps[-1] + 1, 5)), steps
say([e for e in trainer.state.log_history if any(k.startswith("whyidle/") for k in e)])
"""
LIGHTNING = f"""{COMMON}
import lightning.pytorch as L
from lightning.pytorch.loggers import CSVLogger
from whyidle.monitor.callbacks.lightning import Whyidle
class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(8, 1)
    def training_step(self, batch, _):
        x, y = batch
        return torch.nn.functional.mse_loss(self.body(x), y)
    def validation_step(self, batch, _):
        x, y = batch
        self.log("loss", torch.nn.functional.mse_loss(self.body(x), y))
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=1e-3)
class Until(L.Callback):
    def on_train_batch_end(self, trainer, *_):
        trainer.should_stop = time.monotonic() > until
class Mine(CSVLogger):
    seen = []
    def log_metrics(self, metrics, step=None):
        self.seen.append(dict(metrics))
# Its loaders begin anew in it, too, before any hook is called.
Loop = L.loops.evaluation_loop._EvaluationLoop
Loop.run = timed("validation", Loop.run)
L.Trainer.save_checkpoint = timed("checkpoint", slow(L.Trainer.save_checkpoint))
saves = L.callbacks.ModelCheckpoint(dirpath="out", every_n_train_steps=200)
trainer = L.Trainer(accelerator="cpu", max_epochs=1, min_epochs=0, val_check_interval=100,
    callbacks=[Until(), Whyidle(), saves], logger=Mine("out"), num_sanity_val_steps=0,
    enable_progress_bar=False, enable_model_summary=False)
load = lambda rows: torch.utils.data.DataLoader(rows, batch_size=8)
began = time.monotonic()
trainer.fit(Model(), load(Slow()), load(held_out))
truth()
assert "save_checkpoint" not in vars(trainer)
say([e for e in Mine.seen if any(k.startswith("whyidle/") for k in e)])
"""
KERAS = f"""{COMMON}
import keras
from whyidle.monitor.callbacks.keras import Whyidle
class Until(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if time.monotonic() > until: self.model.stop_training = True
model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
data = torch.utils.data.DataLoader(Slow(), batch_size=8)
keras.Model.evaluate = timed("validation", keras.Model.evaluate)
keras.Sequential.save = timed("checkpoint", slow(keras.Sequential.save))
began = time.monotonic()
history = model.fit(data, epochs=100, steps_per_epoch=100, verbose=0,
    validation_data=torch.utils.data.DataLoader(held_out, batch_size=8),
    callbacks=[Whyidle(), Until(), keras.callbacks.ModelCheckpoint("saved.keras")])
truth()
assert "save" not in vars(model)
say([{{k: v[-1] for k, v in history.history.items() if k.startswith("whyidle/")}}])
"""
EVERY = {"huggingface": HUGGINGFACE, "lightning": LIGHTNING, "keras": KERAS}

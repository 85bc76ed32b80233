"""For Trainer of Lightning: ``Trainer(callbacks=[Whyidle()])``."""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

from whyidle.monitor.callbacks.watched import Watched, step_ended


class Whyidle(Callback):  # type: ignore[misc]  # it may be absent where types are checked
    """Marks steps, logs where their time goes, and prints the verdict at the end."""

    def __init__(self) -> None:
        self._watched = Watched()
        self._step = 0

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any, **__: Any) -> None:
        """Mark a step of the optimizer, and hand what is new to the trainer's loggers."""
        step = trainer.global_step
        # Of batches whose gradients are accumulated the last one ends a step.
        if step == self._step:
            return
        self._step = step
        step_ended()
        news = self._watched.news()
        if news:
            for logger in trainer.loggers:
                logger.log_metrics(news, step=step)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Print the verdict, once for all ranks."""
        said = self._watched.verdict()
        if said is not None and trainer.is_global_zero:
            print(said, flush=True)

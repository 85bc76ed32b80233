"""For Trainer of Lightning: ``Trainer(callbacks=[Whyidle()])``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

from whyidle.monitor.callbacks.watched import Watched, mark_calls, step_ended
from whyidle.monitor.core import marks


class Whyidle(Callback):  # type: ignore[misc]  # it may be absent where types are checked
    """Marks steps and phases, logs where the time goes, and prints the verdict at the end."""

    def __init__(self) -> None:
        self._watched = Watched()
        self._step = 0
        self._undo: Callable[[], None] | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Mark what saves, which has no hook of its own."""
        marks.in_steps()
        self._step = trainer.global_step
        self._undo = mark_calls(trainer, ("save_checkpoint",), "checkpoint")

    def on_train_batch_start(self, trainer: Any, pl_module: Any, *_: Any, **__: Any) -> None:
        """End what was beside the steps."""
        marks.in_steps()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin a validation."""
        marks.phase_began("validation")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """End it."""
        marks.phase_ended()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Begin what lies between epochs: the next batch ends it."""
        marks.phase_began("epoch")

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
        marks.in_steps()
        said = self._watched.verdict()
        if said is not None and trainer.is_global_zero:
            print(said, flush=True)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Leave the trainer as it was."""
        marks.in_steps()
        if self._undo is not None:
            self._undo()
            self._undo = None

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave it so too where the training breaks off."""
        self.teardown(trainer, pl_module, "fit")

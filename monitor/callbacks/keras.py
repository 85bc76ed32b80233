"""For ``fit`` of Keras 3: ``model.fit(..., callbacks=[Whyidle(), ...])``, before those that log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from whyidle.monitor.callbacks.watched import Watched, mark_calls, step_ended
from whyidle.monitor.core import marks


class Whyidle(keras.callbacks.Callback):  # type: ignore[misc]  # it may be absent
    """Marks steps and phases, adds where time goes to an epoch's logs, prints the verdict."""

    def __init__(self) -> None:
        super().__init__()
        self._watched = Watched()
        self._undo: Callable[[], None] | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Mark what saves, which has no hook of its own."""
        self._end()
        self._undo = mark_calls(self.model, ("save", "save_weights"), "checkpoint")

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """End what was beside the steps."""
        marks.in_steps()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Mark a step."""
        step_ended()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Add what is new to the logs, which the callbacks after this one report."""
        news = self._watched.news()
        if news and logs is not None:
            logs.update(news)
        # The next batch ends it.
        marks.phase_began("epoch")

    def on_test_begin(self, logs: Any = None) -> None:
        """Begin a validation."""
        marks.phase_began("validation")

    def on_test_end(self, logs: Any = None) -> None:
        """End it."""
        marks.phase_ended()

    def on_train_end(self, logs: Any = None) -> None:
        """Print the verdict, and leave the model as it was."""
        self._end()
        said = self._watched.verdict()
        if said is not None:
            print(said, flush=True)

    def _end(self) -> None:
        """Take back what was put; one that a broken training has left as well."""
        marks.in_steps()
        if self._undo is not None:
            self._undo()
            self._undo = None

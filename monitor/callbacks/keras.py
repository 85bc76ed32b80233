"""For ``fit`` of Keras 3: ``model.fit(..., callbacks=[Whyidle(), ...])``, before those that log."""

from __future__ import annotations

from typing import Any

import keras

from whyidle.monitor.callbacks.watched import Watched, step_ended


class Whyidle(keras.callbacks.Callback):  # type: ignore[misc]  # it may be absent
    """Marks steps, adds where their time goes to an epoch's logs, and prints the verdict."""

    def __init__(self) -> None:
        super().__init__()
        self._watched = Watched()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Mark a step."""
        step_ended()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Add what is new to the logs, which the callbacks after this one report."""
        news = self._watched.news()
        if news and logs is not None:
            logs.update(news)

    def on_train_end(self, logs: Any = None) -> None:
        """Print the verdict."""
        said = self._watched.verdict()
        if said is not None:
            print(said, flush=True)

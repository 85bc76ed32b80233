"""For Trainer of Hugging Face: ``trainer.add_callback(Whyidle(trainer.log))``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from whyidle.monitor.callbacks.watched import Watched, step_ended


class Whyidle(TrainerCallback):  # type: ignore[misc]  # it may be absent where types are checked
    """Marks steps, logs where their time goes, and prints the verdict at the end.

    ``log`` is what takes numbers: with ``trainer.log`` they go wherever the trainer reports to.
    """

    def __init__(self, log: Callable[[dict[str, float]], object] | None = None) -> None:
        self._log = log
        self._watched = Watched()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Mark a step, and log what is new as often as the trainer logs."""
        step_ended()
        if self._log is not None and state.global_step % max(1, int(state.logging_steps)) == 0:
            news = self._watched.news()
            if news:
                self._log(news)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Print the verdict, once for all ranks."""
        said = self._watched.verdict()
        if said is not None and state.is_world_process_zero:
            print(said, flush=True)

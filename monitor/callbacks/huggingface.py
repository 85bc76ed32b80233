"""For Trainer of Hugging Face: ``trainer.add_callback(Whyidle(trainer.log))``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from whyidle.monitor.callbacks.watched import Watched, step_ended
from whyidle.monitor.core import marks

if TYPE_CHECKING:
    from whyidle.monitor.core.marks import Name

# What the trainer does after a step where its control says so, in its order.
_DUE: tuple[tuple[str, Name], ...] = (
    ("should_log", "logging"),
    ("should_evaluate", "validation"),
    ("should_save", "checkpoint"),
)


class Whyidle(TrainerCallback):  # type: ignore[misc]  # it may be absent where types are checked
    """Marks steps and phases, logs where the time goes, and prints the verdict at the end.

    ``log`` is what takes numbers: with ``trainer.log`` they go wherever the trainer reports to.
    """

    def __init__(self, log: Callable[[dict[str, float]], object] | None = None) -> None:
        self._log = log
        self._watched = Watched()
        self._is_between_epochs = False

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End what was beside the steps."""
        self._is_between_epochs = False
        marks.in_steps()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Mark a step, and log what is new as often as the trainer logs."""
        step_ended()
        if self._log is not None and state.global_step % max(1, int(state.logging_steps)) == 0:
            news = self._watched.news()
            if news:
                # The trainer takes any entry for the one that was due.
                is_due = control.should_log
                self._log(news)
                control.should_log = is_due
        self._begin_next(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin what lies between epochs."""
        self._is_between_epochs = True
        self._begin_next(control)

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Go on to what comes after it."""
        self._begin_next(control)

    on_evaluate = on_save = on_log

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Print the verdict, once for all ranks."""
        self._is_between_epochs = False
        marks.in_steps()
        said = self._watched.verdict()
        if said is not None and state.is_world_process_zero:
            print(said, flush=True)

    def _begin_next(self, control: Any) -> None:
        """Mark what the trainer does next: of these it tells only the end."""
        marks.in_steps()
        due = next((phase for name, phase in _DUE if getattr(control, name, False)), None)
        if due is None and self._is_between_epochs:
            due = "epoch"
        if due is not None:
            marks.phase_began(due)

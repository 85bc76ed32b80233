"""The part ``model``: its class and what wraps it, as the main thread's stack shows them.

The model is the one whose ``forward`` is the outermost on the stack. A sample shows it only during
one: so there are many samples at first, and few once the model is known.
"""

from __future__ import annotations

import os
import time

from ..framework import Part
from ..main_thread import current_frames
from ..timers import EARLY, SECOND, Timer
from ..wire import LONGEST_NAME
from .parallel import WRAPPERS, around, wrapper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any

MOST_FRAMES = 200
# Models that are named: all that run at least this often, relative to the most frequent one.
MOST_NAMED = 3
SELDOM = 0.1
# Models and files that are told apart.
MOST_MODELS = 16
MOST_FILES = 1000
# Samples in each of the first seconds, until it was seen that often.
SAMPLES_A_SECOND = 5
FIRST_SECONDS = 60
OFTEN = 3
SECONDS_BETWEEN = 5
# The functions that show a model or a wrapper.
FUNCTIONS = {"forward"} | {function for _, function in WRAPPERS.values()}
# Of torch's own code, only containers and layers are a model.
LAYERS = "/torch/nn/modules/"
LOSSES = "/torch/nn/modules/loss.py"


class Model(Part):
    """Samples the main thread's stack for the model."""

    name = "model"

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self._models: dict[str, int] = {}
        self._wrappers: set[str] = set()
        self._files: dict[str, bool] = {}
        self._seconds = 0
        self._sampling: Timer | None = None
        self._failed: Exception | None = None

    def begin(self) -> None:
        """Begin to sample, where it is known which thread is the main one."""
        if self.context.main is not None:
            timer = Timer(SECOND // SAMPLES_A_SECOND, self._try_sample, EARLY)
            self.hooks.add(lambda: self.context.timers.remove(timer))
            self._sampling = timer
            self.context.timers.add(timer, time.monotonic_ns())

    def second(self, now: int) -> dict[str, int | None]:
        """Sample, if a sample is due."""
        self._seconds += 1
        if self._failed is not None:
            raise self._failed
        known = sum(self._models.values()) >= OFTEN
        if self._sampling is not None and (known or self._seconds > FIRST_SECONDS):
            self.context.timers.remove(self._sampling)
            self._sampling = None
        if self._sampling is None and self._seconds % SECONDS_BETWEEN == 0:
            self._sample(now)
        return {}

    def facts(self) -> dict[str, Any]:
        """Return the models that were seen, in order, and all that wrapped one."""
        found: dict[str, Any] = {}
        if self._models:
            found["model"] = self._named()
        wrappers = around(self._wrappers)
        if wrappers:
            found["parallel"] = ", ".join(wrappers)
        return found

    def _named(self) -> str:
        """Return the names of the models: a job may train several, as a GAN does."""
        most = sorted(self._models, key=self._models.__getitem__, reverse=True)[:MOST_NAMED]
        seldom = SELDOM * self._models[most[0]]
        named = [name for name in self._models if name in most and self._models[name] >= seldom]
        *others, last = named
        return f"{', '.join(others)} and {last}" if others else last

    def _try_sample(self, now: int) -> None:
        """Sample; a failure ends this part, at its next second, not the agent."""
        try:
            self._sample(now)
        except Exception as error:
            self._failed = error

    def _sample(self, _now: int) -> None:
        model = None
        frame = None if self.context.main is None else current_frames().get(self.context.main)
        for _ in range(MOST_FRAMES):
            if frame is None:
                break
            code = frame.f_code
            if code.co_name in FUNCTIONS:
                wraps = wrapper(code.co_filename, code.co_name)
                if wraps is not None:
                    self._wrappers.add(wraps)
                elif code.co_name == "forward" and self._may_be_model(code.co_filename):
                    model = _class(code)
            frame = frame.f_back
        if model is not None and (model in self._models or len(self._models) < MOST_MODELS):
            self._models[model] = self._models.get(model, 0) + 1

    def _may_be_model(self, file: str) -> bool:
        found = self._files.get(file)
        if found is None:
            if len(self._files) >= MOST_FILES:
                self._files.clear()
            is_layer = LAYERS in file and not file.endswith(LOSSES)
            found = self._files[file] = "/torch/" not in file or is_layer
        return found


def _class(code: CodeType) -> str:
    """Return the name of the class of a method, or where it is written, before Python 3.11."""
    name = getattr(code, "co_qualname", "").rpartition(".")[0].rpartition(".")[2]
    if not name or name == "<locals>":
        name = f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"
    return str(name)[-LONGEST_NAME:]

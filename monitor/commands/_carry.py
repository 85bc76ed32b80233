"""What a command does lies in ``app/``: imported here, when it runs, so that --help is quick."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable


def carried_out(by: str) -> Callable[[Callable[[], None]], Callable[..., None]]:
    """Carry a command out with ``run`` of a module in ``app/``, which takes the options by name."""

    def declare(command: Callable[[], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def call(**options: object) -> None:
            importlib.import_module(f"whyidle.monitor.app.{by}").run(**options)

        return call

    return declare

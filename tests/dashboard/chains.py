"""Stack samples for a made run: a training script whose lines call one another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.dashboard.gpu_jobs import Job
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.runs.summary import STACKS
from whyidle.monitor.store import Writer

SOURCE = '''"""Train."""
import numpy as np
import torch


def augment(x):
    return np.sort(x)


def tokens(text):
    found = []
    for letter in text:
        found.append(ord(letter) * 31 % 97)
    return found


def step(model, batch):
    x = augment(batch)
    loss = model(x)
    loss.backward()
    return loss.item()


def main():
    for batch in loader:
        tokens(batch)
        step(model, batch)


main()
'''
PACKAGES = "/venv/lib/python3.11/site-packages"
CONV = CodeLine(f"{PACKAGES}/torch/nn/modules/conv.py", 5, "forward")
LOADER = CodeLine(f"{PACKAGES}/torch/utils/data/dataloader.py", 3, "__next__")
SELECT = CodeLine("/usr/lib/python3.11/selectors.py", 3, "select")


def script(folder: Path, name: str = "train.py") -> str:
    """Write the script and return its path."""
    (folder / name).write_text(SOURCE)
    return str(folder / name)


def samples(file: str, times: int = 1, *, waits: bool = True) -> StackSamples:
    """Return a hundred samples of it, or as many hundreds as wanted."""
    main, loop = CodeLine(file, 30, "<module>"), CodeLine(file, 25, "main")
    token, step = CodeLine(file, 26, "main"), CodeLine(file, 27, "main")
    number, sort = CodeLine(file, 13, "tokens"), CodeLine(file, 7, "augment")
    model, item, first = (CodeLine(file, line, "step") for line in (19, 21, 18))
    found = StackSamples()
    rows = [
        (Chain((loop, main), SELECT, LOADER), 20, 19),
        (Chain((number, token, main), number), 40, 0),
        (Chain((sort, first, step, main), sort), 5, 0),
        (Chain((model, step, main), CONV), 20, 2),
        (Chain((item, step, main), item), 14, 14),
        (Chain((), SELECT), 1, 0),
    ]
    for chain, count, waited in rows:
        found.samples += count * times
        found.count(chain, count * times, count * times * waits, waited * times * waits)
    return found


def keep(made: Job, data: Mapping[str, Any], *, rank: int = 0, ago_s: int = 0) -> None:
    """Store what an event says, so long before the run's end."""
    put(made.writer, made.run, made.ranks[rank], made.ts_ms - 1 - ago_s * 1000, data)


def put(writer: Writer, run: int, process: int, ts_ms: int, data: Mapping[str, Any]) -> None:
    """Store what an event says."""
    writer.event(
        run, STACKS, "Where the main thread was.", ts_ms=ts_ms, scope=Scope.PROCESS,
        subject=process, data=data,
    )  # fmt: skip


def packed(found: StackSamples) -> Mapping[str, Any]:
    """Return it as a recording keeps it."""
    return {**found.packed(1 << 20), "seconds": 10.0}

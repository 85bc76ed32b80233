"""A store with a run, and ticks to put into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from whyidle.monitor.core.metrics import GPU_POWER, Metric, Scope
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.core.reading import Reading, Tick
from whyidle.monitor.store import NewRun, Reader, Writer

# A whole hour, so that every bucket begins here.
START_MS = 1_700_006_400_000


@dataclass
class Clock:
    ms: int = START_MS

    def __call__(self) -> float:
        return self.ms / 1000


@dataclass
class Store:
    """A writer with one run on one GPU, with a clock that does not advance."""

    path: Path
    clock: Clock = field(default_factory=Clock)
    size_cap: int = 600 << 20

    def __post_init__(self) -> None:
        self.writer = Writer.open(self.path, size_cap=self.size_cap, now=self.clock)
        self.run = self.writer.begin_run(NewRun(label="test", started_ms=self.clock.ms, hz=1))
        self.gpu = self.writer.add_gpu(self.run, idx="0", uuid="GPU-0", name="H200")

    def tick(
        self,
        ts_ms: int,
        values: Mapping[Metric, float] | None = None,
        unknown: Mapping[Metric, str] | None = None,
    ) -> Tick:
        reading = Reading(dict(values or {}), dict(unknown or {}))
        return Tick(ts_ms, {Scope.GPU: {self.gpu: reading}})

    def watch(self, seconds: int, power: Callable[[int], float | None]) -> None:
        """Record at 1 Hz, as the sampler does."""
        for _ in range(seconds):
            value = power(self.clock.ms)
            values = {} if value is None else {GPU_POWER: value}
            assert self.writer.append(self.run, self.tick(self.clock.ms, values))
            self.writer.maintain(self.clock())
            self.clock.ms += 1000

    def reader(self) -> Reader:
        return Reader.open(self.path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / DATABASE


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    made = Store(path)
    yield made
    made.writer.close()

"""A recorder in this process whose ticks are called by hand."""

from __future__ import annotations

import subprocess
from pathlib import Path

from whyidle.monitor.processes.target import Target
from whyidle.monitor.recording.clock import Sampler, Waker
from whyidle.monitor.recording.recorder import Recorder
from whyidle.monitor.recording.requests import Wanted
from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.sources.gpus import GpuProbe
from whyidle.monitor.store import Reader, Writer

Job = subprocess.Popen[str]


def target(job: Job) -> Target:
    return Target.named(str(job.pid))


class Bench:
    """A recorder whose ticks are called by hand."""

    def __init__(self, job: Job, path: Path) -> None:
        self.path = path
        self.recorder = Recorder(Wanted(target(job)), Writer.open(path), GpuProbe(), "no GPU here")
        self.waker = Waker(job.pid)
        self.sampler = Sampler(1.0, self.waker)

    def tick(self) -> Snapshot:
        snapshot = self.recorder.tick(self.sampler)
        assert snapshot is not None
        return snapshot

    def events(self, *, stops: bool = False) -> list[str]:
        """Return what was stored; pauses of the machine itself only where they are asked for."""
        with Reader.open(self.path) as reader:
            kinds = [e.kind for e in reader.events(self.recorder.run)]
        return [kind for kind in kinds if stops or kind != "stood_still"]

"""Folders of ranks whose truth is known: a job is played, and each rank's profile written."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Event = dict[str, Any]
BASE_NS = 1_790_857_026_000_000_000


@dataclass
class Job:
    """Ranks that compute, then exchange gradients, several times a step."""

    ranks: int = 2
    steps: int = 20
    step_us: float = 100_000.0
    collectives: int = 4
    transfer_us: float = 500.0
    late: float = 0.0  # part of a step
    who: int = -1
    how: str = "constant"  # "now and then", "one collective"
    noise: float = 0.01
    # So far each clock is off, and how many collectives later its profile begins.
    skew_us: float = 0.0
    begins_later: dict[int, int] = field(default_factory=dict)
    pairs: bool = False  # tensor parallel pairs exchange, too
    notes: bool = True  # as torch since 2.2 writes beside collectives
    sequence: bool = False
    marks: bool = True
    covers: float = 0.0  # part of each collective that computing goes on in
    per_host: int = 0
    seed: int = 0

    def write(self, folder: Path, *, suffix: str = ".json.gz") -> Path:
        """Write a file for each rank."""
        folder.mkdir(parents=True, exist_ok=True)
        for rank, events in enumerate(self._play()):
            document = {
                "schemaVersion": 1,
                "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": self.ranks},
                "baseTimeNanoseconds": BASE_NS,
                "traceEvents": events,
            }
            if self.per_host:
                document["host_name"] = f"node{rank // self.per_host}"
            text = json.dumps(document).encode()
            packed = gzip.compress(text, 1) if suffix.endswith(".gz") else text
            (folder / f"rank{rank}{suffix}").write_bytes(packed)
        return folder

    @property
    def truth(self) -> float:
        """How long the others wait for the late rank, as a part of a step of theirs."""
        longer = self.step_us * self.late + self.collectives * self.transfer_us
        return self.step_us * self.late / (self.step_us + longer)

    def _play(self) -> list[list[Event]]:
        rng = np.random.default_rng(self.seed)
        late = self.ranks - 1 if self.who < 0 else self.who
        files = [_File(rank, self, rng.uniform(-1, 1) * self.skew_us) for rank in range(self.ranks)]
        for step in range(self.steps):
            begun = [file.now for file in files]
            for turn in range(self.collectives):
                works = (
                    self.step_us
                    / self.collectives
                    * (1 + self.noise * rng.standard_normal(self.ranks))
                )
                works[late] += self._more(step, turn)
                for file, work in zip(files, works, strict=True):
                    file.compute(float(work))
                if self.pairs:
                    for first in range(0, self.ranks, 2):
                        self._exchange(files[first : first + 2], f"tp{first}", turn, rng)
                    for first in (0, 1):
                        self._exchange(files[first::2], f"dp{first}", turn, rng)
                else:
                    self._exchange(files, "0", turn, rng)
            for file, at in zip(files, begun, strict=True):
                file.mark(step, at)
        return [file.events for file in files]

    def _more(self, step: int, turn: int) -> float:
        if self.how == "now and then":
            return 4 * self.late * self.step_us / self.collectives if step % 4 == 1 else 0.0
        if self.how == "one collective":
            return self.late * self.step_us if turn == 1 else 0.0
        return self.late * self.step_us / self.collectives

    def _exchange(self, files: list[_File], group: str, turn: int, rng: Any) -> None:
        """All that take part leave together, but for microseconds."""
        end = max(file.now for file in files) + self.transfer_us
        for file in files:
            file.exchange(end + float(rng.uniform(0, 3)), group, 1 << (18 + turn), len(files))


class _File:
    """The profile of one rank."""

    def __init__(self, rank: int, job: Job, clock: float) -> None:
        self.rank, self.job, self.clock = rank, job, clock
        self.now = 1000.0
        self.events: list[Event] = []
        self.calls = 0
        self.turns: dict[str, int] = {}
        self.left = job.begins_later.get(rank, 0)

    def compute(self, took: float) -> None:
        self._kernel("gemm", self.now, took, stream=7)
        self.now += took

    def exchange(self, end: float, group: str, size: int, ranks: int) -> None:
        self.turns[group] = turn = self.turns.get(group, 0) + 1
        notes: dict[str, Any] = {}
        if self.job.notes:
            notes = {
                "Collective name": "allreduce",
                "In msg nelems": size,
                "Out msg nelems": size,
                "Group size": ranks,
                "dtype": "Float",
                "Process Group Name": group,
            }
        if self.job.sequence:
            notes["Seq"] = turn
        stream = 20 if group[:2] in ("0", "dp") else 24
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long)"
        if self.left:
            self.left -= 1
            if not self.left:
                self.events.clear()
        else:
            self._kernel(name, self.now, end - self.now, stream=stream, **notes)
            if self.job.covers:
                self._kernel("gemm", self.now, self.job.covers * (end - self.now), stream=7)
        self.now = end

    def mark(self, step: int, begun: float) -> None:
        if self.job.marks and not self.left:
            self._event(
                "user_annotation", f"ProfilerStep#{step}", begun, self.now - begun - 1, 1, {}
            )

    def _kernel(self, name: str, at: float, took: float, *, stream: int, **notes: Any) -> None:
        self.calls += 1
        link = {"correlation": self.calls}
        self._event("cuda_runtime", "cudaLaunchKernel", max(0.0, at - 20), 5.0, 1, link)
        where = {"device": self.rank % 8, "stream": stream, **link, **notes}
        self._event("kernel", name, at, took, stream, where)

    def _event(  # noqa: PLR0917  the fields of an event
        self, cat: str, name: str, at: float, took: float, tid: int, args: dict[str, Any]
    ) -> None:
        self.events.append(
            {
                "ph": "X",
                "cat": cat,
                "name": name,
                "pid": 1000 + self.rank,
                "tid": tid,
                "ts": round(at + self.clock + 1e6, 3),
                "dur": round(took, 3),
                "args": args,
            }
        )

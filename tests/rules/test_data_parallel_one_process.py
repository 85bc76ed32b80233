"""The rule data_parallel_one_process: windows by hand, as no machine here has two GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.windows import answer, cannot_judge, found, judge, names, stacks, window
from whyidle.monitor.core.finding import Confidence, Severity
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.window import Window

NAME = "data_parallel_one_process"
FIXES = {
    "pytorch": (
        """
import os
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
dataset, as_before = TensorDataset(torch.zeros(256, 4)), {"batch_size": 64}
model = torch.nn.Linear(4, 2)
""",
        """
torch.distributed.destroy_process_group()
assert len(loader) == 4 and isinstance(model, DistributedDataParallel)
""",
    ),
}
PARALLEL = "/v/lib/python3.11/site-packages/torch/nn/parallel"
CALL = CodeLine("/job/train.py", 40, "train")
REPLICATES = CodeLine(f"{PARALLEL}/replicate.py", 120, "replicate")
WAITS = CodeLine(f"{PARALLEL}/parallel_apply.py", 110, "parallel_apply")
GATHERS = CodeLine(f"{PARALLEL}/scatter_gather.py", 100, "gather")
OTHER = CodeLine("/job/train.py", 44, "train")


def facts(gpus: int, around: str = "DataParallel", **more: Any) -> dict[str, Any]:
    return {"torch": {"backend": "cuda", "devices_used": gpus, "parallel": around, **more}}


def sampled(*rows: tuple[CodeLine, float], gpus: int = 4) -> Window:
    """A job that the agent did not name the wrapper of: its class is the user's own."""
    samples = stacks(*((leaf, (CALL,), n) for leaf, n in rows), (OTHER, (), 50))
    return window(
        stacks=samples,
        lines=samples.lines(),
        leaves=samples.leaves(),
        facts={"torch": {"backend": "cuda", "devices_used": gpus}},
        inside=True,
    )


def traced(*pids: int, calls: dict[str, float]) -> Window:
    device = {"kind": "gpu", "compute_ns": 1}
    trace = answer(
        {Slice.COMPUTE: 0.4, Slice.EXPOSED_COMM: 0.2, Slice.EXPOSED_COPY: 0.1,
         Slice.IDLE_DISPATCH: 0.3}, kind="gpu", calls=calls,
    )  # fmt: skip
    devices = [{**trace["devices"][0], **device, "pid": pid} for pid in pids]
    return window(trace | {"devices": devices}, kind="file")


def test_the_agent_saw_it_around_the_model() -> None:
    finding = found(NAME, window(facts=facts(4), inside=True))
    # How much it costs is not known.
    assert (finding.gain, finding.severity) == (None, Severity.MEDIUM)
    assert finding.confidence is Confidence.HINTED
    assert [each.value for each in finding.evidence] == [4, "nn.DataParallel"]


def test_samples_of_a_subclass_or_of_a_loop_that_replicates_by_hand() -> None:
    finding = found(NAME, sampled((REPLICATES, 20), (GATHERS, 10), (WAITS, 20)))
    assert finding.gain is not None
    assert (finding.gain.low, finding.gain.high) == pytest.approx((0.15, 0.3))
    assert finding.confidence is Confidence.INFERRED
    assert names(finding.where) == ["train"]


def test_a_trace_of_several_gpus_of_one_process() -> None:
    calls = {"DataParallel.forward": 1.0, "Broadcast": 1.0}
    finding = found(NAME, traced(7, 7, 7, calls=calls))
    assert finding.gain is not None
    assert (finding.gain.low, finding.gain.high) == pytest.approx((0.15, 0.6))
    assert finding.confidence is Confidence.MEASURED


@pytest.mark.parametrize(
    "healthy",
    [
        # On one GPU, or on the CPU, it calls the model and nothing else.
        window(facts=facts(1), inside=True),
        window(facts=facts(4, "DistributedDataParallel", world_size=4), inside=True),
        window(facts=facts(4, "FullyShardedDataParallel"), inside=True),
        # A model that is cut into parts by hand, one for each GPU.
        window(facts=facts(2, ""), inside=True),
        sampled((GATHERS, 10)),
        traced(7, 8, calls={"Broadcast": 1.0}),
        traced(7, 7, calls={"aten::mm": 9.0}),
        window(facts={"jax": {"backend": "gpu"}}, inside=True),
    ],
)
def test_other_ways_to_use_several_gpus(healthy: Window) -> None:
    assert judge(NAME, healthy) is None


def test_nothing_known_of_the_job() -> None:
    assert cannot_judge(NAME, window())

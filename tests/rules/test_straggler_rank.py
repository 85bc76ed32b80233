"""The rule straggler_rank, on ranks whose samples were made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from tests.rules.test_per_step_sync import ON_GPU
from tests.rules.windows import cannot_judge, found, judge, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Confidence, Found, Severity
from whyidle.monitor.core.ranks import FEW_STEPS
from whyidle.monitor.diagnosis.diagnose import as_json, diagnose
from whyidle.monitor.render.findings import screen
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.portable import dump, load
from whyidle.monitor.signals.ranks import SHORT
from whyidle.monitor.signals.recorded import GpuUser, RankSeen, SeenGpu
from whyidle.monitor.signals.window import Window

NAME = "straggler_rank"
FIXES = {
    "pytorch": (
        """
import os, tempfile
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
meet = os.path.join(tempfile.mkdtemp(), "meet")
dist.init_process_group("gloo", f"file://{meet}", rank=0, world_size=1)
dataset, as_before = TensorDataset(torch.arange(10)), {"batch_size": 2}
""",
        """
assert sorted(int(x) for batch, in loader for x in batch) == list(range(10))
dist.destroy_process_group()
""",
    ),
    "jax": ("import jax\nsamples = list(range(10))", "assert mine == samples"),
}
LIB = "/venv/lib/python3.11/site-packages"
TRAIN = CodeLine("/job/train.py", 40, "train")
DECODE = CodeLine("/job/data.py", 12, "decode")
LOG = CodeLine("/job/train.py", 44, "report")
ENGINE = CodeLine(f"{LIB}/torch/autograd/graph.py", 824, "_engine_run_backward")
REDUCE = CodeLine(f"{LIB}/torch/distributed/distributed_c10d.py", 2810, "all_reduce")
LOSS = CodeLine("/job/train.py", 42, "train")
PIL = CodeLine(f"{LIB}/PIL/Image.py", 5, "decode")
SLEEP = CodeLine("/usr/lib/python3.11/threading.py", 320, "wait")
# Where a main thread is: the chain, and the part of its samples that wait.
WAITS = Chain((LOSS,), ENGINE), 1.0
REDUCES = Chain((LOSS,), REDUCE), 1.0
COMPUTES = Chain((TRAIN,), ENGINE), 0.0
DECODES = Chain((DECODE,), PIL), 0.0
LOGS = Chain((LOG,), PIL), 0.0
READS_DISK = Chain((DECODE,), SLEEP), 1.0
At = tuple[Chain, float]
CPU = {"torch": {"backend": "cpu", "world_size": 2, "rank": 0}}
GPU = {"torch": {"backend": "cuda", "world_size": 2, "rank": 0}}


def rank(
    number: int, shares: Mapping[At, float], *, seconds: int = 30, hz: int = 10, **means: float
) -> RankSeen:
    """Return a rank that was sampled by chance at places with these shares."""
    rng = np.random.default_rng(100 + number)
    places = list(shares)
    samples = StackSamples()
    samples.looks = seconds
    for second in range(seconds):
        drawn = rng.multinomial(hz, [shares[at] for at in places])
        for (chain, waiting), n in zip(places, drawn.tolist(), strict=True):
            if n:
                samples.samples += n
                samples.count(chain, n, n, waiting * n, when=1 << second)
    known = {getattr(m, name): value for name, value in means.items()}
    return RankSeen(number, 100 + number, samples, known)


def of(
    *ranks: RankSeen,
    answers: Sequence[Mapping[str, Any]] = (),
    facts: Mapping[str, Any] = CPU,
    **more: Any,
) -> Window:
    job = window(*answers, ranks_seen=ranks, facts=facts, inside=True, **more)
    assert load(dump(job)).ranks == job.ranks
    return job


def gpus(*busy: float) -> Sequence[SeenGpu]:
    return tuple(
        SeenGpu(
            str(n), "H100", owned=True, means={m.GPU_UTILISATION: use},
            users=(GpuUser(100 + n, "python", is_ours=True),),
        )
        for n, use in enumerate(busy)
    )  # fmt: skip


VICTIM = {COMPUTES: 0.5, DECODES: 0.1, WAITS: 0.4}
LATE = {COMPUTES: 0.5, DECODES: 0.45, WAITS: 0.05}


def test_the_rank_that_makes_the_other_wait_is_named_with_its_line() -> None:
    finding = found(NAME, of(rank(0, VICTIM), rank(1, LATE)))
    assert finding.title == "Rank 1 is late, the other one waits: libraries in decode"
    assert [(x.file, x.line) for x in finding.where][:1] == [("/job/data.py", 12)]
    assert finding.gain is not None
    # Half of what it has more, where its work is divided; all of it at most.
    assert 0.10 < finding.gain.low < 0.35 / 2 < 0.35 < finding.gain.high < 0.46
    assert finding.confidence is Confidence.INFERRED
    said = {each.name: each.value for each in finding.evidence}
    assert said["ranks that were looked at"] == "2 of 2"
    assert said["the others wait for it"] == pytest.approx(0.35, abs=0.06)


def test_one_of_four_that_reads_its_files_while_the_others_stand_in_a_collective() -> None:
    fast = {COMPUTES: 0.3, REDUCES: 0.7}
    late = {COMPUTES: 0.3, READS_DISK: 0.6, REDUCES: 0.1}
    finding = found(NAME, of(rank(0, fast), rank(1, fast), rank(2, late), rank(3, fast)))
    assert finding.title is not None
    assert finding.title.startswith("Rank 2 is late, the others wait")
    assert finding.gain is not None
    assert finding.gain.low == pytest.approx(0.75 * 0.6, abs=0.08)
    assert finding.fixes is not None
    assert "almost no time" in finding.fixes["pytorch"].text


def test_the_first_rank_that_alone_reports_all_the_time() -> None:
    report = {COMPUTES: 0.6, LOGS: 0.3, WAITS: 0.1}
    others = [rank(n, {COMPUTES: 0.6, WAITS: 0.4}) for n in (1, 2, 3)]
    finding = found(NAME, of(rank(0, report), *others))
    assert finding.where[0].line == LOG.line
    assert finding.fixes is not None
    assert "almost no time" in finding.fixes["pytorch"].text


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_ranks_that_do_the_same_are_not_told_apart_by_chance(ranks: int) -> None:
    for seed in range(10):
        job = of(*(rank(n, VICTIM) for n in range(seed * ranks, (seed + 1) * ranks)))
        assert judge(NAME, job) is None


@pytest.mark.parametrize("hz", [2, 10])
def test_the_first_rank_may_log_a_little(hz: int) -> None:
    logs = {COMPUTES: 0.59, LOGS: 0.01, WAITS: 0.4}
    others = [rank(n, {COMPUTES: 0.6, WAITS: 0.4}, hz=hz) for n in (1, 2, 3)]
    assert judge(NAME, of(rank(0, logs, hz=hz), *others)) is None


def test_all_wait_alike_where_the_exchange_itself_is_slow() -> None:
    slow = {COMPUTES: 0.3, REDUCES: 0.7}
    assert judge(NAME, of(*(rank(n, slow) for n in range(4)))) is None


def test_a_host_that_has_time_for_what_it_does_more_is_a_hint() -> None:
    read = Chain((LOSS,), CodeLine(f"{LIB}/torch/_tensor.py", 5, "tolist")), 1.0
    ahead = {COMPUTES: 0.2, read: 0.8}
    more = {COMPUTES: 0.2, LOGS: 0.3, read: 0.5}
    finding = found(NAME, of(rank(0, more), rank(1, ahead), facts=GPU))
    assert finding.gain is not None
    assert finding.gain.low == 0
    assert finding.severity is Severity.LOW
    assert finding.confidence is Confidence.HINTED


def test_its_gpu_says_whether_it_has() -> None:
    read = Chain((LOSS,), CodeLine(f"{LIB}/torch/_tensor.py", 5, "tolist")), 1.0
    ahead = {COMPUTES: 0.2, read: 0.8}
    more = {COMPUTES: 0.2, LOGS: 0.3, read: 0.5}
    ranks = rank(0, more), rank(1, ahead)
    # What waits in a collective claims to be busy.
    finding = found(NAME, of(*ranks, facts=GPU, gpus=gpus(0.65, 0.97)))
    assert finding.gain is not None
    assert finding.gain.low > 0.1
    assert finding.severity is None
    assert judge(NAME, of(*ranks, facts=GPU, gpus=gpus(0.97, 0.97))) is None


def test_threads_that_compute_on_a_cpu_say_it_too() -> None:
    """JAX on a CPU: its host sleeps in each step, and what computes hardly runs."""
    facts = {"jax": {"backend": "cpu", "processes": 2, "rank": 0}}
    read = Chain((LOSS,), CodeLine(f"{LIB}/jax/_src/array.py", 5, "__float__")), 1.0
    ranks = rank(0, {read: 1.0}), rank(1, {READS_DISK: 0.8, read: 0.2}, PROCESS_CPU=0.1)
    finding = found(NAME, of(*ranks, facts=facts))
    assert finding.severity is None
    assert finding.gain is not None
    assert finding.gain.low == pytest.approx(0.4, abs=0.1)
    busy = rank(0, {read: 1.0}), rank(1, {READS_DISK: 0.8, read: 0.2}, PROCESS_CPU=0.95)
    assert found(NAME, of(*busy, facts=facts)).severity is Severity.LOW


def test_what_is_too_short_or_seen_of_one_rank_alone_is_not_judged() -> None:
    assert cannot_judge(NAME, of(rank(0, VICTIM, seconds=4), rank(1, LATE, seconds=4)))
    assert cannot_judge(NAME, of(rank(0, VICTIM)))
    assert judge(NAME, of(rank(0, VICTIM), facts={"torch": {"world_size": 1}})) is None
    assert judge(NAME, window()) is None


def test_tasks_that_only_have_numbers_are_no_ranks_of_one_job() -> None:
    """As SLURM starts evaluations beside each other: one waits more for its GPU than another."""
    alone = {"torch": {"backend": "cpu", "world_size": 1}}
    assert judge(NAME, of(rank(0, VICTIM), rank(1, LATE), facts=alone)) is None
    # Without an agent nobody says so, but they were seen to exchange something.
    mpi = CodeLine(f"{LIB}/mpi4py/MPI.py", 5, "Allreduce")
    waits = Chain((LOSS,), mpi), 0.0
    ranks = rank(0, {COMPUTES: 0.5, waits: 0.5}), rank(1, {COMPUTES: 0.95, waits: 0.05})
    assert found(NAME, of(*ranks, facts={"torch": {"backend": "cpu"}}))


def test_processes_that_make_steps_of_their_own_do_not_wait_for_each_other() -> None:
    ranks = rank(0, VICTIM, PROCESS_STEPS=10.0), rank(1, LATE, PROCESS_STEPS=14.0)
    assert not isinstance(judge(NAME, of(*ranks)), Found)


def test_a_collector_that_runs_on_one_rank_is_said() -> None:
    job = of(rank(0, VICTIM, PROCESS_GC_PAUSE=0.01), rank(1, LATE, PROCESS_GC_PAUSE=0.2))
    said = {each.name: each.value for each in found(NAME, job).evidence}
    assert said["its garbage collector"] == pytest.approx(0.2)


SAVE = (
    Chain(
        (CodeLine("/job/train.py", 50, "save_checkpoint"),),
        CodeLine(f"{LIB}/torch/serialization.py", 5, "save"),
    ),
    0.0,
)
WRITES = {COMPUTES: 0.5, SAVE: 0.4, WAITS: 0.1}


def test_a_cause_that_another_rule_knows_better_stands_for_it() -> None:
    """Rank 0 saves while the others wait: the way out is to save in another way."""
    saves = rank(0, WRITES)
    job = of(saves, rank(1, VICTIM), stacks=saves.stacks, pid=saves.pid, looks=300)
    first = diagnose(job).findings[0]
    assert first.rule.id == "checkpoint_blocks"
    assert NAME in first.also_seen


def test_what_the_waiting_rank_does_itself_explains_nothing_away() -> None:
    """The process that stands for the job waits: its little work is not why the other is late."""
    victim = rank(0, VICTIM)
    job = of(victim, rank(1, LATE), stacks=victim.stacks, pid=victim.pid, looks=300)
    named = [each.rule.id for each in diagnose(job).findings]
    assert named[0] == NAME
    # The victim is not told to cure its wait.
    assert "per_step_sync" not in named


def test_reads_that_wait_for_the_late_rank_are_its_symptom() -> None:
    read = Chain((LOSS,), CodeLine(f"{LIB}/torch/_tensor.py", 5, "tolist")), 1.0
    victim = rank(0, {COMPUTES: 0.2, read: 0.8})
    late = rank(1, {COMPUTES: 0.2, LOGS: 0.75, read: 0.05})
    alone = window(ON_GPU, facts=GPU, inside=True)
    assert [each.rule.id for each in diagnose(alone).findings] == ["per_step_sync"]
    job = of(victim, late, answers=(ON_GPU,), facts=GPU)
    (finding,) = diagnose(job).findings
    assert finding.rule.id == NAME
    assert "per_step_sync" in finding.also_seen


def test_the_answer_has_each_rank_and_the_late_one() -> None:
    answer = as_json(diagnose(of(rank(0, VICTIM), rank(1, LATE))))
    ranks = answer.ranks
    assert ranks is not None
    assert [each.rank for each in ranks.each] == [0, 1]
    assert ranks.world_size == 2
    assert ranks.straggler is not None
    assert ranks.straggler.rank == 1
    assert ranks.straggler.late[0] > 0.2
    assert ranks.each[0].waits[0] > 0.2
    assert ranks.each[1].host_shares["library"] == pytest.approx(0.45, abs=0.1)
    calm = as_json(diagnose(of(rank(0, VICTIM), rank(1, VICTIM)))).ranks
    assert calm is not None
    assert calm.straggler is None
    assert calm.reason
    alone = as_json(diagnose(window()))
    assert alone.ranks is None
    assert "attach" in alone.unknown["ranks"]


def test_the_screen_says_who_waits_and_who_comes_last() -> None:
    text = screen(as_json(diagnose(of(rank(0, VICTIM), rank(1, LATE)))), console=Console(width=100))
    assert "Its ranks, by their main threads (2 of 2 seen)" in text
    (line,) = (line for line in text.splitlines() if "comes last" in line and "rank 1" in line)
    assert "libraries" in line


def test_the_reason_of_too_few_steps_is_known() -> None:
    assert FEW_STEPS in SHORT

"""The rule per_step_sync."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.windows import (
    answer,
    cannot_judge,
    found,
    is_silent,
    judge,
    names,
    recorded,
    stacks,
    traced,
    window,
)
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.aggregates import ReadBack
from whyidle.monitor.runs.stacks import Chain, CodeLine

NAME = "per_step_sync"
FIXES = {
    "tensorflow": (
        """
import tensorflow as tf
batches = [(1.0, 2.0)] * 200
def train_step(x, y):
    return tf.constant(x * y)
""",
        """
assert number == 200
assert float(total) == 0
""",
    ),
    "pytorch": (
        """
import torch
device = "cpu"
batches = [(torch.ones(2, 3), torch.zeros(2))] * 200
def train_step(x, y):
    return (x.sum(1) - y).square().mean()
""",
        "assert number == 200 and total.item() == 0",
    ),
    "jax": (
        """
import jax, jax.numpy as jnp, numpy as np
params = jnp.zeros(3)
batches = [(np.ones(3), 1.0)] * 200
train_step = jax.jit(lambda params, x, y: (params + x, jnp.sum(params) * y))
""",
        "assert number == 200 and total == 0.0 and float(params[0]) == 200",
    ),
}
READ = ReadBack("item", "/job/train.py", 30, "watched", 500, 500_000)
LINE = SourceLine("/job/train.py", 30, "watched", 0.4)
OTHER = SourceLine("/job/train.py", 40, "train", 0.6)
REFILL = {Slice.IDLE_DISPATCH: {"refilling after a synchronisation": 0.1}}
ON_GPU = answer(
    {Slice.COMPUTE: 0.6, Slice.IDLE_SYNC: 0.2, Slice.IDLE_DISPATCH: 0.2},
    kind="gpu",
    details=REFILL,
    calls={"aten::item": 3.0},
)
TURNS = {
    m.PROCESS_SYNCS: 100.0,
    m.JOB_SYNC_WAIT: 0.5,
    m.HOST_CORES: 2.0,
}


def test_a_gpu_that_waits_after_each_read() -> None:
    finding = found(NAME, window(ON_GPU))
    assert finding.gain is not None
    assert finding.gain.low == pytest.approx(0.2, abs=0.001)
    assert finding.gain.high == pytest.approx(0.3, abs=0.001)


def test_reads_now_and_then_are_logging() -> None:
    seldom = ON_GPU | {"calls": [{**ON_GPU["calls"][0], "per_step": 0.1}]}
    assert judge(NAME, window(seldom)) is None


def test_host_and_device_that_take_turns() -> None:
    taken = answer({Slice.COMPUTE: 0.5, Slice.IDLE_DISPATCH: 0.5}, fmt="xplane")
    jax = {"jax": {"backend": "cpu"}}
    finding = found(NAME, window(taken, means=TURNS, facts=jax, inside=True))
    assert finding.gain is not None
    # Both work at once, or share two cores of which the device's work takes both.
    assert (finding.gain.low, finding.gain.high) == pytest.approx((0.25, 0.5), abs=0.001)


def test_a_host_without_anything_else_to_do() -> None:
    full = answer({Slice.COMPUTE: 0.99, Slice.IDLE_DISPATCH: 0.01}, fmt="xplane")
    jax = {"jax": {"backend": "cpu"}}
    assert is_silent(NAME, window(full, means={**TURNS, m.JOB_SYNC_WAIT: 0.97}, facts=jax))


def test_a_line_that_computes_only_to_read() -> None:
    means = {m.PROCESS_SYNCS: 500.0, m.PROCESS_STEPS: 10.0, m.JOB_STEPS: 10.0}
    finding = found(
        NAME,
        window(
            means=means,
            facts={"torch": {"backend": "cpu"}},
            reads=(READ,),
            lines=(OTHER, LINE),
            leaves=(OTHER, LINE),
            looks=10**9,
            inside=True,
        ),
    )
    assert finding.gain is not None
    assert (finding.gain.low, finding.gain.high) == pytest.approx((0.36, 0.4), abs=0.001)
    assert names(finding.where) == ["watched"]


def test_a_line_that_calls_the_model_too() -> None:
    means = {m.PROCESS_SYNCS: 10.0, m.JOB_STEPS: 10.0}
    inside = SourceLine("/lib/torch/nn/modules/linear.py", 130, "forward", 0.4)
    assert is_silent(
        NAME,
        window(
            means=means,
            facts={"torch": {"backend": "cpu"}},
            reads=(READ,),
            lines=(OTHER, LINE),
            leaves=(OTHER, inside),
        ),
    )


def test_nothing_measured() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, window(means={m.PROCESS_SYNCS: 10.0}, inside=True))


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_the_recorded_pair(framework: str) -> None:
    finding = found(NAME, recorded(f"{NAME}/before_{framework}"))
    assert finding.gain is not None
    assert finding.gain.expected >= 0.05
    assert finding.where[0].file.endswith(f"before_{framework}.py")
    assert is_silent(NAME, recorded(f"{NAME}/after_{framework}"))


@pytest.mark.parametrize("trace", ["h100_qwen05b", "v100_2rank_nccl", "mi300_ddp_resnet18"])
def test_traces_that_do_not_read(trace: str) -> None:
    assert is_silent(NAME, traced(trace))


def test_lines_of_the_framework_are_left_out() -> None:
    means = {m.PROCESS_SYNCS: 500.0, m.PROCESS_STEPS: 10.0, m.JOB_STEPS: 10.0}
    torch = "/venv/lib/python3.11/site-packages/torch/optim/adamw.py"
    library = ReadBack("item", torch, 60, "step", 9000, 10**9)
    finding = found(
        NAME,
        window(
            means=means,
            facts={"torch": {"backend": "cpu"}},
            reads=(library, READ),
            lines=(OTHER, LINE),
            leaves=(OTHER, LINE),
            inside=True,
        ),
    )
    assert names(finding.where) == ["watched"]


def test_a_list_of_numbers_that_is_drawn_beside_collections_is_no_such_read() -> None:
    assert judge(NAME, recorded("gc_pauses/before_torch")) is None


SPELLED = """
import numpy as np

def fit(step, batches):
    for batch in batches:
        loss = step(batch)
        seen = np.asarray(loss)
        loss.block_until_ready()
        best = max(best, float(loss))
"""


@pytest.mark.parametrize("line", [7, 8, 9])
@pytest.mark.parametrize(("busy", "is_fault"), [(0.5, True), (0.98, False)])
def test_reads_not_counted(tmp_path: Path, line: int, busy: float, *, is_fault: bool) -> None:
    file = tmp_path / "train.py"
    file.write_text(SPELLED)
    reads, other = CodeLine(str(file), line, "fit"), CodeLine("/job/data.py", 5, "augment")
    seen = stacks((reads, (), 400), waited=1)
    seen.samples += 600
    seen.count(Chain((other,), other), 600, 600, 0)
    idle = {Slice.COMPUTE: busy, Slice.IDLE_DISPATCH: 1 - busy}
    jax = {"jax": {"backend": "cpu"}}
    at = window(answer(idle, fmt="xplane"), facts=jax, stacks=seen, inside=True)
    if is_fault:
        finding = found(NAME, at)
        assert finding.gain is not None
        assert 0.3 < finding.gain.high < 0.6
        assert [place.line for place in finding.where] == [line]
    else:
        # The device is never without work: rare reads wait for all of it, and cost nothing.
        assert is_silent(NAME, at)


def test_a_wait_for_cores_that_all_work_gives_nothing_back(tmp_path: Path) -> None:
    """A whole training in one compiled function reads its result, and waits for nothing else."""
    file = tmp_path / "train.py"
    file.write_text(SPELLED)
    seen = stacks((CodeLine(str(file), 9, "fit"), (), 1000), waited=1)
    jax = {"jax": {"backend": "cpu"}}
    of_job = {m.HOST_CORES: 4.0, m.HOST_CPU: 0.99, m.JOB_MAIN_THREAD: 0.02}

    def most(cores: float) -> float:
        means = {**of_job, m.JOB_CPU: cores, m.PROCESS_CPU: cores}
        gain = found(NAME, window(facts=jax, stacks=seen, means=means, inside=True)).gain
        assert gain is not None
        return gain.high

    assert most(3.8) < 0.1
    assert most(1.0) > 0.5


DUE = """
def fit(step, batches):
    for number, batch in enumerate(batches):
        loss = step(batch)
        {}
            print(number, float(loss))
"""


@pytest.mark.parametrize(
    ("head", "is_fault"),
    [
        ("if number % every == 0:", False),
        ("if not number % 100:", False),
        ("with quiet():", True),
        ("if verbose:", True),
    ],
)
def test_reads_that_are_due_now_and_then_wait_for_the_steps(
    tmp_path: Path, head: str, *, is_fault: bool
) -> None:
    file = tmp_path / "train.py"
    file.write_text(DUE.format(head))
    reads, step = CodeLine(str(file), 6, "fit"), CodeLine(str(file), 4, "fit")
    seen = stacks((reads, (), 400), waited=1)
    seen.samples += 600
    seen.count(Chain((step,), step), 600, 600, 0)
    idle = {Slice.COMPUTE: 0.5, Slice.IDLE_DISPATCH: 0.5}
    jax = {"jax": {"backend": "cpu"}}
    at = window(answer(idle, fmt="xplane"), facts=jax, stacks=seen, inside=True)
    assert is_silent(NAME, at) is not is_fault


PLAYS = """
import gymnasium as gym
import jax
import numpy as np

def play(policy, params):
    env = gym.make("CartPole-v1")
    obs, _ = env.reset()
    while True:
        {}
        obs, reward, done, _, _ = env.step(action)
        loss = learn(params, obs)
        print(float(loss))
"""


@pytest.mark.parametrize(
    ("acts", "line"),
    [
        ("action = int(policy(params, obs))", 10),
        ("action = jax.device_get(policy(params, obs).argmax())", 10),
        ("action = np.asarray(policy(params, obs))", 10),
        # A loss could be read later.
        ("action = env.action_space.sample()", 13),
    ],
)
def test_an_environment_waits_for_its_action(tmp_path: Path, acts: str, line: int) -> None:
    file = tmp_path / "play.py"
    file.write_text(PLAYS.format(acts))
    reads, step = CodeLine(str(file), line, "play"), CodeLine(str(file), 12, "play")
    seen = stacks((reads, (), 400), waited=1)
    seen.samples += 600
    seen.count(Chain((step,), step), 600, 600, 0)
    idle = {Slice.COMPUTE: 0.5, Slice.IDLE_DISPATCH: 0.5}
    jax = {"jax": {"backend": "cpu"}}
    at = window(answer(idle, fmt="xplane"), facts=jax, stacks=seen, inside=True)
    assert is_silent(NAME, at) is (line == 10)


ACTING = """
import gym
def play(policy):
    env = gym.make("CartPole-v1")
    def choose(obs):
        return policy(obs).sample().item()
    obs = env.reset()
    while True:
        {}
        obs, reward, done, info = env.step(action)
        loss = learn(obs)
        losses.append(loss.item())
"""


@pytest.mark.parametrize("how", ["action = choose(obs)", "action = choose(torch.as_tensor(obs))"])
@pytest.mark.parametrize(("line", "is_fault"), [(6, False), (12, True)])
def test_reads_that_are_counted_may_be_of_actions(
    tmp_path: Path, how: str, line: int, *, is_fault: bool
) -> None:
    file = tmp_path / "play.py"
    file.write_text(ACTING.format(how))
    at = CodeLine(str(file), line, "choose" if line == 6 else "play")
    around = (CodeLine(str(file), 9, "play"),) if line == 6 else ()
    seen = stacks((at, (at, *around), 400))
    read = ReadBack("item", str(file), line, at.function, 500, 500_000)
    sampled = SourceLine(str(file), line, at.function, 0.4)
    means = {m.PROCESS_SYNCS: 500.0, m.PROCESS_STEPS: 10.0, m.JOB_STEPS: 10.0}
    job = window(
        means=means, facts={"torch": {"backend": "cpu"}}, reads=(read,), stacks=seen,
        lines=(OTHER, sampled), leaves=(OTHER, sampled), looks=10**9, inside=True,
    )  # fmt: skip
    assert is_silent(NAME, job) is not is_fault

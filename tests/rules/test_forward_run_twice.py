"""The rule forward_run_twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.rules.windows import answer, cannot_judge, found, is_silent, recorded, rule, window
from tests.signals.programs import watched
from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.signals.window import Window

NAME = "forward_run_twice"
FIXES = {
    "pytorch": (
        """
import torch
model = torch.nn.Linear(3, 2)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
x, y = torch.eye(3), torch.tensor([0, 1, 1])
""",
        "assert right == (model(x).argmax(1) == y).sum()",
    ),
    "jax": (
        """
import jax
import jax.numpy as jnp
def loss(params, x, y):
    said = x @ params
    return ((said - y) ** 2).mean(), (jnp.sign(said) == y).mean()
params, x, y = jnp.ones(3), jnp.eye(3), jnp.ones(3)
""",
        """
value, accuracy, gradient = loss_and_gradient(jnp.zeros(3), x, y)
assert (value, accuracy) == (1.0, 0.0)
assert jnp.allclose(gradient, jax.grad(loss, has_aux=True)(jnp.zeros(3), x, y)[0])
""",
    ),
}
BUSY = {Slice.COMPUTE: 0.8, Slice.IDLE_DISPATCH: 0.2}
OFTEN = {"PjitFunction(forward)": 1.0, "PjitFunction(backward)": 1.0, "PjitFunction(descend)": 1.0}


def program(name: str, flops: int, products: int, **more: Any) -> dict[str, Any]:
    """Return the figures of one compiled program."""
    return {
        "name": f"jit_{name}", "operations": 50, "whole": True, "loops": 0, "flops": flops,
        "products": {"f32": products}, "argument_bytes": 10**6, "output_bytes": 10**6,
        "aliased_bytes": 0, "temporary_bytes": 0,
    } | more  # fmt: skip


def job(*programs: dict[str, Any], calls: dict[str, float] = OFTEN) -> Window:
    """Return the window of a job with these programs."""
    facts = {"jax": {"largest_executables": list(programs)}}
    return window(answer(BUSY, fmt="xplane", calls=calls), facts=facts, inside=True)


FORWARD, BACKWARD = program("forward", 10**8, 4), program("backward", 3 * 10**8, 11)


def test_a_loss_and_its_gradient() -> None:
    finding = found(NAME, job(BACKWARD, FORWARD))
    assert finding.gain is not None
    assert finding.gain.high == pytest.approx(1.35 * 0.25)
    assert finding.gain.low == pytest.approx(0.15)


def test_both_under_one_name() -> None:
    both = program("loss", 10**8, 4), program("loss", 3 * 10**8, 11)
    calls = {"PjitFunction(loss)": 2.0, "PjitFunction(descend)": 1.0}
    found(NAME, job(*both, calls=calls))
    # One of them was called once, at the beginning.
    assert is_silent(NAME, job(*both, calls={"PjitFunction(loss)": 1.0}))


@pytest.mark.parametrize("state", [0, 1, 2])
def test_metrics_beside_a_step_that_updates(tmp_path: Path, state: int) -> None:
    # 0.9 MB of parameters and 0.1 MB of a batch; the optimizer remembers as much for each number.
    renewed = (1 + state) * 900_000
    step = {"argument_bytes": 100_000 + renewed, "output_bytes": renewed}
    file = tmp_path / "train.py"
    file.write_text(
        "for batch in batches:\n"
        "    state = backward(state, batch)\n"
        "    seen = forward(state, batch)\n"
    )
    programs = [program("backward", 3 * 10**8, 11, **step), program("forward", 10**8, 4)]
    programs[1]["output_bytes"] = 24
    facts = {"jax": {"largest_executables": programs}}
    lines = (SourceLine(str(file), 3, "<module>", 0.9),)
    job = {"facts": facts, "lines": lines, "inside": True}
    finding = found(NAME, window(answer(BUSY, fmt="xplane", calls=OFTEN), **job))
    assert [place.line for place in finding.where] == [3, 2]
    # A teacher's answers, one for each sample, are taken by the step.
    programs[1]["output_bytes"] = 4 * 256
    taught = window(answer(BUSY, fmt="xplane", calls=OFTEN), **job)
    assert is_silent(NAME, taught) is bool(state)


@pytest.mark.parametrize(
    "programs",
    [
        [BACKWARD],
        # Of the work, the arguments, or the products of something else.
        [program("backward", 9 * 10**8, 30), FORWARD],
        [program("backward", 3 * 10**8, 11, argument_bytes=4 * 10**6), FORWARD],
        [program("backward", 3 * 10**8, 4), FORWARD],
        # What is in a loop is counted once, so its flops are not known.
        [program("backward", 3 * 10**8, 11, loops=1), FORWARD],
        [program("backward", 3 * 10**3, 11), program("forward", 10**3, 4)],
    ],
)
def test_programs_that_do_not_repeat_each_other(programs: list[dict[str, Any]]) -> None:
    assert is_silent(NAME, job(*programs))


def test_an_evaluation_now_and_then() -> None:
    assert is_silent(NAME, job(BACKWARD, FORWARD, calls=OFTEN | {"PjitFunction(forward)": 0.1}))


def test_what_is_missing() -> None:
    assert cannot_judge(NAME, window())
    facts = {"jax": {"largest_executables": [FORWARD, BACKWARD]}}
    assert cannot_judge(NAME, window(facts=facts, inside=True))


def test_the_recorded_pair() -> None:
    finding = found(NAME, recorded("forward_run_twice/before_jax"))
    assert all(p.file.endswith("forward_run_twice/before_jax.py") for p in finding.where)
    assert len(finding.where) == 2
    assert is_silent(NAME, recorded("forward_run_twice/after_jax"))


def test_another_fault() -> None:
    assert is_silent(NAME, recorded("unjitted_step/before_jax"))


def test_a_pass_of_pytorch_that_trains_nothing(tmp_path: Path) -> None:
    source = """
for x, y in loader:
    out = model(x)  # step 200
    loss = criterion(out, y)  # step 50
    loss.backward()  # step 500
    optimizer.step()
    print(criterion(model(x), y))  # step 250
"""
    samples, _ = watched(source, tmp_path)
    facts = {"torch": {"backend": "cpu"}}
    finding = found(NAME, window(facts=facts, stacks=samples, inside=True))
    assert [(place.line, place.share) for place in finding.where] == [(7, 0.25)]
    assert finding.gain is not None
    assert finding.gain.low < 0.25 < finding.gain.high < 0.3
    assert finding.title != rule(NAME).title

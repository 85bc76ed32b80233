"""The rule growing_sequence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.phases import LIB, TORCH, of_rows, written
from tests.rules.windows import answer, cannot_judge, found, is_silent, window
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.signals.window import Window

NAME = "growing_sequence"
FIXES = {
    "pytorch": (
        """
import torch
batch, heads, longest, width, at = 2, 3, 8, 4, 5
new_keys, query = torch.ones(batch, heads, 1, width), torch.ones(batch, heads, 1, width)
""",
        "assert scores[..., 5].eq(4).all() and scores[..., 6:].isinf().all()",
    ),
    "jax": (
        """
import jax
import jax.numpy as jnp
longest, keys, token = 6, jnp.zeros((6, 4)), jnp.int32(1)
key_of = lambda token: jnp.full((1, 4), token, jnp.float32)
pick = lambda keys, token, at: token + 1
""",
        "assert tokens.tolist() == [2, 3, 4, 5, 6, 7]",
    ),
}
# Line 4 runs the model, line 6 puts the token to the end.
STYLES = {
    "a method of a small GPT": """\
def generate(self, idx, n):
    for _ in range(n):
        seen = idx[:, -self.block :]
        logits, _ = self(seen)
        token = pick(logits)
        idx = torch.cat((idx, token), dim=1)
""",
    "a script in JAX": """\
import jax.numpy as jnp

while tokens.shape[1] < longest:
    logits = model(params, tokens)
    token = logits[:, -1].argmax(-1)
    tokens = jnp.concatenate([tokens, token[:, None]], axis=1)
""",
    "a cache that is a list of keys": """\
import torch
def decode(model, token, keys):
    for n in range(99):
        token, new = model.step_with(token, keys=keys)

        keys = torch.cat([keys, new], 2)
""",
}


def job(tmp_path: Path, source: str, share: float, backend: str = "cpu") -> Window:
    rows = [(4, TORCH, 1000 * share), (90, TORCH, 1000 * (1 - share))]
    return of_rows(written(tmp_path, source), rows, backend=backend)


@pytest.mark.parametrize("style", STYLES)
def test_a_sequence_that_grows_in_any_style(style: str, tmp_path: Path) -> None:
    finding = found(NAME, job(tmp_path, STYLES[style], 0.6))
    assert finding.gain is None
    assert finding.severity is Severity.MEDIUM
    assert finding.where[0].line == 6


@pytest.mark.parametrize("style", STYLES)
def test_a_look_while_training_is_healthy(style: str, tmp_path: Path) -> None:
    assert is_silent(NAME, job(tmp_path, STYLES[style], 0.05))


def test_the_loop_of_transformers(tmp_path: Path) -> None:
    file = written(tmp_path, "\n\n\nout = model.generate(**prompt)\n")
    rows = [(4, (f"{LIB}/transformers/generation/utils.py", "generate"), 900), (9, TORCH, 100)]
    finding = found(NAME, of_rows(file, rows, backend="cuda"))
    # Nothing says what the device did.
    assert finding.severity is Severity.LOW
    assert finding.where[0].line == 4


@pytest.mark.parametrize(("busy", "is_fault"), [(0.9, False), (0.2, True)])
def test_a_device_that_works_has_enough_to_do(
    busy: float, *, is_fault: bool, tmp_path: Path
) -> None:
    stacks = job(tmp_path, STYLES["a method of a small GPT"], 0.9).job.stacks
    trace = answer({Slice.COMPUTE: busy, Slice.IDLE_DISPATCH: 1 - busy}, kind="gpu")
    watched = window(trace, stacks=stacks, facts={"torch": {"backend": "cuda"}}, inside=True)
    if is_fault:
        assert found(NAME, watched).severity is Severity.MEDIUM
    else:
        assert is_silent(NAME, watched)


HEALTHY = {
    "outputs that are collected": """\
def predict(model, batches, found):
    for x in batches:

        out = model(x)

        found = torch.cat([found, out])
""",
    "a memory that is drawn from": """\
def learn(env, pi, memory, state):
    while True:

        state = env.step(pi(state))
        loss_of(draw(memory)).backward()
        memory = torch.cat([memory, state])
""",
    "a skip connection": """\
def forward(self, x):
    for layer, skip in self.layers:

        x = layer(x)

        y = torch.cat([x, skip], 1)
""",
    "a cache of a fixed length": """\
def decode(model, token, keys):
    for at in range(99):

        token, new = model(token, keys)

        keys[:, :, at] = new
""",
}


@pytest.mark.parametrize("style", HEALTHY)
def test_what_does_not_grow_from_pass_to_pass(style: str, tmp_path: Path) -> None:
    assert is_silent(NAME, job(tmp_path, HEALTHY[style], 0.9))


def test_without_samples_it_cannot_judge() -> None:
    assert cannot_judge(NAME, window())

"""The rule validation_too_long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.phases import LIB, TORCH, of_rows, written
from tests.rules.windows import answer, cannot_judge, found, is_silent, severity, window
from whyidle.monitor.core.finding import Confidence, Severity
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.diagnosis.diagnose import diagnose
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.window import Window

NAME = "validation_too_long"
FIXES = {
    "pytorch": (
        """
import itertools, torch
step, model, held_out = 5000, torch.nn.Linear(2, 1), [(torch.ones(3, 2), torch.ones(3, 1))] * 30
loss_of = torch.nn.functional.mse_loss
""",
        "assert len(losses) == 20 and not losses[0].requires_grad",
    ),
    "jax": (
        """
import itertools
import jax.numpy as jnp
step, params, held_out = 5000, jnp.ones((2, 1)), [(jnp.ones((3, 2)), jnp.ones((3, 1)))] * 30
loss_of = lambda params, x, y: ((x @ params - y) ** 2).mean()
""",
        "assert len(losses) == 20",
    ),
}
# Line 3 trains, and line 7 validates.
STYLES = {
    "a block": """\
import torch
for n, (x, y) in enumerate(batches):
    loss = model(x)
    loss.backward()
    if n % 100 == 0:
        with torch.no_grad():
            scores = [model(z) for z in val_batches]
""",
    "a function with a name of its own": """\
import torch
def turn(x):
    return model(x)
@torch.inference_mode()
def quality(model, batches):
    model.eval()
    return sum(model(z) for z in batches)
""",
    "a method of a trainer": """\
class Trainer:
    def train_step(self, x):
        return self.model(x)
    def score(self, scores=()):
        self.model.eval()
        with torch.no_grad():
            scores = [self.model(z) for z in self.val_batches]
""",
}


def job(tmp_path: Path, source: str, share: float) -> Window:
    file = written(tmp_path, source)
    return of_rows(file, [(3, TORCH, 1000 * (1 - share)), (7, TORCH, 1000 * share)])


@pytest.mark.parametrize("style", STYLES)
def test_a_model_that_is_evaluated_in_any_style(style: str, tmp_path: Path) -> None:
    watched = job(tmp_path, STYLES[style], 0.3)
    finding = found(NAME, watched)
    assert finding.title == "Validation takes 30% of the main thread's time"
    assert finding.where[0].line == 7
    assert severity(NAME, finding) is Severity.HIGH
    assert finding.confidence is Confidence.INFERRED
    assert finding.gain is not None
    assert 0.2 < finding.gain.low < 0.27
    assert 0.3 < finding.gain.high < 0.34
    first = diagnose(watched).findings[0]
    assert first.rule.id == NAME
    assert "host_code" in first.also_seen


@pytest.mark.parametrize("style", STYLES)
def test_a_little_of_it_is_healthy(style: str, tmp_path: Path) -> None:
    assert is_silent(NAME, job(tmp_path, STYLES[style], 0.03))


def test_the_loop_of_a_library(tmp_path: Path) -> None:
    file = written(tmp_path, "\n\ntrainer.fit(model)\n\n")
    loop = (f"{LIB}/lightning/pytorch/loops/evaluation_loop.py", "_evaluation_step")
    assert found(NAME, of_rows(file, [(2, TORCH, 600), (3, loop, 400)])).where[0].line == 3


NO_VALIDATIONS = {
    "the target of a learner": """\
import torch
def learn(batch):
    q = net(batch)
    with torch.no_grad():
        best = net(batch).argmax(1)

        target = old(batch).gather(1, best)
""",
    "a rollout": """\
import torch
def rollout(env, obs):
    pi.eval()
    for _ in range(128):
        with torch.no_grad():
            move = pi(obs)

        obs, reward, done = env.step(move)
""",
    "an average of the weights": """\
import torch
def turn(x):
    y = model(x)
    with torch.no_grad():
        for p, q in pairs:

            p.lerp_(q, 0.1)
""",
}


@pytest.mark.parametrize("style", NO_VALIDATIONS)
def test_without_gradients_is_no_validation_yet(style: str, tmp_path: Path) -> None:
    assert is_silent(NAME, job(tmp_path, NO_VALIDATIONS[style], 0.4))


@pytest.mark.parametrize(("library", "is_model"), [(TORCH, True), (None, False)])
def test_a_name_counts_where_a_model_runs(
    library: tuple[str, str] | None, *, is_model: bool, tmp_path: Path
) -> None:
    # The other one looks at its arguments in a loop of Python.
    source = "def turn(x):\n    model(x)\n\ndef validate(x):\n    for n in x:\n        str(9)\n"
    file = written(tmp_path, source)
    watched = of_rows(file, [(2, TORCH, 700), (6, library, 300)])
    # The name of the function is the sample's.
    for chain in list(watched.job.stacks.chains):
        if chain.frames[0].line == 6:
            counts = watched.job.stacks.chains.pop(chain)
            frames = (chain.frames[0]._replace(function="validate"),)
            watched.job.stacks.chains[chain._replace(frames=frames)] = counts
    if is_model:
        assert found(NAME, watched).confidence is Confidence.HINTED
    else:
        assert is_silent(NAME, watched)


def test_once_in_a_window_says_little(tmp_path: Path) -> None:
    file = written(tmp_path, STYLES["a block"])
    rows = [(3, TORCH, 700), (7, TORCH, 300)]
    finding = found(NAME, of_rows(file, rows, {3: (1 << 30) - (1 << 9), 7: (1 << 9) - 1}))
    assert finding.severity is Severity.LOW
    assert finding.gain is not None
    assert finding.gain.low == 0
    assert finding.gain.high > 0.5


FILLS = {
    "no gradients": "if n % 9 == 0:\n        with torch.no_grad():\n            show(model)\n",
    "a function": "if n % 100 == 0:\n        validate(model)\n        print(n)\n",
    "a mode": "if (n + 1) % every == 0:\n        model.eval()\n        score = evaluate(model)\n",
}


@pytest.mark.parametrize("stray", [0, 2])
@pytest.mark.parametrize("style", FILLS)
def test_one_that_fills_all_that_was_seen_promises_nothing(
    style: str, stray: int, tmp_path: Path
) -> None:
    """Nobody knows when it began, and how long the steps between two of them take."""
    file = written(tmp_path, f"for n in data:\n    loss.backward()\n    {FILLS[style]}")
    # As it was come to, one step may have been there still.
    rows = [(5, TORCH, 1000 - stray), *([(2, TORCH, stray)] if stray else [])]
    watched = of_rows(file, rows, {5: (1 << 30) - 2, 2: 1})
    finding = found(NAME, watched)
    assert (finding.gain, finding.severity, finding.takes) == (
        None,
        Severity.LOW,
        pytest.approx(1, abs=0.01),
    )
    assert finding.title == "Validation took 100% of the main thread's time, once"
    assert [each.rule.id for each in diagnose(watched).findings] == [NAME]


def test_one_that_comes_again_and_again_takes_its_share(tmp_path: Path) -> None:
    file = written(tmp_path, f"for n in data:\n    loss.backward()\n    {FILLS['a function']}")
    some = sum(1 << n for n in range(0, 30, 5))
    finding = found(
        NAME, of_rows(file, [(5, TORCH, 950), (2, TORCH, 50)], {5: -1 % 2**30, 2: some})
    )
    assert finding.gain is not None
    assert finding.gain.low > 0.5


@pytest.mark.parametrize(
    "body",
    ["y = evaluate(model, b)", "with torch.no_grad():\n            y = model(b)", "validate(b)"],
)
def test_who_takes_its_share_of_the_data_does_so_in_steps(body: str, tmp_path: Path) -> None:
    source = f"for i, b in enumerate(loader):\n    if i % world == rank:\n        {body}\n"
    line = 2 + len(body.splitlines())
    watched = of_rows(written(tmp_path, source), [(line, TORCH, 1000)])
    assert is_silent(NAME, watched)
    assert not any("once" in (x.found.title or "") for x in diagnose(watched).findings)


def test_a_program_that_only_validates_does_so_in_steps(tmp_path: Path) -> None:
    source = "with torch.no_grad():\n    for n in data:\n        show(model)\n"
    assert is_silent(NAME, of_rows(written(tmp_path, source), [(3, TORCH, 1000)]))


def test_a_device_that_validates_too_gains_the_same(tmp_path: Path) -> None:
    stacks = job(tmp_path, STYLES["a block"], 0.3).job.stacks
    trace = answer({Slice.COMPUTE: 0.95, Slice.IDLE_DISPATCH: 0.05}, kind="gpu")
    watched = window(trace, stacks=stacks, facts={"torch": {"backend": "cuda"}}, inside=True)
    finding = found(NAME, watched)
    assert finding.gain is not None
    assert finding.gain.low > 0.2


def test_without_samples_it_cannot_judge() -> None:
    assert cannot_judge(NAME, window())


@pytest.mark.parametrize(("due", "is_found"), [("if n % 40 == 0:", True), ("if True:", False)])
def test_one_that_mostly_waits_may_wait_for_the_steps(
    due: str, *, is_found: bool, tmp_path: Path
) -> None:
    source = f"for n in data:\n    state = step(state, n)\n    {due}\n        evaluate(state)\n"
    source += "def evaluate(state):\n    return [loss_of(state, x) for x in held]\n"
    file = str(written(tmp_path, source))
    samples = StackSamples()
    samples.samples = 1000
    inside = CodeLine(f"{LIB}/jax/_src/pjit.py", 9, "cache_miss")
    frames = (CodeLine(file, 6, "evaluate"), CodeLine(file, 4, "<module>"))
    samples.count(Chain(frames, inside, inside), 600, 600, 590)
    samples.count(Chain((CodeLine(file, 2, "<module>"),), inside, inside), 400, 400, 100)
    watched = window(
        stacks=samples, lines=samples.lines(), facts={"jax": {"backend": "cpu"}}, inside=True
    )
    if not is_found:
        assert is_silent(NAME, watched)
        return
    finding = found(NAME, watched)
    assert finding.severity is Severity.LOW
    assert finding.gain is not None
    assert finding.gain.low == 0
    assert "at most 60%" in str(finding.title)
    assert finding.where[0].line == 4


# Line 3 trains, and line 7 runs the model where it learns nothing.
DUE = {
    "a function of another name, with gradients": """\
for n, (x, y) in enumerate(batches):
    loss = loss_of(model(x), y)
    loss.backward(); optimizer.step()
    if n % 20 == 19:
        print(n)
        for z in others:
            hits += (model(z).argmax(1) == labels).sum()
""",
    "by the clock": """\
while True:
    x, y = next(batches)
    params, state = renew(params, state, x, y)
    if time.time() - last > 30:
        last = time.time()

        pictures = draw(params, noise)
""",
    "a function that mostly returns": """\
def turn(x):
    loss = loss_of(model(x))
    loss.backward()
def look(step):
    if step % 50:
        return
    show(model(fixed))
""",
}


@pytest.mark.parametrize("style", DUE)
def test_what_is_due_and_runs_the_model(style: str, tmp_path: Path) -> None:
    finding = found(NAME, job(tmp_path, DUE[style], 0.6))
    assert finding.title == "What is due every few steps takes 60% of the main thread's time"
    assert finding.where[0].line == 7
    assert finding.confidence is Confidence.HINTED


def test_what_is_due_and_learns_or_waits_is_no_validation(tmp_path: Path) -> None:
    source = DUE["a function of another name, with gradients"]
    learning = source.replace("hits += (model(z)", "renew(model(z)).backward(); (x")
    assert is_silent(NAME, job(tmp_path, learning, 0.6))
    # To print a loss every few steps waits for the steps.
    file = written(tmp_path, source.replace("hits += (model(z).argmax(1) == ", "print(loss.item("))
    waits = (f"{LIB}/torch/_tensor.py", "tolist")
    assert is_silent(NAME, of_rows(file, [(3, TORCH, 400), (7, waits, 600)]))

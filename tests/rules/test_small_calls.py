"""A model called for a letter, a token or an observation at a time: batched, and not compiled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.rules.windows import answer, found, judge, stacks, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Found, NotChecked
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.rules.tiny_work import MANY_ROWS
from whyidle.monitor.runs.stacks import CodeLine, StackSamples
from whyidle.monitor.signals.window import Window

LETTERS: Final = """\
class Net:
    def forward(self, letter, state):
        return self.layer(letter), state

def train(name):
    for at in range(len(name)):
        out, state = net(name[at], state)
    loss(out).backward()
"""
TOKENS: Final = """\
class Decoder:
    def forward(self, token, state):
        for layer in self.layers:
            state = layer(token)
        return state

def answer(token):
    while token != END:
        state = decoder(token, state)
    loss(state).backward()
"""
GAMES: Final = """\
def forward(self, observation):
    return self.affine(observation)

def play(env):
    observation, _ = env.reset()
    for _ in range(1000):
        action = policy(observation)
        observation, reward, done, cut, _ = env.step(action)
"""
# In one call of the model: a compiler unrolls it.
UNROLLED: Final = """\
class Net:
    def forward(self, x):
        for at in range(x.shape[1]):
            state = self.cell(x[:, at], state)
        return state
"""


def small(  # noqa: PLR0917  what a job of small calls is made of
    folder: Path, source: str, line: int, calls: int = 6, each: int = 16, operator_s: float = 3e-6
) -> Window:
    """Return a window over a job of one layer, called so often, with so many operators each."""
    script = folder / "train.py"
    script.write_text(source)
    samples = StackSamples()
    if source:
        names = source.splitlines()
        above = [text.split("def ")[1].split("(")[0] for text in names[:line] if "def " in text]
        inside = CodeLine(str(script), line, above[-1])
        rows: list[tuple[CodeLine, tuple[CodeLine, ...], float]] = [
            (
                CodeLine("/lib/site-packages/torch/nn/modules/linear.py", 9, "forward"),
                (inside,),
                500,
            )
        ]
        if "env.step" in source:
            steps = next(n for n, text in enumerate(names, 1) if "env.step" in text)
            cart = CodeLine("/lib/site-packages/gymnasium/envs/cartpole.py", 9, "step")
            rows.append((cart, (CodeLine(str(script), steps, "play"),), 100))
        samples = stacks(*rows)
    counted = {
        "aten::linear": calls,
        "torch::autograd::AccumulateGrad": 2,
        "autograd::engine::evaluate_function: Addmm": calls * each / 3,
    }
    trace = answer({Slice.COMPUTE: 1.0}, calls=counted)
    trace["devices"][0]["kernels"] = 10 * calls * each
    step_s = calls * each * operator_s
    means = {m.JOB_STEPS: 1 / step_s, m.JOB_MAIN_THREAD: 1.0}
    facts = {"torch": {"backend": "cpu"}}
    return window(trace, means=means, facts=facts, stacks=samples, inside=True)


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        (LETTERS, 3, "Pad rows"),
        (TOKENS, 4, "Pad rows"),
        (GAMES, 2, "Run several environments"),
        # Of a job whose source is not there.
        ("", 0, "Pad rows"),
    ],
)
def test_many_at_once_and_nothing_compiled(
    source: str, line: int, words: str, tmp_path: Path
) -> None:
    job = small(tmp_path, source, line)
    finding = found("tiny_work", job)
    assert finding.title == "Each call of the model has too little to compute"
    assert finding.fixes is not None
    assert finding.fixes["pytorch"].text.startswith(words)
    assert judge("eager_launch_bound", job) is None


@pytest.mark.parametrize("source", [LETTERS, TOKENS, GAMES])
def test_small_calls_that_are_not_sure_to_be_overhead_are_still_many(
    source: str, tmp_path: Path
) -> None:
    """Between what surely computes nothing, and what surely does: one of the two rules speaks."""
    for operator_s in (3e-6, 11e-6, 15e-6):
        job = small(tmp_path, source, 3, operator_s=operator_s)
        verdicts = [judge(name, job) for name in ("tiny_work", "eager_launch_bound")]
        assert sum(isinstance(each, Found) for each in verdicts) == 1, operator_s
        # Nor is one of a large batch told to compile what is slower compiled.
        facts = {"torch": {"backend": "cpu", "batch_size": 256}}
        batched = replace(job, job=replace(job.job, facts=facts))
        assert judge("eager_launch_bound", batched) is None
    busy = small(tmp_path, source, 3, operator_s=60e-6)
    assert judge("tiny_work", busy) is None
    assert judge("eager_launch_bound", busy) is None


@pytest.mark.parametrize(
    ("source", "calls", "each"),
    [
        # A call of the model has the whole loop, enough operators, or is the only one in a step.
        (UNROLLED, 6, 16),
        (LETTERS, 6, 100),
        (LETTERS, 1, 16),
    ],
)
def test_a_compiler_has_something_to_hold(
    source: str, calls: int, each: int, tmp_path: Path
) -> None:
    job = small(tmp_path, source, 4 if source is UNROLLED else 3, calls, each)
    assert isinstance(judge("eager_launch_bound", job), Found)
    assert isinstance(judge("tiny_work", job), NotChecked)


def test_operators_that_go_through_a_row_by_themselves_are_no_calls(tmp_path: Path) -> None:
    job = small(tmp_path, LETTERS, 3)
    job.traces[0].answer["calls"].append(
        {"name": "aten::gru", "count": 10, "total_ns": 0, "per_step": 1.0}
    )
    assert isinstance(judge("tiny_work", job), NotChecked)


def test_the_rows_of_the_advice_end_where_they_end_one_by_one() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    cell = torch.nn.GRUCell(3, 5)

    def model(piece: object, state: object) -> tuple[object, object]:
        new = cell(piece, state)
        return new, new

    rows = [torch.randn(length, 3) for length in (2, 5, 4)]
    pad = torch.nn.utils.rnn.pad_sequence
    names = {"torch": torch, "pad_sequence": pad, "rows": rows, "state_size": 5, "model": model}
    exec(MANY_ROWS.code, names)
    for row, last in zip(rows, names["last"], strict=True):
        state = torch.zeros(1, 5)
        for piece in row:
            state = cell(piece[None], state)
        assert torch.allclose(state[0], last, atol=1e-6)

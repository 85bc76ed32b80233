"""The rule python_loop_over_batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.windows import (
    answer,
    cannot_judge,
    found,
    is_silent,
    judge,
    recorded,
    stacks,
    traced,
    window,
)
from whyidle.monitor.code.loops import over_samples
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Confidence, SourceLine
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.window import Window

NAME = "python_loop_over_batch"
FIXES = {
    "jax": (
        """
import jax
import jax.numpy as jnp
def loss_of_one(params, x, y):
    return (x @ params - y) ** 2
params, xs, ys = jnp.arange(3.0), jnp.ones((5, 3)), jnp.arange(5.0)
""",
        """
one_by_one = sum(loss_of_one(params, x, y) for x, y in zip(xs, ys)) / 5
assert jnp.allclose(loss_of_batch(params, xs, ys), one_by_one)
""",
    ),
    "pytorch": (
        """
import torch
model, xs, ys = torch.nn.Linear(3, 4), torch.randn(5, 3), torch.randn(5, 4)
def loss_of_one(out, y):
    return ((out - y) ** 2).sum()
""",
        """
assert torch.allclose(out, torch.stack([model(x) for x in xs]), atol=1e-6)
assert torch.allclose(losses, torch.stack([loss_of_one(o, y) for o, y in zip(out, ys)]))
""",
    ),
}
DISPATCH = {Slice.IDLE_DISPATCH: 0.8, Slice.COMPUTE: 0.2}
JAX = {"PjitFunction(loss_of_one)": 32.0, "PjitFunction(descend)": 1.0}
TORCH = {"AddmmBackward0": 96.0, "torch::autograd::AccumulateGrad": 6.0}
LOOP = """\
def step(model, x, y):
    losses = [loss(model(x[i]), y[i]) for i in range(len(x))]
    return torch.stack(losses).mean()
"""


def written(folder: Path, text: str, line: int) -> tuple[SourceLine, ...]:
    """Return a line of a program of the user's, where the main thread is."""
    file = folder / "train.py"
    file.write_text(text)
    return (
        SourceLine(str(file), line, "step", 0.9),
        SourceLine(str(file), len(text.splitlines()), "x", 0.05),
    )


@pytest.mark.parametrize(("framework", "calls"), [("jax", JAX), ("torch", TORCH)])
def test_a_loop_over_samples(tmp_path: Path, framework: str, calls: dict[str, float]) -> None:
    lines = written(tmp_path, LOOP, 2)
    trace = answer(DISPATCH, calls=calls)
    places = found(NAME, window(trace, facts={framework: {}}, lines=lines, inside=True))
    assert places.evidence[0].value == pytest.approx(32)
    assert places.where[0].line == 2
    assert places.gain is not None
    assert 0.6 < places.gain.low < places.gain.high < 0.96


@pytest.mark.parametrize(
    ("text", "line"),
    [
        # Over time, over layers, over steps, over gradients that are accumulated.
        ("for t in range(n):\n    h = cell(h, x[t])\n", 2),
        ("for layer in stack:\n    x = layer(x)\n", 2),
        ("for x in xs:\n    h = torch.cat((h, net(h, x)), 0)\n", 2),
        ("for x, y in loader:\n    loss = model(x)\n", 2),
        ("for x in parts:\n    loss = model(x)\n    loss.backward()\n", 2),
        ("for i in range(n):\n    params, loss = step(params, x[i])\n", 2),
        ("while step < n:\n    x, y = get_batch(step)\n    train(x, y)\n    opt.step()\n", 3),
        ("while not done:\n    h = cell(h, x)\n    done = h > 3\n", 2),
        # Over axes, over two views, over some streams: no samples.
        ("for k in range(2):\n    lap += grad(u[:, k].sum(), p)\n", 2),
        ("for axis, w in enumerate((0.5, 0.25)):\n    out.append(blur(x, axis) * w)\n", 2),
        ("for view, sign in zip([a, b], signs):\n    out.append(model(view))\n", 2),
        ("z = [encode(x, view) for view in reversed((front, side, top))]\n", 1),
        # Over the leaves of a tree, over parameters and what belongs to them.
        ("for path, g in tree_leaves_with_path(grads):\n    row[path] = float(norm(g))\n", 2),
        ("for g in jax.tree.leaves(state):\n    norms.append(float(jnp.linalg.norm(g)))\n", 2),
        ("for name, p in model.named_parameters():\n    log[name] = norm(p)\n", 2),
        ("for i, g in enumerate(zip(grads, params)):\n    out.append(ratio(g))\n", 2),
        ("for n, p in zip(names, model.parameters()):\n    log[n] = norm(p)\n", 2),
        ("for k, p in params.items():\n    norms[k] = norm(p)\n", 2),
        ("for k in range(-1, 2):\n    out.append(shifted(x, k))\n", 2),
        # No loop at all.
        ("loss = model(x)\n", 1),
    ],
)
def test_loops_that_have_to_be(tmp_path: Path, text: str, line: int) -> None:
    lines = written(tmp_path, text, line)
    job = {"facts": {"torch": {}}, "lines": lines, "inside": True}
    assert is_silent(NAME, window(answer(DISPATCH, calls=TORCH), **job))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("for i in range(n):\n    total = add(total, gradient(params, x[i]))\n", 2),
        ("for x, y in zip(xs, ys):\n    out.append(model(x))\n", 2),
        ("for x in xs:\n    total += loss(params, x)\n", 2),
        # What is put one after the other.
        ("for x in xs:\n    out = torch.cat((out, net(x)), 0)\n", 2),
        ("for x in xs:\n    y = net(x)\n    out = np.concatenate([out, y])\n", 2),
        ("for x in xs:\n    y = net(x)\n    all_y = jnp.vstack((all_y, y))\n", 2),
        ("for i in range(0, 64):\n    total += loss(params, x[i])\n", 2),
        ("for i in range(0, 64, 2):\n    total += loss(params, x[i])\n", 2),
        ("for x in [*xs]:\n    total += loss(params, x)\n", 2),
        # What a model gives, hyperparameters, numbers beyond all.
        ("for e, y in zip(model(xs), ys):\n    total = total + loss(e, y)\n", 2),
        ("for x in self.model.sample(64):\n    total += loss(params, x)\n", 2),
        ("for i in range(params.batch_size):\n    total += loss(net, x[i])\n", 2),
        ("for i in range(10**30):\n    total += loss(net, x[i])\n", 2),
        (f"for i in range({10**30}):\n    total += loss(net, x[i])\n", 2),
        # Few passes within many, and beside many.
        ("for i in range(n):\n    for k in range(2):\n        out.append(net(x[i], k))\n", 3),
        ("out = [net(x[i], v) for v in (a, b) for i in range(n)]\n", 1),
        ("for x, w in zip(xs, weights):\n    total += w * loss(params, x)\n", 2),
        ("i = 0\nwhile i < len(xs):\n    out.append(model(xs[i]))\n    i += 1\n", 3),
        ("while i < n:\n    out.append(\n        model(x[i : i + 1])\n    )\n    i += 1\n", 3),
    ],
)
def test_loops_that_only_gather(tmp_path: Path, text: str, line: int) -> None:
    places = over_samples(written(tmp_path, text, line))
    assert places is not None
    assert places.share >= 0.9


def test_each_parameter_takes_part_once(tmp_path: Path) -> None:
    lines = written(tmp_path, LOOP, 2)
    calls = {"AddmmBackward0": 3.0, "torch::autograd::AccumulateGrad": 6.0}
    job = {"facts": {"torch": {}}, "lines": lines, "inside": True}
    assert is_silent(NAME, window(answer(DISPATCH, calls=calls), **job))


def test_gradients_of_gradients_go_back_through_the_same_layers(tmp_path: Path) -> None:
    lines = written(tmp_path, LOOP, 2)
    # Two points of view on four layers, and three passes back through what came back.
    back = {"AddmmBackward0": 17.0, "MmBackward0": 21.0, "torch::autograd::AccumulateGrad": 8.0}

    def seen(calls: dict[str, float]) -> Window:
        trace = answer(DISPATCH, calls={**back, **calls})
        return window(trace, facts={"torch": {}}, lines=lines, inside=True)

    assert is_silent(NAME, seen({"aten::linear": 8.0, "aten::addmm": 8.0}))
    # A layer of each sample has as many forward.
    assert found(NAME, seen({"aten::linear": 38.0, "aten::addmm": 17.0}))
    # Of a list that has none of them nothing is known.
    assert found(NAME, seen({}))


def test_what_is_missing() -> None:
    assert cannot_judge(NAME, window())
    trace = answer(DISPATCH, calls=TORCH)
    assert cannot_judge(NAME, window(trace, facts={"torch": {}}))
    gone = (SourceLine("/not/there.py", 2, "step", 0.9),)
    assert cannot_judge(NAME, window(trace, facts={"torch": {}}, lines=gone))


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_the_recorded_pairs(framework: str) -> None:
    places = found(NAME, recorded(f"{NAME}/before_{framework}"))
    assert places.where[0].file.endswith(f"{NAME}/before_{framework}.py")
    assert is_silent(NAME, recorded(f"{NAME}/after_{framework}"))


def test_another_fault() -> None:
    assert is_silent(NAME, recorded("unjitted_step/before_jax"))


def test_a_healthy_trace() -> None:
    assert is_silent(NAME, traced("h100_qwen05b"))


def test_a_function_that_is_called_now_and_then(tmp_path: Path) -> None:
    # An accuracy in one of ten steps makes no loop of the others.
    lines = written(tmp_path, LOOP, 2)
    rare = {"PjitFunction(step)": 1.0, "PjitFunction(accuracy)": 0.1}
    job = {"facts": {"jax": {}}, "lines": lines, "inside": True}
    for steps in (10, 0):
        trace = answer(DISPATCH, calls=rare)
        trace["calls"][0]["total_ns"] = 10**9
        trace["steps"] = trace["steps"] | {"count": steps}
        assert judge(NAME, window(trace, **job)) is None


def test_the_jobs_own_pace_tells_how_often_a_function_runs_in_a_step(tmp_path: Path) -> None:
    lines = written(tmp_path, LOOP, 2)
    # One function takes the most time and runs the most: by itself it looks like the step.
    trace = answer(DISPATCH, steps=100, step_ms=0.5, calls={"PjitFunction(act)": 1.0})
    trace["calls"][0]["total_ns"] = 10**7
    trace["steps"] = trace["steps"] | {"count": 0}
    job = {"facts": {"jax": {}}, "lines": lines, "inside": True}
    assert judge(NAME, window(trace, **job)) is None
    places = found(NAME, window(trace, means={m.JOB_STEP_P50: 0.05}, **job))
    assert places.evidence[0].value == pytest.approx(100)
    # Steps of a fast job have it once each.
    assert judge(NAME, window(trace, means={m.JOB_STEP_P50: 0.0005}, **job)) is None


def test_the_evidence_names_what_is_called(tmp_path: Path) -> None:
    lines = written(tmp_path, LOOP, 2)
    trace = answer(DISPATCH, calls=JAX)
    places = found(NAME, window(trace, facts={"jax": {}}, lines=lines, inside=True))
    assert places.evidence[0].name == "calls of 'loss_of_one' in a step"


DEEP = """\
def fit(self, data):
    for batch in data:
        self.learn(batch)

def learn(self, batch):
    losses = []
    for sample in batch:
        losses.append(self.loss_of(sample))
    loss = torch.stack(losses).mean()
    loss.backward()

def loss_of(self, sample):
    return self.net(sample).square().mean()
"""
HEALTHY = """\
def fit(self, data):
    for batch in data:
        self.learn(batch)

def learn(self, batch):
    loss = self.loss_of(batch)
    loss.backward()

def loss_of(self, batch):
    return self.net(batch).square().mean()
"""
RENEWED = """\
def fit(self, data):
    for batch in data:
        self.learn(batch)

def learn(self, batch):
    self.state, loss = self.train(self.state, batch)
    average = tree.map(blend, average, self.state.params)
"""


def stacked(
    file: Path, *rows: tuple[tuple[int, ...], float]
) -> list[tuple[tuple[CodeLine, ...], float]]:
    return [(tuple(CodeLine(str(file), n, "f") for n in lines), share) for lines, share in rows]


def test_a_loop_whose_body_is_in_another_function(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(DEEP)
    found = over_samples((), stacked(file, ((13, 8, 3), 0.6), ((10, 3), 0.3), ((3,), 0.1)))
    assert found is not None
    # The pass back through what the loop has made is the loop's as well.
    assert found.share == pytest.approx(0.9)
    assert [place.line for place in found.where] == [8]


PLAYS = """\
def play(agent, site):
    visitors = site.visitors(256)
    arms = [int(agent.choose(each)) for each in visitors]
    return site.clicks(visitors, arms)

class Agent:
    def choose(self, context):
        self.key, key = {}
        return self.act(self.params, context, key)
"""


@pytest.mark.parametrize(
    ("renewed", "is_over_samples"),
    [
        ("jax.random.split(self.key)", True),
        ("random.fold_in(self.key, 1), self.key", True),
        ("self.advance(self.key)", False),
    ],
)
def test_a_key_for_random_numbers_is_no_state_of_training(
    tmp_path: Path, renewed: str, is_over_samples: bool
) -> None:
    file = tmp_path / "train.py"
    file.write_text(PLAYS.format(renewed))
    found = over_samples((), stacked(file, ((8, 3), 0.3), ((9, 3), 0.6)))
    assert found is not None
    assert found.share == pytest.approx(0.9 if is_over_samples else 0.0)


def test_what_a_pass_calls_may_renew_its_own_variables(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    layers = "    x = relu(self.first(x))\n    return self.second(x)\n"
    file.write_text(
        DEEP.replace("    return self.net(sample).square().mean()\n", layers.replace("x", "sample"))
    )
    found = over_samples(
        (), stacked(file, ((13, 8, 3), 0.5), ((14, 8, 3), 0.2), ((10, 3), 0.2), ((3,), 0.1))
    )
    assert found is not None
    assert found.share == pytest.approx(0.9)
    assert [place.line for place in found.where] == [8]


def test_a_validation_goes_through_batches(tmp_path: Path) -> None:
    text = LOOP.replace("def step(", "def {}(")
    facts = {"torch": {"backend": "cpu"}}
    linear = CodeLine("/env/lib/python3.11/site-packages/torch/nn/modules/linear.py", 5, "forward")

    def job(name: str) -> Window:
        lines = written(tmp_path, text.format(name), 2)
        training = CodeLine(str(tmp_path / "train.py"), 3, "fit")
        line = CodeLine(str(tmp_path / "train.py"), 2, name)
        seen = stacks((linear, (line,), 40), (linear, (training,), 50))
        return window(facts=facts, lines=lines, looks=90, stacks=seen)

    assert is_silent(NAME, job("evaluate"))
    assert found(NAME, job("losses_of")).where[0].line == 2


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (HEALTHY, (((10, 6, 3), 0.5), ((7, 3), 0.4), ((3,), 0.1))),
        (RENEWED, (((6, 3), 0.5), ((7, 3), 0.5))),
    ],
)
def test_a_loop_over_batches_in_another_function(
    tmp_path: Path, text: str, rows: tuple[tuple[tuple[int, ...], float], ...]
) -> None:
    file = tmp_path / "train.py"
    file.write_text(text)
    found = over_samples((), stacked(file, *rows))
    assert found is not None
    assert found.share == 0


def test_samples_that_are_scored_without_gradients(tmp_path: Path) -> None:
    lines = written(tmp_path, LOOP, 2)
    calls = {"aten::linear": 32.0 * 3 + 3, "AddmmBackward0": 3.0}
    calls["torch::autograd::AccumulateGrad"] = 6.0
    trace = answer(DISPATCH, calls=calls)
    finding = found(NAME, window(trace, facts={"torch": {}}, lines=lines, inside=True))
    assert finding.evidence[0].value == pytest.approx(33)


ONCE = {"aten::linear": 3.0, "torch::autograd::AccumulateGrad": 6.0}
OFTEN = ("pow", "mean", "sqrt", "abs", "norm", "topk", "sigmoid", "mul", "relu", "lerp_", "to")


def small(
    folder: Path,
    text: str,
    line: int,
    share: float = 0.3,
    step_ms: float = 10.0,
    **calls: float,
) -> Window:
    """Return a job in such a line, with a trace in which each operation runs so often in a step."""
    # What a file says is remembered.
    file = folder / f"train_{len(text)}.py"
    file.write_text(f"{text}loss.backward()\n")
    last = len(text.splitlines()) + 1
    lines = (
        SourceLine(str(file), line, "step", share),
        SourceLine(str(file), last, "step", 1 - share),
    )
    ran = {(n if n[0].isupper() else f"aten::{n}"): count for n, count in calls.items()}
    ran |= {f"autograd::engine::evaluate_function: {n}": c for n, c in ran.items() if "Back" in n}
    trace = answer(DISPATCH, calls=ONCE | ran, step_ms=step_ms)
    job = {"facts": {"torch": {}}, "lines": lines, "inside": True}
    return window(trace, **job)


@pytest.mark.parametrize(
    ("text", "line", "rarest"),
    [
        ("for row in rows:\n    out.append(torch.mean(row.float().pow(2)).sqrt())\n", 2, "mean"),
        ("while k < len(a):\n    d.append(torch.abs(a[k] - b[k]).sum())\n    k += 1\n", 2, "abs"),
        ("for row in rows:\n    out.append(row.float().pow(2).mean().sqrt())\n", 2, "mean"),
        ("worst = [torch.topk(row, 3).values for row in image_batch]\n", 1, "topk"),
        ("scores = torch.stack([torch.norm(row) for row in rows])\n", 1, "norm"),
    ],
)
def test_what_is_computed_of_each_sample_without_a_layer(
    tmp_path: Path, text: str, line: int, rarest: str
) -> None:
    calls = {**dict.fromkeys(OFTEN, 40.0), rarest: 33.0, "MeanBackward1": 1.0, "stack": 1.0}
    if rarest == "mean":
        calls["mean"] = 34.0
    finding = found(NAME, small(tmp_path, text, line, **calls))
    assert finding.evidence[0].name == f"calls of '{rarest}' in a step"
    assert finding.evidence[0].value == pytest.approx(33, abs=1)
    # What goes back is not of the loop.
    assert finding.evidence[1].value == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        # Over the model itself.
        ("for p in model.parameters():\n    norms.append(p.grad.norm())\n", 2),
        ("for p, g in zip(params, grads):\n    norms.append(torch.norm(p, g))\n", 2),
        ("norms = [w.norm() for w in weights]\n", 1),
        ("for e, p in zip(self.shadow, self.live):\n    e.lerp_(p, 0.01)\n", 2),
        # Each pass needs the one before.
        ("for t in range(n):\n    a = torch.sigmoid(g[:, t])\n    h = a * h + x[:, t]\n", 2),
        ("for t in range(n):\n    h = h.mul(x[t]).abs()\n", 2),
        # No operation of samples.
        ("for metric in metrics:\n    found.append(metric.compute())\n", 2),
        ("images, targets = [t.to(device, non_blocking=True) for t in pair]\n", 1),
    ],
)
def test_small_loops_over_something_else(tmp_path: Path, text: str, line: int) -> None:
    assert is_silent(NAME, small(tmp_path, text, line, **dict.fromkeys(OFTEN, 40.0)))


def test_operations_of_the_model_are_not_the_loops(tmp_path: Path) -> None:
    # Four levels of a pyramid, beside a model that has the same operation often.
    text = "levels = [F.relu(conv(f)) for f in features]\n"
    assert is_silent(NAME, small(tmp_path, text, 1, relu=28.0, ReluBackward0=28.0))
    text = "for k in range(n):\n    out.append(crop(x, k).mean())\n"
    assert is_silent(NAME, small(tmp_path, text, 2, mean=4.0))
    assert is_silent(NAME, small(tmp_path, text, 2, mean=36.0, MeanBackward1=32.0))
    assert found(NAME, small(tmp_path, text, 2, mean=64.0, MeanBackward1=32.0)).where[0].line == 2
    text = "for row in rows:\n    out.append(torch.log_softmax(row, 0))\n"
    assert is_silent(NAME, small(tmp_path, text, 2, log_softmax=32.0, LogSoftmaxBackward0=32.0))


POOLED = """\
for g in range(graphs):
    atoms = h[owner == g]
    pooled.append(torch.cat([atoms.mean(0), atoms.amax(0)]))
"""
PIECES = {"mean": 33.0, "amax": 32.0, "IndexBackward0": 40.0, "MeanBackward1": 32.0}


@pytest.mark.parametrize(
    ("text", "line", "calls"),
    [
        (POOLED, 3, PIECES),
        ("for i in range(n):\n    s.append(F.mse_loss(out[i, : k[i]], y[i]))\n", 2,
         {"mse_loss": 32.0, "SliceBackward0": 32.0, "SelectBackward0": 32.0}),
        ("parts = [torch.softmax(x[a:b], 0) for a, b in spans]\n", 1,
         {"softmax": 32.0, "SliceBackward0": 33.0}),
    ],
)  # fmt: skip
def test_pieces_of_a_batch_that_gradients_come_back_through(
    tmp_path: Path, text: str, line: int, calls: dict[str, float]
) -> None:
    finding = found(NAME, small(tmp_path, text, line, **calls))
    assert finding.evidence[0].value == pytest.approx(32)
    assert finding.where[0].line == line
    assert finding.gain is not None
    # The pass back through it is a part of what follows, which a trace without times leaves open.
    assert finding.gain.low < 0.3 < finding.gain.high


@pytest.mark.parametrize(
    ("text", "line", "calls"),
    [
        # Heads and experts have parameters of their own, and are called by name.
        ("for head in self.heads:\n    out.append(torch.softmax(head(x), -1))\n", 2, PIECES),
        # A model that takes many pieces in one call of each, and never in a loop.
        ("q, k, v = qkv[0], qkv[1], qkv[2]\nw = torch.softmax(q @ k, -1)\n", 2, PIECES),
        # Some classes, or levels: nothing to speak of.
        (POOLED, 3, {"mean": 4.0, "amax": 4.0, "IndexBackward0": 4.0}),
        # What the rest of the model takes by places is not this loop's.
        ("for row in rows:\n    out.append(row.mean())\n", 2, PIECES | {"MeanBackward1": 33.0}),
        # Each pass needs the one before.
        ("for t in range(n):\n    h = torch.tanh(h + x[:, t].mean(1))\n", 2, PIECES),
        ("for t in range(n):\n    h.append(torch.softmax(h[t] + x[:, t], 0))\n", 2, PIECES),
        ("for t in range(1, n):\n    h[t] = torch.mean(h[t - 1] + x[t])\n", 2, PIECES),
        # Experts and heads again, by their places.
        ("for k in range(n):\n    out.append(self.heads[k](h[k]).mean())\n", 2, PIECES),
        (
            "for e in range(n):\n    out.append(self.up[e](x[torch.where(m[e])]).mean())\n",
            2,
            PIECES,
        ),
    ],
)
def test_pieces_of_something_else(
    tmp_path: Path, text: str, line: int, calls: dict[str, float]
) -> None:
    assert is_silent(NAME, small(tmp_path, text, line, **calls))


def test_a_slice_of_all_samples_is_a_batch(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "for i in range(0, len(images), 64):\n"
        "    x = images[i : i + 64]\n"
        "    loss = learn(network, x)\n"
    )
    looping = over_samples((), stacked(file, ((3,), 0.9)))
    assert looping is not None
    assert looping.share == 0


def test_how_long_the_pass_back_takes_is_seen_in_a_trace(tmp_path: Path) -> None:
    job = small(tmp_path, POOLED, 3, **PIECES)
    trace = dict(job.traces[0].answer)
    node = "autograd::engine::evaluate_function: IndexBackward0"
    timed = [c | {"total_ns": 25_000_000} if c["name"] == node else c for c in trace["calls"]]
    # Of a trace with hundreds of kinds of calls the rarest are left out, and its steps with them.
    trace |= {
        "calls": timed,
        "steps": trace["steps"] | {"count": 0},
        "budget": trace["budget"] | {"steps": 0},
    }
    known = {"means": {m.JOB_STEP_P50: 0.01}, "facts": {"torch": {}}, "lines": job.job.lines}
    shown = found(NAME, window(trace, inside=True, **known))
    assert shown.evidence[0].value == pytest.approx(32)
    # Of 40 pieces that are taken 32 are the loop's.
    assert shown.evidence[1].value == pytest.approx(0.3 + 0.25 * 32 / 40)


def test_the_place_that_a_result_goes_to_is_no_state(tmp_path: Path) -> None:
    text = (
        "def pick(obs, keys):\n"
        "    for g in range(len(obs)):\n"
        "        {} = int(choose(obs[g], {}))\n"
    )
    for target, key, share in (("moves[g]", "keys[g]", 0.6), ("moves[g]", "moves[g - 1]", 0)):
        file = tmp_path / f"train_{share}.py"
        file.write_text(text.format(target, key))
        looping = over_samples((), stacked(file, ((3,), 0.6)))
        assert looping is not None
        assert looping.share == pytest.approx(share)


def test_a_pass_that_computes_much_gains_nothing_by_a_batch(tmp_path: Path) -> None:
    text = "for row in rows:\n    out.append(torch.sqrt(heavy(row)))\n"
    assert is_silent(NAME, small(tmp_path, text, 2, step_ms=1000.0, sqrt=32.0))
    assert found(NAME, small(tmp_path, text, 2, step_ms=20.0, sqrt=32.0)).gain is not None


def test_another_loop_beside_it_hides_nothing(tmp_path: Path) -> None:
    text = (
        "for row in rows:\n    out.append(row.pow(2))\n"
        "more = [F.mse_loss(a, b) for a, b in zip(some, others)]\n"
    )
    job = small(tmp_path, text, 2, pow=32.0, mse_loss=3.0)
    lines = (*job.job.lines, SourceLine(job.job.lines[0].file, 3, "step", 0.01))
    trace = dict(job.traces[0].answer)
    both = window(trace, facts={"torch": {}}, lines=lines, inside=True)
    assert [place.line for place in found(NAME, both).where] == [2]


def test_without_a_trace_the_samples_say_that_the_loop_calls_the_framework(tmp_path: Path) -> None:
    line = CodeLine(str(tmp_path / "train.py"), 2, "step")
    lines = written(tmp_path, LOOP, 2)
    packages = "/env/lib/python3.11/site-packages"
    linear = CodeLine(f"{packages}/torch/nn/modules/linear.py", 5, "forward")
    array = CodeLine(f"{packages}/numpy/_core/numeric.py", 5, "roll")
    facts = {"torch": {"backend": "cpu"}}
    calls, others = (stacks((leaf, (line,), 90)) for leaf in (linear, array))
    finding = found(NAME, window(facts=facts, lines=lines, looks=90, stacks=calls))
    assert finding.confidence is Confidence.INFERRED
    assert finding.gain is not None
    # How often the loop goes round is not known: eight times at least.
    assert 1 - finding.gain.low > 1 / 8 > 1 - finding.gain.high
    assert is_silent(NAME, window(facts=facts, lines=lines, looks=90, stacks=others))


def _sampled(lines: tuple[SourceLine, ...], facts: dict[str, dict[str, object]]) -> Window:
    """Return a window without a trace: the thread is in a layer that the first line calls."""
    line = CodeLine(lines[0].file, lines[0].line, "step")
    layer = CodeLine("/v/site-packages/torch/nn/modules/linear.py", 5, "forward")
    return window(facts=facts, lines=lines, looks=90, stacks=stacks((layer, (line,), 90)))


PYRAMID = """\
def forward(self, features):
    found = torch.cat([self.head(feature) for feature in features], dim=1)
    return found
"""
APPENDED = """\
def step(xs):
    out = []
    for x in xs:
        out.append(model(x))
    return out
"""


@pytest.mark.parametrize(
    ("text", "line", "batch"),
    [
        # A list of results, a loop that appends them, a batch of a size that nobody knows.
        (LOOP, 2, 64),
        (APPENDED, 4, 8),
        (APPENDED, 4, None),
        # Levels of a pyramid look alike in a batch that may be gone through.
        (PYRAMID, 2, 16),
    ],
)
def test_without_a_trace_a_loop_over_a_batch_is_found(
    tmp_path: Path, text: str, line: int, batch: int | None
) -> None:
    facts = {"torch": {"backend": "cpu", "batch_size": batch}}
    lines = written(tmp_path, text, line)
    assert found(NAME, _sampled(lines, facts)).where[0].line == line


READS_ITS_SAMPLES = {
    "pictures of a folder": """\
for path in folder.glob("*.png"):
    x = to_tensor(Image.open(path))
    y = model(x[None])
    save_image(y, path.name)
""",
    "OpenCV": """\
for path in paths:
    x = cv2.imread(path)
    y = model(torch.from_numpy(x))
    cv2.imwrite(path, y.numpy())
""",
    "sound": """\
for name in names:
    x, rate = soundfile.read(name)
    out = model(torch.tensor(x))
    keep(out)
""",
    "arrays": """\
for n in range(len(files)):
    x = torch.from_numpy(np.load(files[n]))
    y = model(x)
    results.append(y)
""",
}


@pytest.mark.parametrize("text", READS_ITS_SAMPLES.values(), ids=READS_ITS_SAMPLES)
def test_what_reads_its_samples_itself_goes_through_the_data(tmp_path: Path, text: str) -> None:
    facts: dict[str, dict[str, object]] = {"torch": {"backend": "cpu"}}
    assert is_silent(NAME, _sampled(written(tmp_path, text, 3), facts))
    # What reads nothing goes through a batch that is there.
    batch = "\n".join(["for x in xs:", "    seen = 1", *text.splitlines()[2:]]) + "\n"
    (there := tmp_path / "there").mkdir()
    lines = written(there, batch, 3)
    assert found(NAME, _sampled(lines, facts)).where[0].line == 3


@pytest.mark.parametrize(
    "text",
    [
        'for x in torch.load("b.pt"):\n    out.append(1)\n    y = model(x[None])\n    keep(y)\n',
        'for x in xs:\n    seen = 1\n    y = model(x)\n    open(f"{x}.txt", "w").write(str(y))\n',
        "for x in xs:\n    seen = self.memory.read(x)\n    y = model(x)\n    keep(y)\n",
        "for x in xs:\n    seen = np.load(path)\n    y = model(x)\n    keep(y)\n",
    ],
    ids=["all of it once", "writes", "no file", "the same file"],
)
def test_a_batch_that_is_there_is_gone_through_whatever_else_is_read(
    tmp_path: Path, text: str
) -> None:
    facts: dict[str, dict[str, object]] = {"torch": {"backend": "cpu"}}
    assert found(NAME, _sampled(written(tmp_path, text, 3), facts)).where[0].line == 3


def test_a_loop_of_more_passes_than_the_batch_has_samples_needs_a_trace(tmp_path: Path) -> None:
    facts = {"torch": {"backend": "cpu", "batch_size": 2}}
    lines = written(tmp_path, PYRAMID, 2)
    assert cannot_judge(NAME, _sampled(lines, facts))
    # A trace counts the passes of a loop through something else than the batch: pieces of a sample.
    trace = answer(DISPATCH, calls=TORCH)
    assert found(NAME, window(trace, facts=facts, lines=lines, inside=True)).where[0].line == 2
    # The healthy twin: each layer is called for five levels at most.
    calls = {"ConvolutionBackward0": 12.0, "torch::autograd::AccumulateGrad": 6.0}
    few = answer(DISPATCH, calls=calls)
    assert is_silent(NAME, window(few, facts=facts, lines=lines, inside=True))


@pytest.mark.parametrize("text", ["list(map(score, rows))", "list(map(score, rows, labels))"])
def test_map_is_the_loop_that_it_stands_for(tmp_path: Path, text: str) -> None:
    file = tmp_path / "train.py"
    file.write_text(f"def scores(rows, labels):\n    return {text}\n")
    found = over_samples((), stacked(file, ((2,), 0.7)))
    assert found is not None
    assert found.share == pytest.approx(0.7)


def test_a_small_loop_is_not_what_the_pass_back_goes_through(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "def step(rows):\n    xs = [put(row) for row in rows]\n    loss(xs).backward()\n"
    )
    found = over_samples((), stacked(file, ((2,), 0.01), ((3,), 0.9)))
    assert found is not None
    assert found.share == pytest.approx(0.04)


@pytest.mark.parametrize(
    ("leaf", "is_there"),
    [
        ("tensorflow/python/eager/execute.py", False),
        ("tensorflow/python/ops/gen_math_ops.py", True),
    ],
)
def test_a_loop_that_calls_a_graph_in_each_pass_goes_through_batches(
    tmp_path: Path, leaf: str, is_there: bool
) -> None:
    file = tmp_path / "train.py"
    file.write_text("import tensorflow as tf\nfor x, y in data:\n    loss = loss_of(x, y)\n")
    line = CodeLine(str(file), 3, "<module>")
    samples = stacks((CodeLine(f"/x/site-packages/{leaf}", 53, "quick_execute"), (line,), 1000))
    said = {"tensorflow": {"backend": "cpu", "functions": 2}}
    job = window(
        stacks=samples,
        lines=(SourceLine(str(file), 3, "<module>", 1.0),),
        facts=said,
        inside=True,
    )
    if is_there:
        assert found(NAME, job).where[0].line == 3
    else:
        assert is_silent(NAME, job)


@pytest.mark.parametrize(("waited", "is_fault"), [(0.1, True), (0.9, False)])
def test_who_waits_in_the_loop_has_launched_enough(
    waited: float, *, is_fault: bool, tmp_path: Path
) -> None:
    file = tmp_path / "train.py"
    file.write_text("def score(held):\n    return [loss_of(x, y) for x, y in held]\n")
    line = CodeLine(str(file), 2, "score")
    site = "/venv/lib/python3.11/site-packages/jax/_src/pjit.py"
    samples = stacks((CodeLine(site, 9, "cache_miss"), (line,), 900), waited=waited)
    watched = window(
        stacks=samples, lines=samples.lines(), facts={"jax": {"backend": "cpu"}}, inside=True
    )
    assert (judge(NAME, watched) is not None) is is_fault


DUE = {
    "an iterator of one's own": """\
def evaluate(model, data_iter):
    with torch.no_grad():
        for texts, labels in data_iter:
            outputs = model(texts)
    return outputs
def train(model, train_iter, dev_iter):
    for n, (trains, labels) in enumerate(train_iter):
        loss_of(model(trains), labels).backward()
        optimizer.step()
        if n % 100 == 0:
            evaluate(model, dev_iter)
""",
    "a list of pairs": """\
def evaluate(model, pairs):
    return [model(x) for x, y in pairs]
def train(model, batches, held_out):
    for n, (x, y) in enumerate(batches):
        loss_of(model(x), y).backward()
        optimizer.step()
        if (n + 1) % 500 == 0:
            evaluate(model, held_out)
""",
    "a method, each epoch": """\
class Trainer:
    def validate(self):
        for x, y in self.held_out:
            self.metric(self.model(x), y)
    def fit(self):
        for epoch in range(1000):
            for x, y in self.batches:
                self.step(x, y).backward()
            if epoch % self.every == 0:
                self.validate()
""",
}


@pytest.mark.parametrize("style", DUE)
def test_a_window_of_a_validation_alone_says_nothing_of_its_batches(
    style: str, tmp_path: Path
) -> None:
    text = DUE[style]
    file, every = tmp_path / "train.py", text.splitlines()
    file.write_text(text)
    at = next(n for n, each in enumerate(every, 1) if "model(" in each)
    due = next(
        n for n, each in enumerate(every, 1) if each.strip().startswith(("evaluate(", "self.v"))
    )
    line = CodeLine(str(file), at, "validate" if "class" in text else "evaluate")
    around = CodeLine(str(file), due, "fit" if "class" in text else "train")
    layer = CodeLine("/v/site-packages/torch/nn/modules/linear.py", 5, "forward")
    lines = (SourceLine(str(file), at, line.function, 1.0),)
    facts = {"torch": {"backend": "cpu"}}
    seen = stacks((layer, (line, around), 90))
    assert is_silent(NAME, window(facts=facts, lines=lines, looks=90, stacks=seen))


def test_who_only_predicts_one_by_one_is_told_all_the_same(tmp_path: Path) -> None:
    text = "def evaluate(model, xs):\n    return [model(x) for x in xs]\nevaluate(model, xs)\n"
    lines = written(tmp_path, text, 2)
    assert found(NAME, _sampled(lines, {"torch": {"backend": "cpu"}})).where[0].line == 2


def test_what_is_due_in_a_program_that_trains_nothing_is_told(tmp_path: Path) -> None:
    text = (
        "def watch(frames):\n    for n, frame in enumerate(frames):\n        if n % 30 == 0:\n"
        "            found.append([model(c) for c in crops(frame)])\n"
    )
    lines = written(tmp_path, text, 4)
    assert found(NAME, _sampled(lines, {"torch": {"backend": "cpu"}})).where[0].line == 4

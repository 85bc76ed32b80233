"""Values that are read, and what is done with them."""

from __future__ import annotations

import pytest

from tests.fixes.programs import change, refused

LOOP = """
import jax
import jax.numpy as jnp
import numpy as np
import torch
{begin}
for step in range(1000):
    params, loss = update(params, step)
    {line}
    if step % 100 == 0:
        {shown}
{end}
"""


def loop(line: str, shown: str = "pass", begin: str = "", end: str = "") -> str:
    return LOOP.format(line=line, shown=shown, begin=begin, end=end)


# Read where it is shown --------------------------------------------------------------------------
@pytest.mark.parametrize(("line", "shown"), [
    ("value = loss.item()", "print(value)"),
    ("seen = float(np.asarray(loss).mean())", 'print(f"{step}: {seen:.3f}")'),
    ("last.append(jax.device_get(loss))", "print(last[-1])"),
])  # fmt: skip
def test_read_where_it_is_shown(line: str, shown: str) -> None:
    _, new = change("reads_when_shown", loop(line, shown, "last = []"), line)
    assert new == ["if step % 100 == 0:", line]


@pytest.mark.parametrize(("line", "shown", "end"), [
    ("value = loss.item()", "print(value)", "print(value)"),
    ("last.append(float(loss))", "print(sum(last))", ""),
    ("value = next(losses)", "print(value)", ""),
    ("value = loss.item()", "pass", ""),
])  # fmt: skip
def test_needed_in_each_step(line: str, shown: str, end: str) -> None:
    assert refused("reads_when_shown", loop(line, shown, "last = []", end), line)


def test_a_condition_that_changes_in_between() -> None:
    assert "changes" in refused(
        "reads_when_shown",
        """
import torch
n = 0
while n < 100:
    loss.backward()
    value = loss.item()
    n += 1
    if n % 10 == 0:
        print(value)
""",
        "item",
    )


# Summed on the device ----------------------------------------------------------------------------
@pytest.mark.parametrize(("line", "shown", "new"), [
    ("total += float(loss)", 'print(f"{total / 100:.3f}")',
     ["total += loss.detach()", 'print(f"{float(total) / 100:.3f}")']),
    ("total += loss.item()", "print(float(total)); total = 0.0", ["total += loss.detach()"]),
    ("total += (2 * loss).item()", "log(total)", ["total += (2 * loss).detach()", "log(float(total))"]),
])  # fmt: skip
def test_summed_on_the_device(line: str, shown: str, new: list[str]) -> None:
    assert change("sum_on_device", loop(line, shown, "total = 0.0"), line)[1] == new


def test_hits_stay_whole_numbers() -> None:
    _, new = change("sum_on_device", loop(
        "hits += (pred == y).sum().item()", "pass", "hits = 0", "print(hits, n)"
    ), "hits +=")  # fmt: skip
    assert new == ["hits += (pred == y).sum().detach()", "print(int(hits), n)"]


@pytest.mark.parametrize(("line", "begin", "end"), [
    ("total += loss.item()", "total = 0", ""),
    ("total += float(loss); print(total)", "total = 0.0", ""),
    ("self.total += float(loss)", "", ""),
    ("total += float(loss)", "total = start()", ""),
    ("total += loss.item()", "from torch import bfloat16\ntotal = 0.0", ""),
])  # fmt: skip
def test_a_sum_that_must_be_read(line: str, begin: str, end: str) -> None:
    assert refused("sum_on_device", loop(line, "pass", begin, end), line)


# Looked at less often ----------------------------------------------------------------------------
@pytest.mark.parametrize("line", [
    "print(loss.item())",
    'print(f"{float(loss):.4f}", end="")',
    "norms = {n: p.norm().item() for n, p in model.named_parameters()}",
    "writer.add_scalar('loss', loss.item(), step)",
])  # fmt: skip
def test_looked_at_less_often(line: str) -> None:
    _, new = change("watched_less_often", loop(line), line)
    assert new == ["if step % 100 == 0:", line]


def test_what_feeds_a_line_goes_with_it() -> None:
    _, new = change(
        "watched_less_often",
        """
import torch
def main():
    for x, y in loader:
        loss = model(x, y)
        loss.backward()
        opt.step()
        value = loss.item()
        log.write(str(value))
        log.flush()
""",
        "log.write",
    )
    assert new == [
        "for step, (x, y) in enumerate(loader):",
        "if step % 100 == 0:",
        "value = loss.item()",
        "log.write(str(value))",
        "log.flush()",
    ]


def test_a_function_that_only_looks() -> None:
    _, new = change(
        "watched_less_often",
        """
import torch
def check(model, step):
    biggest = max(p.abs().max().item() for p in model.parameters())
    if biggest > 100:
        print(step, biggest)

for step in range(99):
    loss.backward()
    check(model, step)
""",
        "biggest = max",
    )
    assert new == ["if step % 100 == 0:", "check(model, step)"]


@pytest.mark.parametrize(("line", "end"), [
    ("losses.append(loss.item())", ""),
    ("value = loss.item()", "print(value)"),
    ("scheduler.step(loss.item())", ""),
    ("self.last = loss.item()", ""),
    ("if loss.item() > 9: break", ""),
    ("handle(loss.item())", ""),
    ("mean = 0.9 * mean + 0.1 * loss.item(); print(mean)", ""),
    ("best = min(losses + [loss.item()])", ""),
])  # fmt: skip
def test_what_each_step_needs(line: str, end: str) -> None:
    assert refused(
        "watched_less_often", loop(line, end=end, begin="losses, best, mean = [], 0, 0"), line
    )


# Checkpoints and validation ----------------------------------------------------------------------
@pytest.mark.parametrize(("test", "new"), [
    ("step % 20 == 0", "step % 200 == 0"),
    ("(step + 1) % EVERY == 0", "(step + 1) % (10 * EVERY) == 0"),
    ("not step % 50", "not step % 500"),
    ("rank == 0 and step % 20 == 0", "rank == 0 and step % 200 == 0"),
])  # fmt: skip
def test_a_tenth_as_often(test: str, new: str) -> None:
    _, lines = change(
        "less_often",
        f"""
import torch
EVERY = 25
for step in range(9999):
    loss.backward()
    if {test}:
        torch.save(model.state_dict(), "latest.pt")
""",
        "torch.save",
    )
    assert lines == [f"if {new}:"]


@pytest.mark.parametrize(("body", "rest"), [
    ("score = evaluate(model)", "if score > 9: break"),
    ("score = evaluate(model)", "print(score)"),
    ("scheduler.step(evaluate(model))", "pass"),
    ("if evaluate(model) > 9: break", "pass"),
])  # fmt: skip
def test_what_steers(body: str, rest: str) -> None:
    assert refused(
        "less_often",
        f"""
import torch
for step in range(9999):
    loss.backward()
    if step % 20 == 0:
        {body}
    {rest}
""",
        "evaluate",
    )


def now_and_then(called: str, defined: str) -> str:
    """A training that calls something each 20 steps."""
    return f"""
import numpy as np
import torch
{defined}
for step in range(9999):
    loss.backward()
    if step % 20 == 0:
        {called}
"""


@pytest.mark.parametrize(
    ("called", "defined"),
    [
        ("model(held_out)", ""),
        ("for x in held_out: total = model(x).sum()", ""),
        ("check(model)", "def check(net):\n    with torch.no_grad(): return net(held_out)"),
        ("check(model)", "def check(net):\n    net.train()\n    return net(held_out)"),
        ("torch.randn(8)", ""),
        ("np.random.shuffle(held_out)", ""),
    ],
)
def test_a_model_that_is_called_as_in_training(called: str, defined: str) -> None:
    """Its statistics change, and dropout draws: the steps that follow would be others."""
    why = refused("less_often", now_and_then(called, defined), called)
    assert "as in training" in why or "random numbers" in why


@pytest.mark.parametrize(
    ("called", "defined"),
    [
        ("print(check(model))", "def check(net):\n    net.eval()\n    return net(held_out)"),
        (
            "check(model)",
            """
def score(net): return net(held_out)
def check(net):
    net.eval()
    return score(net)
""",
        ),
        ("torch.save(model.state_dict(), 'x.pt')", ""),
    ],
)  # fmt: skip
def test_a_validation_that_changes_nothing_comes_less_often(called: str, defined: str) -> None:
    _, lines = change("less_often", now_and_then(called, defined), called)
    assert lines == ["if step % 200 == 0:"]


def test_in_a_class_methods_are_followed_and_modules_are_models() -> None:
    text = """
import torch
class Trainer:
    def validate(self):
        {body}
    def fit(self):
        for step in range(9999):
            loss.backward()
            if step % 20 == 0:
                self.validate()
"""
    healthy = text.replace("{body}", "self.model.eval(); self.model(x); self.model.train()")
    assert change("less_often", healthy, "self.validate()")[1] == ["if step % 200 == 0:"]
    training = text.replace("{body}", "self.model(x)")
    assert "as in training" in refused("less_often", training, "self.validate()")


def test_without_a_condition() -> None:
    assert "no condition" in refused(
        "less_often", "for x in data:\n    x.backward()\n    save(x)\n", "save"
    )

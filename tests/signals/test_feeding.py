"""Which work of the main thread could be done ahead: by the flow of data, in many styles."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.signals.programs import watched
from whyidle.monitor.signals.data_flow import made_anew, stays
from whyidle.monitor.signals.feeding import Feeding

MAKES = {
    "a function that is called while the device still works": """
def draw(split):
    rows = numpy.sort(table[split])  # host 600 of a
    return torch.from_numpy(rows)  # step 20 of a
x = draw("train")
while True:
    out = model(x)  # step 100
    x = draw("train")  # a
    out.mean().backward()  # step 280
""",
    "a generator, and a helper of it, in a trainer's method": """
class Runner:
    def stream(self):
        for number in range(10**9):
            yield self.shaped(number)  # b
    def shaped(self, number):
        return numpy.sort(self.rows[number])  # host 500 of b c
    def go(self):
        for part in self.stream():  # c
            given = jnp.asarray(part)
            self.params, loss = self.advance(self.params, given)  # step 500
""",
    "in the loop itself, by way of an attribute and a dictionary": """
def main():
    for number in range(10**9):
        raw = {}
        raw["image"] = numpy.sort(table[number])  # host 400
        holder.current = raw
        state, loss = update(state, holder.current["image"])  # step 600
""",
    "rows that a list is filled with": """
for number in range(10**9):
    rows = []
    for path in paths[number]:
        rows.append(opened(path))  # host 700
    batch = numpy.stack(rows)
    loss = step(batch)  # step 300
""",
    "keys that go from one batch to the next": """
key = first
for number in range(10**9):
    key, batch = picked(key, table)  # d
    params = train(params, batch)  # step 500
def picked(key, table):
    return key + 1, numpy.sort(table[key])  # host 500 of d
""",
    "indices that the framework drew": """
for number in range(10**9):
    chosen = torch.randperm(1000)  # step 5
    images = numpy.sort(table[chosen.numpy()])  # host 500
    loss = model(images)  # step 300
    loss.backward()  # step 195
""",
}
DOES_NOT = {
    "an agent's moves": """
seen = env.reset()
while True:
    move = policy(seen)  # step 30
    seen, reward = env.step(move)  # host 600
    memory.append((seen, reward))
    learn(memory)  # step 370
""",
    "an agent's moves that take no time": """
seen = env.reset()
while True:
    move = policy(seen)
    seen, reward = env.step(move)  # host 600
    loss = learn(seen, reward)  # step 400
""",
    "a metric": """
for batch in loader:
    out = model(batch)  # step 500
    score = numpy.sort(out)  # host 500
    board.add(score)
""",
    "a match of what came out with what was wanted": """
for batch, wanted in loader:
    out = model(batch)  # step 400
    pairs = matched(out, wanted)  # host 500
    loss = criterion(out, pairs)  # step 100
""",
    "an optimizer of one's own": """
for batch in loader:
    grads = gradient(params, batch)  # step 500
    params = moved(params, grads)  # host 500
""",
    "an epoch as a whole, whatever is slow in it": """
def one_epoch(state):
    for batch in loader:
        logged = numpy.sort(batch)  # host 700 of e
        state = state.apply_gradients(batch)  # step 200 of e
    return state
for epoch in range(10**9):
    state = one_epoch(state)  # e
    right = evaluate(state)  # step 100
""",
    "what an object notes of itself": """
class Fit:
    def go(self):
        for batch in self.loader:
            spread = numpy.sort(batch)  # host 500
            self.note(spread)
            self.update(spread)
            self.bar.show(spread)
            loss = self.model(batch)  # step 500
            self.bar.advance(loss)
""",
    "what nobody uses": """
for batch in loader:
    counted = numpy.sort(batch)  # host 500
    loss = model(batch)  # step 500
""",
}


@pytest.mark.parametrize("style", MAKES)
def test_what_makes_a_batch_is_known_by_where_it_goes(style: str, tmp_path: Path) -> None:
    samples, (host,) = watched(MAKES[style], tmp_path)
    assert Feeding(samples).feeds(host)


@pytest.mark.parametrize("style", DOES_NOT)
def test_what_waits_for_a_step_or_goes_nowhere_makes_none(style: str, tmp_path: Path) -> None:
    samples, (host,) = watched(DOES_NOT[style], tmp_path)
    assert not Feeding(samples).feeds(host)


def test_without_the_source_nothing_is_said(tmp_path: Path) -> None:
    samples, (host,) = watched(next(iter(MAKES.values())), tmp_path)
    (tmp_path / "train.py").unlink()
    assert not Feeding(samples).feeds(host)


@pytest.mark.parametrize(
    ("source", "line", "is_new"),
    [
        ("table = read()\nfor i in rows:\n    x = put(table)\n", 3, False),
        ("for i in rows:\n    part = table[i]\n    x = put(part)\n", 3, True),
        ("for part in rows:\n    x = put(part)\n", 2, True),
        # Each epoch has one, and each step of it copies the same.
        ("for e in range(9):\n    t = read(e)\n    for i in rows:\n        x = put(t)\n", 4, False),
        ("while True:\n    x = put(part)\n    part = more()\n", 2, True),
        ("x = put(table)\n", 1, False),
        ("def f(part):\n    return put(part)\n", 2, False),
        ("for i in rows:\n    if new:\n        t = read()\n    x = put(t)\n", 4, True),
    ],
)
def test_what_is_new_in_each_pass_is_told_from_what_stays(
    source: str, line: int, *, is_new: bool, tmp_path: Path
) -> None:
    file = tmp_path / "train.py"
    file.write_text(source)
    assert made_anew(str(file), line) == is_new


@pytest.mark.parametrize(
    ("source", "line", "same"),
    [
        ("import jax\nfor i in rows:\n    x = jax.put(table)\n    jax.log(i)\n", 3, True),
        ("def f(table):\n    while True:\n        x = put(table)\n        step(x)\n", 3, True),
        # Something may fill it in place.
        ("for i in rows:\n    fill(table)\n    x = put(table)\n", 3, False),
        ("for i in rows:\n    table[i] = 0\n    x = put(table)\n", 3, False),
        ("for i in rows:\n    x = put(table[i])\n", 2, False),
        ("for table in rows:\n    x = put(table)\n", 2, False),
        ("x = put(table)\n", 1, False),
        ("import jax\nfor i in rows:\n    x = jax.put(3)\n", 3, False),
    ],
)
def test_what_surely_is_the_same_in_each_pass(
    source: str, line: int, *, same: bool, tmp_path: Path
) -> None:
    file = tmp_path / "train.py"
    file.write_text(source)
    assert stays(str(file), line) == same

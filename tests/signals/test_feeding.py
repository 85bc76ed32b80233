"""Which work of the main thread could be done ahead: by the flow of data, in many styles."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.signals.programs import watched
from whyidle.monitor.signals.account import account_of
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
    "what each kind of batch is told by": """
while True:
    match draw():  # host 500
        case (x, y):
            state = step(state, x, y)  # step 500
""",
    "a queue of coroutines": """
async def go():
    while True:
        row = draw()  # host 500
        await rows.put(row)
        state = step(state, await rows.get())  # step 500
""",
    "what a loss within takes from around it": """
while True:
    batch = draw()  # host 500
    def squares(params):
        return ((net(params, batch.x) - batch.y) ** 2).mean()
    grads = jax.grad(squares)(params)  # step 500
""",
}
DOES_NOT = {
    "an agent that moves in the other branch": """
while True:
    move = policy(seen)  # step 300
    if over(seen):
        move = None
    else:
        seen = env.step(move)  # host 500
        learn(seen)  # step 200
""",
    "an agent that the next call moves on": """
class Runner:
    def tick(self):
        self.seen = self.env.step(self.move)  # host 500
        self.learn(self.seen)  # step 200
        self.move = self.policy(self.seen)  # step 300
""",
    "a game whose state is everybody's": """
def tick():
    global seen, move
    seen = env.step(move)  # host 500
    move = policy(seen)  # step 300
    learn(seen)  # step 200
""",
    "a memory that draws where errors were": """
while True:
    chosen, batch = memory.sample(32)  # host 500
    errors = td(net, batch)  # step 300
    errors.mean().backward()  # step 200
    memory.weigh(chosen, errors.detach())
""",
    "games that the learner itself plays": """
class Net(nn.Module):
    def forward(self, x):
        return self.body(x)  # step 200 of p q # step 200 of r
def games(net):
    seen = env.reset()
    for _ in range(100):
        move = net(seen)  # p
        seen = env.step(move)  # host 500 of q
        yield seen
while True:
    played = list(games(net))  # q
    loss = learn(net, played)  # r
    loss.backward()  # step 300
""",
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
    assert Feeding(account_of(samples)).feeds(host)


@pytest.mark.parametrize("style", DOES_NOT)
def test_what_waits_for_a_step_or_goes_nowhere_makes_none(style: str, tmp_path: Path) -> None:
    samples, (host,) = watched(DOES_NOT[style], tmp_path)
    assert not Feeding(account_of(samples)).feeds(host)


def test_without_the_source_nothing_is_said(tmp_path: Path) -> None:
    samples, (host,) = watched(next(iter(MAKES.values())), tmp_path)
    (tmp_path / "train.py").unlink()
    assert not Feeding(account_of(samples)).feeds(host)

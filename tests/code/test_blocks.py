"""Which lines of a program evaluate a model, in the styles of many frameworks and people."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from whyidle.monitor.code.blocks import blocks

TORCH = """
def train(epoch):
    model.train()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""
# The lines that evaluate end with such a comment.
EVALUATES = {
    "PyTorch, in the function of the step": TORCH
    + """
    if not args.fastmode:
        model.eval()
        output = model(x)  # here
    loss_val = criterion(output, y)
""",
    "PyTorch, in a script": """
for epoch in range(9):
    for x, y in train_loader:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():  # here
        for x, y in held_out:  # here
            right += (model(x).argmax(1) == y).sum()  # here
    model.train()
    scheduler.step(right)
""",
    "PyTorch, in a method, without a mode": """
class Trainer:
    def fit(self):
        for x, y in self.loader:
            loss = self.loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            with torch.inference_mode():  # here
                val = self.loss(self.model(self.x_val), self.y_val)  # here
    def weights(self):
        return self.model.parameters()
""",
    "flax.linen": """
for batch in batches:
    state, loss = train_step(state, batch)
    logits = state.apply_fn({"params": state.params}, x_val, train=False)  # here
    print(loss, accuracy(logits, y_val))
""",
    "flax.linen, dropout": """
def main():
    for batch in batches:
        params, opt_state = update(params, opt_state, batch)
        print(jnp.mean(model.apply(params, x_val, deterministic=True) == y_val))  # here
""",
    "flax.nnx": """
def epoch(model, optimizer):
    for batch in batches:
        loss, grads = nnx.value_and_grad(loss_fn)(model, batch)
        optimizer.update(model, grads)
    model.eval()
    scores = model(x_val)  # here
    model.train()
""",
    "Keras": """
for x, y in data:
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(x, training=True))
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    metric.update_state(y_val, model(x_val, training=False))  # here
""",
    "Keras, kept": """
def train_epoch():
    for x, y in data:
        loss = model.train_on_batch(x, y)
        seen = model(x_val, training=False)  # here
        print(loss, score(seen))
""",
    "Keras, on PyTorch": TORCH
    + """
    with torch.no_grad():  # here
        seen = model(x_val, training=False)  # here
""",
}
TRAINS = {
    "a target network": TORCH.replace("model(x), y", "model(x), y + target").replace(
        "    loss =",
        "    with torch.no_grad():\n        target = model(x_next).max(1)\n    loss =",
    ),
    "a frozen teacher": """
teacher.eval()
for x, y in loader:
    with torch.no_grad():
        soft = teacher(x)
    loss = distil(model(x), soft, y)
    loss.backward()
""",
    "a teacher that is made to evaluate in each step": """
for x, y in loader:
    if distils:
        teacher.eval()
        soft = teacher(x)
    loss = distil(model(x), soft, y)
    loss.backward()
""",
    "an average of the weights": TORCH
    + """
    with torch.no_grad():
        for a, b in zip(ema.parameters(), model.parameters()):
            a.lerp_(b, 0.01)
""",
    "a score of the batch": TORCH
    + """
    with torch.no_grad():
        right = accuracy(output, y)
""",
    "the batch, once more": TORCH
    + """
    with torch.no_grad():
        again = model(x)
""",
    "frozen statistics": """
def tune():
    model.eval()
    loss = criterion(model(x), y)
    loss.backward()
""",
    "a target network in Keras": """
def learn():
    future = target(states_next, training=False)
    wanted = rewards + gamma * future
    with tf.GradientTape() as tape:
        loss = loss_of(wanted, model(states, training=False))
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
""",
    "a target network in flax": """
for batch in batches:
    wanted = net.apply(slow, batch, train=False)
    params, opt_state = update(params, opt_state, batch, wanted)
""",
    "a loss without dropout": """
def train_step(state, batch):
    def loss_fn(params):
        return loss(state.apply_fn(params, batch, deterministic=True))
    grads = jax.grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads)
""",
    "play": """
for step in range(9):
    with torch.no_grad():
        action = net(obs)
    obs, reward, done, truncated, info = env.step(action)
    loss = net(buffer.sample()).mean()
    loss.backward()
    net.zero_grad()
""",
    "a program that serves": """
model.eval()
with torch.no_grad():
    answer = model(x)
""",
}


@pytest.mark.parametrize("name", EVALUATES)
def test_what_evaluates(name: str, tmp_path: Path) -> None:
    wanted, found = _lines(EVALUATES[name], tmp_path)
    assert wanted
    assert found == wanted


@pytest.mark.parametrize("name", TRAINS)
def test_what_is_learned_from(name: str, tmp_path: Path) -> None:
    assert _lines(TRAINS[name], tmp_path) == (set(), set())


def _lines(text: str, folder: Path) -> tuple[set[int], set[int]]:
    file = folder / "train.py"
    file.write_text(textwrap.dedent(text))
    wanted = {n for n, line in enumerate(file.read_text().splitlines(), 1) if "# here" in line}
    found = {n for block in blocks(str(file)) if not block.due for n in block.lines}
    return wanted, found


EVALUATES_BY_PLAYING = {
    "in the loop over episodes": """
for episode in range(1000):
    timestep = environment.reset()
    while not timestep.last():
        out, actor_state = agent.actor_step(params, timestep, actor_state, next(rng))
        timestep = environment.step(int(out.actions))
        params, state = agent.learner_step(params, memory.sample(8), state)
    if not episode % 50:
        for _ in range(100):
            timestep = environment.reset()
            while not timestep.last():
                out, actor_state = agent.actor_step(params, timestep, actor_state, next(rng))
                timestep = environment.step(int(out.actions))
""",
    "in a function": """
def evaluate(policy, env):
    obs, done = env.reset(), False
    while not done:
        obs, reward, done, _ = env.step(policy(obs))
for step in range(10**6):
    obs, reward, done, _ = env.step(policy(obs))
    memory.add(obs, reward)
    learn(memory)
    if step % 5000 == 0:
        evaluate(policy, env)
""",
    "in another environment": """
state, i = env.reset(), 0
while True:
    state, reward, done, trunc, info = env.step(agent.act(state))
    i += 1
    if (i + 1) % 100 == 0:
        total, over, other = 0, False, test_env.reset()
        while not over:
            other, reward, over, trunc, info = test_env.step(agent.act(other))
            total += reward
""",
}


@pytest.mark.parametrize("style", EVALUATES_BY_PLAYING)
def test_what_is_played_now_and_then_beside_the_play_evaluates(style: str, tmp_path: Path) -> None:
    file = tmp_path / "play.py"
    file.write_text(EVALUATES_BY_PLAYING[style])
    (block,) = (each for each in blocks(str(file)) if each.due)
    assert (block.plays, block.trains, block.evaluates) == (False, False, True)


def test_the_only_play_is_learned_from(tmp_path: Path) -> None:
    file = tmp_path / "play.py"
    file.write_text("""
for step in range(10**6):
    if step % 4 == 0:
        obs, reward, done, _ = env.step(policy(obs))
        memory.add(obs, reward)
    learn(memory.sample(32))
""")
    (block,) = blocks(str(file))
    assert (block.plays, block.evaluates) == (True, False)

"""The rule growing_sequence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.phases import LIB, TORCH, of_rows, written
from tests.rules.windows import answer, cannot_judge, found, is_silent, window
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
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
    "a list of tokens, of which a tensor is made": """\
def answer(prompt, n):
    tokens = list(prompt)
    for _ in range(n):
        logits = model(torch.tensor([tokens], device=device))
        nxt = int(torch.multinomial(logits[0, -1].softmax(-1), 1))
        tokens.append(nxt)
""",
    "a list that is added to, in one line": """\
def answer(model, tokens, longest):
    while len(tokens) < longest:
        x = jnp.asarray(tokens)
        scores = model(x)

        tokens += [int(scores[-1].argmax())]
""",
    "a token that is put there as it is made": """\
@torch.inference_mode()
def sample(net, ids, n):
    for _ in range(n):
        window = ids if ids.size(1) < 99 else ids[:, -99:]

        ids = torch.cat([ids, net(window)[:, -1:].argmax(-1)], 1)
""",
    "gradients switched off for each token": """\
def complete(model, idx, n):
    for _ in range(n):
        with torch.no_grad():
            logits = model(idx[:, -size:])[:, -1]
        best = torch.argmax(logits, dim=-1, keepdim=True)
        idx = torch.cat((idx, best), dim=1)
""",
    "a sample that is due every few steps": """\
for step in range(1000):
    if step % 100 == 0:
        while ids.shape[1] < 256:
            out = model(ids)
            new = pick(out[:, -1])
            ids = torch.cat([ids, new], dim=1)
""",
    "a loop that notes what is finished": """\
def beam(model, ids):
    while not done(ids):

        best = model(ids)[:, -1].argmax(-1, keepdim=True)
        update_finished(best)
        ids = torch.cat((ids, best), dim=1)
""",
    "gradients switched off around the loop": """\
model.eval()
with torch.no_grad():
    while ids.shape[1] < 256:
        out = model(ids)
        new = out[:, -1].softmax(-1).multinomial(1)
        ids = torch.cat([ids, new], dim=-1)
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
    "a validation that collects its outputs": """\
def evaluate(model, loader, seen):
    with torch.no_grad():
        for x, y in loader:
            out = model(x).argmax(-1)
            print(out)
            seen = torch.cat((seen, out))
""",
    "points that a model is fitted to, round by round": """\
def explore(model, opt, X, y):
    for _ in range(20):
        loss = loss_of(model(X), y)
        loss.backward(); opt.step()
        new = propose(model, X)
        X = torch.cat([X, new])
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
    "a network that widens from layer to layer": """\
def forward(self, x):
    for layer in self.layers:

        new = layer(x)

        x = torch.cat([x, new], 1)
""",
    "a network that keeps what its layers made": """\
def forward(self, x):
    seen = [x]
    for layer in self.layers:
        x = layer(torch.stack(seen).sum(0))

        seen.append(x)
""",
    "losses that are kept": """\
def fit(model, data, losses):
    for x in data:
        loss = model(torch.tensor(x))
        print(np.array(losses).mean())
        losses.append(loss.item())
""",
    "states of which the last is taken": """\
def unroll(cell, xs, states):
    for x in xs:

        state = cell(torch.as_tensor(x), states[-1])

        states.append(state)
""",
    "a text whose last token goes to a model with a cache of fixed length": """\
def decode(model, ids, cache):
    for at in range(99):

        logits = model(ids[:, -1:], cache, at)

        ids = torch.cat([ids, logits.argmax(-1)], 1)
""",
    "the way of a model that keeps a state, beside that of one that does not": """\
def write(model, ids, hidden, is_recurrent):
    while ids.shape[1] < 99:
        if is_recurrent:
            out, hidden = model(ids, hidden)
            ids.fill_(pick(out))
        else:
            out = model(ids)
            ids = torch.cat([ids, pick(out)], 1)
""",
    "a list that each pass begins anew": """\
def learn(model, batch):
    for epoch in range(10):
        x = 0.0
        values = model(batch)
        found = []
        for value in values:
            x = decayed(x) + value
            found.append([x])
        x = torch.tensor(found)
        report((model(batch) * x).mean())
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


CACHES = {
    "handed on in a tuple": (
        """\
def attend(self, x, cache=None):
    q, k, v = self.qkv(x).chunk(3, -1)
    if cache is not None:
        k = torch.cat([cache[0], k], dim=2)
        v = torch.cat([cache[1], v], dim=2)
    return f.scaled_dot_product_attention(q, k, v), (k, v)
""",
        4,
    ),
    "kept in the layer": (
        """\
def attend(self, x):
    k, v = self.kv(x).chunk(2, -1)

    self.keys = torch.cat((self.keys, k), 1)
    self.values = torch.cat((self.values, v), 1)
    return mix(self.q(x), self.keys, self.values)
""",
        4,
    ),
    "kept in a dictionary, in JAX": (
        """\
def attend(params, x, cache):
    k = x @ params["k"]

    cache["k"] = jnp.concatenate([cache["k"], k], axis=1)

    return mix(x @ params["q"], cache["k"])
""",
        4,
    ),
}
LOOPS = {
    "what comes out goes in": """\
for n in range(200):
    logits, past = model(token, past)
    token = logits[:, -1].argmax(-1)
""",
    "the layers keep it": """\
while not done(token):
    logits = model(token)
    token = pick(logits)
""",
}


def window_of(rows: list[tuple[list[tuple[Path, int]], int]], backend: str) -> Window:
    """Return the window of chains through several files, and how often each was seen."""
    samples = StackSamples()
    for places, count in rows:
        frames = tuple(CodeLine(str(file), line, "f") for file, line in places)
        inside = CodeLine(TORCH[0], 9, TORCH[1])
        samples.samples += count
        samples.count(Chain(frames, inside, inside), count, count, 0)
    facts = {"torch": {"backend": backend}}
    return window(stacks=samples, lines=samples.lines(), facts=facts, inside=True)


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("loop", LOOPS)
def test_keys_and_values_that_grow_where_the_loop_calls(
    cache: str, loop: str, tmp_path: Path
) -> None:
    source, at = CACHES[cache]
    net = written(tmp_path, source, "net.py")
    main = written(tmp_path, LOOPS[loop], "main.py")
    # A part of the time is in the layer, the most of it elsewhere in the loop.
    rows = [([(net, 6), (main, 2)], 200), ([(main, 2)], 300), ([(main, 3)], 400)]
    finding = found(NAME, window_of(rows, "cuda"))
    assert finding.severity is Severity.LOW
    assert (finding.where[0].file, finding.where[0].line) == (str(net), at)
    assert finding.evidence[0].value == pytest.approx(1.0)


@pytest.mark.parametrize(
    "loop",
    [
        "for x in batches:\n    out = model(x)\n    total += out\n",
        "for x in batches:\n    x, past = model(x, past)\n    x.sum().backward()\n",
    ],
)
def test_a_loop_that_generates_nothing_fills_no_cache(loop: str, tmp_path: Path) -> None:
    net = written(tmp_path, CACHES["handed on in a tuple"][0], "net.py")
    main = written(tmp_path, loop, "main.py")
    assert is_silent(NAME, window_of([([(net, 6), (main, 2)], 900)], "cuda"))

"""The rule environment_stepping."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.rules.phases import LIB, TORCH, Row, of_rows, written
from tests.rules.windows import cannot_judge, found, is_silent, severity, window
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.diagnosis.diagnose import diagnose
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.window import Window

NAME = "environment_stepping"
FIXES = {
    "pytorch": (
        """
import types
import numpy as np, torch
policy, rollout, make_env, seen = torch.nn.Linear(4, 2), 3, None, []
class Many:
    def __init__(self, makes): self.n = len(makes)
    def reset(self): return np.zeros((self.n, 4), np.float32), {}
    def step(self, actions):
        seen.append(actions.shape)
        return np.zeros((self.n, 4), np.float32), np.ones(self.n), None, None, {}
gymnasium = types.SimpleNamespace(vector=types.SimpleNamespace(AsyncVectorEnv=Many))
""",
        "assert seen == [(16,)] * 3",
    ),
    "jax": (
        """
import jax
import jax.numpy as jnp
states, params, key = jnp.ones((8, 4)), jnp.ones(4), jax.random.key(0)
policy = lambda params, states: states @ params
step_of_one = lambda state, action: (state * 0.9, action + state.sum())
""",
        "assert rewards.shape == (128, 8)",
    ),
}
# Line 5 makes the action, line 6 steps, line 9 learns.
GYM = """\
import gymnasium as gym
def play(env, pi):
    seen, _ = env.reset()
    while True:
        move = pi(seen)
        seen, reward, ended, cut, info = env.step(move)
        keep(reward)
        if ended:
            learn(pi)
"""
SB3 = """\
from stable_baselines3 import PPO
import gymnasium
world = gymnasium.make("highway-v0")
agent = PPO("MlpPolicy", world)

agent.learn(10_000)
"""
OWN = """\
class Grid:
    def reset(self):
        return self.cells
    def go(self): ...
    def step(self, move):
        self.cells = [self.cells[n] + move for n in range(99)]
        return self.cells, 1.0, False

def learn(pi): ...
"""
OTHER_NAMES = """\
def collect(world, brain, state):

    state = world.reset()
    for n in range(512):
        choice = brain(state)
        state, gain, over = world.advance(choice)
        remember(gain)
        if n % 128 == 127:
            learn(brain)
"""
# By no name that anybody else uses.
VECTOR = """\
def collect(net, worlds, n, logs):
    seen = worlds.begin()
    for _ in range(n):
        bets = Categorical(net(as_tensor(seen))).sample()

        seen, gains, over = worlds.advance_all(where(bets == 1, 10, -10))
        logs.append(gains)

    learn(net)
"""
POLE = """\
class Pole:
    def begin(self):
        self.at = self.rng.uniform(-1, 1, 4)
        return self.at.copy()
    def advance(self, force):
        self.at = self.at + force * 0.1
        return self.at.copy(), 1.0, abs(self.at[0]) > 2

def learn(pi): ...
"""
DM = """\
def episode(environment, agent):

    timestep = environment.reset()
    while not timestep.last():
        action = agent.select_action(timestep.observation)
        timestep = environment.step(action)
        agent.observe(timestep)

        agent.update()
"""
PLAIN = """\
def move(world, way):
    return look(world), -0.01, world["t"] > 99
for turn in range(9):
    for n, world in enumerate(worlds):
        way = int(net(tensor(seen[n])).argmax())
        seen[n], gain, over = move(world, way)
        log(gain)

    loss(seen).backward()
"""
ARRAYS = f"""\
{OWN}
def play(grids, pi):
    state = grids.reset()
    while True:
        move = pi(state)
        state, reward, over = grids.step(move)
        if over.any():
            state = grids.reset()
"""
HIGHWAY = (f"{LIB}/highway_env/envs/common/abstract.py", "step")
STYLES: dict[str, tuple[str, Row]] = {
    "gymnasium": (GYM, (6, (f"{LIB}/gymnasium/wrappers/common.py", "step"), 400)),
    "stable-baselines3": (SB3, (6, HIGHWAY, 400)),
    "a class of one's own": (OWN, (6, None, 400)),
    "other words": (OTHER_NAMES, (6, (f"{LIB}/numpy/random/a.py", "f"), 400)),
    "a vector in words of its own": (VECTOR, (6, (f"{LIB}/numpy/random/a.py", "f"), 400)),
    "a class in words of its own": (POLE, (6, None, 400)),
    "functions and dictionaries": (PLAIN, (6, (f"{LIB}/numpy/random/a.py", "f"), 400)),
    "dm_env": (DM, (6, (f"{LIB}/dm_control/rl/control.py", "step"), 400)),
}


def job(tmp_path: Path, style: str, share: float) -> Window:
    source, (line, library, _) = STYLES[style]
    rows = [(line, library, 1000 * share), (9, TORCH, 1000 * (1 - share))]
    return of_rows(written(tmp_path, source), rows)


@pytest.mark.parametrize("style", STYLES)
def test_an_environment_is_known_in_any_style(style: str, tmp_path: Path) -> None:
    watched = job(tmp_path, style, 0.4)
    finding = found(NAME, watched)
    assert finding.title == "Stepping environments takes 40% of the main thread's time"
    assert finding.where[0].line == 6
    assert finding.gain is not None
    # Half of it at least, by two side by side.
    assert 0.15 < finding.gain.low < 0.2
    assert 0.4 < finding.gain.high < 0.45
    assert severity(NAME, finding) is Severity.HIGH
    # Nothing else is said of the line.
    assert [each.rule.id for each in diagnose(watched).findings] == [NAME]


@pytest.mark.parametrize("style", STYLES)
def test_little_stepping_is_healthy(style: str, tmp_path: Path) -> None:
    assert is_silent(NAME, job(tmp_path, style, 0.08))


HANDED_ON = {
    "a buffer that is drawn from": """\
def fit(buffer, net):
    batch = buffer.latest()
    while True:
        weights = net(batch)

        batch, weight, which = buffer.sample(64)
""",
    "a training that hands its state on": """\
def fit(trainer, data):
    state = trainer.init()
    for batch in data:
        shown = prepare(batch)

        state, loss, norm = trainer.update(shown)
""",
    "a function that updates": """\
def update(params, opt, x):
    return params, opt, [n * n for n in x]
for x in batches:
    x = crop(x)
    params, opt, loss = update(params, opt, x)
""",
    "a cell of a network's own": """\
import torch
def cell(word, state, n): return torch.tanh(word + state), state, n
for n in range(99):
    word = best(scores)
    scores, state, n = cell(word, state, n)
""",
    "a cell of a network": """\
class Cell:
    def zero(self):
        return self.h
    def forward(self, x):
        self.h = self.h @ x
        return self.h, self.h
""",
}


@pytest.mark.parametrize("style", HANDED_ON)
def test_what_only_hands_something_on_is_none(style: str, tmp_path: Path) -> None:
    file = written(tmp_path, HANDED_ON[style])
    assert is_silent(NAME, of_rows(file, [(6, None, 600), (9, TORCH, 400)]))


def test_what_makes_the_actions_may_come_back_too(tmp_path: Path) -> None:
    rows: list[Row] = [(6, HIGHWAY, 300), (5, TORCH, 400), (9, TORCH, 300)]
    gain = found(NAME, of_rows(written(tmp_path, GYM), rows)).gain
    assert gain is not None
    assert gain.low < 0.15
    assert 0.7 < gain.high < 0.75


ACTING = {
    "gymnasium": (GYM, 5),
    "other words": (OTHER_NAMES, 5),
    "dm_env": (DM, 5),
}


@pytest.mark.parametrize("style", ACTING)
def test_a_policy_for_one_observation_has_the_word_where_it_takes_more(
    style: str, tmp_path: Path
) -> None:
    source, line = ACTING[style]
    rows: list[Row] = [(6, HIGHWAY, 50), (line, TORCH, 600), (9, TORCH, 350)]
    watched = of_rows(written(tmp_path, source), rows)
    finding = found(NAME, watched)
    assert finding.title == "Playing one environment takes 65% of the main thread's time"
    assert [place.line for place in finding.where[:2]] == [line, 6]
    assert diagnose(watched).findings[0].rule.id == NAME


@pytest.mark.parametrize(
    ("source", "rows"),
    [
        (GYM, [(6, HIGHWAY, 40), (5, TORCH, 40), (9, TORCH, 920)]),
        # One call of the policy serves many, by what is done with rewards, or by their name.
        (ARRAYS, [(15, HIGHWAY, 50), (14, TORCH, 600), (90, TORCH, 350)]),
        (GYM.replace("env", "envs"), [(6, HIGHWAY, 50), (5, TORCH, 600), (9, TORCH, 350)]),
        # What is learned in between gives the state that the action is made from.
        (
            GYM.replace("        move =", "        pi, loss = update(pi, draw())\n        move ="),
            [(7, HIGHWAY, 50), (5, TORCH, 600), (90, TORCH, 350)],
        ),
    ],
)
def test_little_acting_and_acting_for_many_are_healthy(
    source: str, rows: list[Row], tmp_path: Path
) -> None:
    assert is_silent(NAME, of_rows(written(tmp_path, source), rows))


# Line 4 or 5 of each takes 40%, and steps no environment.
NO_ENVIRONMENTS = {
    "an optimizer": "import torch\nfor x in batches:\n    f(x)\n    optim.step()\n    n = 9 * 9\n",
    "a meter that begins anew": """\
def fit(meter, batches):
    meter.reset()
    for x, y in batches:
        meter.step(x.size)
        n = 9 * 9
""",
    "a trainer": """\
def fit(trainer, batches):
    for x, y in batches:
        x = crop(x)
        loss, hits, norm = trainer.step(x, y)
        seen = norm
""",
    "a state that goes through": """\
def fit(learner, batches, params, opt):
    for x in batches:
        x = crop(x)
        params, opt, loss = learner.step(params, opt, x)
        seen = loss
""",
    "a scheduler that begins anew": """\
class Warm:
    def reset(self):
        self.n = 0
    def step(self, epoch):
        self.n = sum(n for n in range(99))
        return self.n
""",
    "a function that updates": """\
def update(params, opt, x):
    return params, opt, [n * n for n in x]
for x in batches:
    x = crop(x)
    params, opt, loss = update(params, opt, x)
""",
    "a cell of a network's own": """\
import torch
def cell(word, state, n): return torch.tanh(word + state), state, n
for n in range(99):
    word = best(scores)
    scores, state, n = cell(word, state, n)
""",
    "a cell of a network": """\
class Neuron:
    def reset(self):
        self.mem = 0
    def step(self, x):
        return x, self.mem
""",
}


@pytest.mark.parametrize("style", NO_ENVIRONMENTS)
def test_what_only_looks_like_an_environment(style: str, tmp_path: Path) -> None:
    file = written(tmp_path, NO_ENVIRONMENTS[style])
    pillow = (f"{LIB}/PIL/Image.py", "f")
    assert is_silent(NAME, of_rows(file, [(4, pillow, 200), (5, pillow, 200), (3, TORCH, 600)]))


def test_an_environment_on_the_device_is_not_meant(tmp_path: Path) -> None:
    rows: list[Row] = [(6, TORCH, 600), (9, TORCH, 400)]
    assert is_silent(NAME, of_rows(written(tmp_path, OTHER_NAMES), rows))


def test_what_an_environment_of_ones_own_computes_with_torch_is_not_meant(tmp_path: Path) -> None:
    source = OWN.replace("class", "import torch\nclass").replace("1.0", "torch.ones(1)")
    assert is_silent(NAME, of_rows(written(tmp_path, source), [(7, None, 500), (9, TORCH, 500)]))


@pytest.mark.parametrize(
    ("source", "is_many"),
    [
        (ARRAYS, True),
        (ARRAYS.replace(".any()", ""), False),
        (ARRAYS.replace("over.any()", "keep(zip(kept, (reward, over)))"), False),
        (ARRAYS.replace("over.any()", "keep(zip(kept, reward, over))"), True),
    ],
)
def test_many_in_one_call_promise_nothing(source: str, *, is_many: bool, tmp_path: Path) -> None:
    file = written(tmp_path, source)
    inner, outer = CodeLine(str(file), 6, "step"), CodeLine(str(file), 15, "play")
    samples = StackSamples()
    samples.samples = 1000
    samples.count(Chain((inner, outer), inner), 500, 500, 0)
    torch = CodeLine(TORCH[0], 5, TORCH[1])
    samples.count(Chain((CodeLine(str(file), 90, "learn"),), torch, torch), 500, 500, 0)
    finding = found(NAME, window(stacks=samples, facts={"torch": {"backend": "cpu"}}, inside=True))
    assert finding.gain is not None
    assert (finding.gain.low == 0) == is_many
    assert (finding.severity is Severity.LOW) == is_many
    assert (finding.fixes is not None) == is_many


@pytest.mark.parametrize("call", ["agent.learn(1000)", "trainer.fit(world)", "train(world, net)"])
def test_an_action_is_made_below_what_trains(call: str, tmp_path: Path) -> None:
    file, main = written(tmp_path, GYM), written(tmp_path, f"{call}\n", "main.py")
    outer = CodeLine(str(main), 1, "<module>")
    torch, samples = CodeLine(TORCH[0], 5, TORCH[1]), StackSamples()
    samples.samples = 1000
    pole = CodeLine(f"{LIB}/gymnasium/envs/classic_control/cartpole.py", 9, "step")
    samples.count(Chain((CodeLine(str(file), 6, "play"), outer), pole, pole), 100, 100, 0)
    samples.count(Chain((CodeLine(str(file), 5, "play"), outer), torch, torch), 800, 800, 0)
    samples.count(Chain((CodeLine(str(file), 9, "play"), outer), torch, torch), 100, 100, 0)
    finding = found(NAME, window(stacks=samples, facts={"torch": {"backend": "cpu"}}, inside=True))
    assert finding.title == "Playing one environment takes 90% of the main thread's time"
    assert finding.where[0].line == 5


def test_processes_that_are_waited_for_are_many(tmp_path: Path) -> None:
    file = written(tmp_path, GYM)
    vector = CodeLine(f"{LIB}/gymnasium/vector/async_vector_env.py", 9, "step_wait")
    pipe = CodeLine("/usr/lib/python3.11/multiprocessing/connection.py", 9, "_recv")
    samples = StackSamples()
    samples.samples = 1000
    samples.count(Chain((CodeLine(str(file), 6, "play"),), pipe, vector), 500, 500, 500)
    torch = CodeLine(TORCH[0], 5, TORCH[1])
    samples.count(Chain((CodeLine(str(file), 9, "play"),), torch, torch), 500, 500, 0)
    finding = found(NAME, window(stacks=samples, facts={"torch": {"backend": "cpu"}}, inside=True))
    assert finding.severity is Severity.LOW


PIPED = """\
class Pool:
    def reset(self):
        return [pipe.recv() for pipe in self.pipes]
    def step(self, moves):
        for pipe, move in zip(self.pipes, moves): pipe.send(move)
        answers = [pipe.recv() for pipe in self.pipes]
        seen, rewards, ends = zip(*answers)
        return seen, rewards, ends

def learn(pi): ...
pool = Pool()
seen = pool.reset()
while True:
    moves = pi(torch.tensor(seen))
    seen, reward, over = pool.step(moves)
    learn(pi)
"""
BATCHES = """\
class Pool:
    def begin(self):
        return [pipe.recv() for pipe in self.pipes]
    def fetch(self, orders):
        for pipe, order in zip(self.pipes, orders): pipe.send(order)
        answers = [pipe.recv() for pipe in self.pipes]
        xs, ys = zip(*answers)
        return torch.stack(xs), torch.stack(ys)

import torch
pool = Pool()
for order in orders:

    optimizer.zero_grad()
    x, y = pool.fetch(order)
    loss = model(x, y); loss.backward(); optimizer.step()
"""


@pytest.mark.parametrize("names", [{}, {"pool": "venv"}, {"seen": "state", "moves": "actions"}])
def test_answers_of_environments_in_other_processes_are_no_batches(
    names: dict[str, str], tmp_path: Path
) -> None:
    for text, is_input in ((PIPED, False), (BATCHES, True)):
        words = re.split(r"\b", text)
        source = "".join(names.get(word, word) for word in words)
        file = written(tmp_path, source, f"{is_input}.py")
        inner, outer = CodeLine(str(file), 6, "<listcomp>"), CodeLine(str(file), 15, "<module>")
        pipe = CodeLine("/usr/lib/python3.11/multiprocessing/connection.py", 9, "_recv")
        torch = CodeLine(TORCH[0], 5, TORCH[1])
        samples = StackSamples()
        samples.samples = 1000
        samples.count(Chain((inner, outer), pipe, pipe), 500, 500, 0)
        samples.count(Chain((CodeLine(str(file), 16, "<module>"),), torch, torch), 500, 500, 0)
        facts = {"torch": {"backend": "cpu"}}
        seen = window(stacks=samples, lines=samples.lines(), facts=facts, inside=True)
        said = {each.rule.id for each in diagnose(seen).findings}
        assert ("input_starved" in said, NAME in said) == (is_input, not is_input)


def test_a_class_of_ones_own_is_named_by_who_calls_it(tmp_path: Path) -> None:
    file = written(tmp_path, f"{OWN}\ngrid = Grid()\nstate = grid.reset()\nfor _ in range(99):\n"
                   "    move = pi(state)\n    state, reward, over = grid.step(move)\n")  # fmt: skip
    inner, outer = CodeLine(str(file), 6, "step"), CodeLine(str(file), 15, "<module>")
    samples = StackSamples()
    samples.samples = 1000
    samples.count(Chain((inner, outer), inner), 500, 500, 0)
    torch = CodeLine(*TORCH[:1], 5, TORCH[1])
    samples.count(Chain((CodeLine(str(file), 14, "<module>"),), torch, torch), 500, 500, 0)
    watched = window(
        stacks=samples, lines=samples.lines(), facts={"torch": {"backend": "cpu"}}, inside=True
    )
    finding = found(NAME, watched)
    assert [place.line for place in finding.where] == [15, 6]
    assert diagnose(watched).findings[0].rule.id == NAME


@pytest.mark.parametrize(
    ("line", "is_ruled_out"),
    [
        ('assert args.num_envs == 1, "vectorized envs are not supported"', True),
        ("if cfg.n_envs > 1:\n    raise NotImplementedError", True),
        ("assert envs.num_envs == 1", True),
        ("if num_environments != 1: raise ValueError(num_environments)", True),
        # Healthy twins: any number will do, or another one is held against one.
        ("assert args.num_envs % 2 == 0", False),
        ("assert num_envs >= 1", False),
        ("assert args.num_workers == 1", False),
        ("if n_envs > 1:\n    print(n_envs)", False),
    ],
)
def test_what_the_program_rules_out_is_not_advised(
    line: str, is_ruled_out: bool, tmp_path: Path
) -> None:
    source, (at, library, _) = GYM + line + "\n", STYLES["gymnasium"][1]
    fixes = found(
        NAME, of_rows(written(tmp_path, source), [(at, library, 400), (9, TORCH, 600)])
    ).fixes
    assert (fixes is not None) is is_ruled_out
    if fixes is not None:
        assert "AsyncVectorEnv" not in fixes["pytorch"].text
        assert ":10:" in fixes["pytorch"].text


def test_without_samples_it_cannot_judge() -> None:
    assert cannot_judge(NAME, window())

"""Loops of Python in compiled functions that become scans, and those that must stay loops.

Every program here runs as it is and patched, and both must return the same numbers.
"""

from __future__ import annotations

import pytest

from tests.fixes.programs import change, refused, results_of, tried

# Right: written in many ways -----------------------------------------------------------------------
# A recurrent network that picks its moments by number, with a list that is stacked.
BY_NUMBER = """
import jax
import jax.numpy as jnp

def cell(w, h, x):
    h = jnp.tanh(h @ w["h"] + x @ w["x"] + w["b"])
    return h, h @ w["out"]

def network(w, h, xs: jax.Array):
    outs = []
    for t in range(len(xs)):
        h, y = cell(w, h, xs[t])
        outs.append(y)  # kept
    return jnp.stack(outs, axis=1), h

@jax.jit
def step(w, xs):
    def loss(w):
        outs, h = network(w, {begin}, xs)
        return (outs ** 2).mean() + h.sum()
    return jax.value_and_grad(loss)(w)

def run():
    keys = jax.random.split(jax.random.key(0), 5)
    w = {{"h": jax.random.normal(keys[0], (4, 4)), "x": jax.random.normal(keys[1], (3, 4)),
         "b": jnp.ones(4), "out": jax.random.normal(keys[2], (4, 2))}}
    return step(w, jax.random.normal(keys[3], (9, 5, 3)))
"""
# Batches first, gates that are split, two states, in a method.
GATES = """
import jax
from jax import lax, numpy as jnp

class Model:
    def __init__(self, key):
        a, b = jax.random.split(key)
        self.u, self.v = jax.random.normal(a, (3, 16)), jax.random.normal(b, (4, 16))

    def __call__(self, x):
        h, c = jnp.zeros((5, 4)), jnp.zeros(4)
        # Each moment.
        for t in range(x.shape[1]):
            gates = x[:, t] @ self.u + h @ self.v
            i, f, g, o = jnp.split(gates, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return h

def run():
    model = Model(jax.random.key(1))
    return jax.jit(lambda x: model(x))(jax.random.normal(jax.random.key(2), (5, 7, 3)))
"""
# Descent within a step, a number of times, all results of one type as they began.
DESCENT = """
from functools import partial
import jax
import jax.numpy as jnp
RATE, TIMES = 0.1, 6

def energy(p, x):
    return jnp.sum((x @ p["w"] + p["b"]) ** 2) / len(x)

@partial(jax.jit, static_argnums=2)
def adapted(p, x, times):
    for _ in range({times}):
        g = jax.grad(energy)(p, x)
        p = jax.tree.map(lambda a, b: a - RATE * b, p, g)
    return p, energy(p, x)

def run():
    p = {{"w": jnp.arange(6.0).reshape(3, 2), "b": jnp.ones(2)}}
    return adapted(p, jax.random.normal(jax.random.key(3), (8, 3)) / 4, 6)
"""
# A sampler: keys, parts of two arrays side by side, a sum that begins as a number.
SAMPLER = """
import jax
import jax.numpy as jnp

@jax.jit
def sample(key, x, w):
    total = 0.0
    steps = jnp.linspace(1.0, 0.1, 8)
    for t, noise in zip(steps, jnp.flip(steps), strict=True):
        key, sub = jax.random.split(key)
        x = x - 0.1 * t * jnp.tanh(x @ w) + noise * 0.1 * jax.random.normal(sub, x.shape)
        total += jnp.mean(x ** 2)
    return x, total, jax.random.normal(key, (2,))

def run():
    return sample(jax.random.key(4), jnp.ones((3, 4)), jnp.eye(4) / 2)
"""
# One state of several parts; what goes over is made by an expression.
TREE = """
import jax
import jax.numpy as jnp

def roll(state, force):
    at, speed = state["at"], state["speed"]
    speed = 0.9 * speed + force
    return {{"speed": speed, "at": at + 0.1 * speed}}

@jax.jit
def rollout(forces):
    state = {{"at": jnp.zeros(2), "speed": jnp.zeros(2)}}
    path, ends = [], []
    for force in jnp.swapaxes(forces, 0, 1)[2:]:
        state = roll(state, force)
        path.append(state["at"])
        ends.append(state["at"] * 2 + force)
    return jnp.stack(path), jnp.stack(ends, 0)

def run():
    return rollout(jax.random.normal(jax.random.key(5), (2, 11, 3, 2)))
"""
# Positions of an array that fill up; another array that is longer.
FILLED = """
import jax
import jax.numpy as jnp
N = 6

@jax.jit
def run():
    xs, ys = jnp.arange(18.0).reshape(6, 3), jnp.ones((9, 3))
    h = jnp.zeros(3, jnp.bfloat16)
    for i in range(N):
        h = (h + xs[i]) * ys[i] / 2
    return h
"""
RIGHT = {
    "by number": (BY_NUMBER.format(begin="jnp.zeros((5, 4))"), "for t"),
    "begins smaller": (BY_NUMBER.format(begin="jnp.zeros(4)"), "for t"),
    "begins with whole numbers": (BY_NUMBER.format(begin="jnp.zeros(4, int)"), "for t"),
    "gates": (GATES, "for t"),
    "descent": (DESCENT.format(times="TIMES"), "for _"),
    "descent by an argument": (DESCENT.format(times="times"), "for _"),
    "sampler": (SAMPLER, "for t"),
    "tree": (TREE.format(), "for force"),
    "filled": (FILLED, "for i"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_the_scan_gives_what_the_loop_gave(name: str) -> None:
    program, mark = RIGHT[name]
    patch = tried("scanned", program, mark)
    before, after = results_of(patch)
    assert len(before) == len(after)
    for one, other in zip(before, after, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert one == pytest.approx(other, rel=2e-5, abs=2e-6)


def test_a_pass_stands_before_the_scan_only_where_it_may_change_a_shape() -> None:
    _, new = change("scanned", *RIGHT["descent"])
    assert new == ["", "def one_pass(p, _):", "return p, None", "",
                   "p, _ = jax.lax.scan(one_pass, p, None, length=TIMES)"]  # fmt: skip
    assert "h, first_of_outs = one_pass(h, xs[0])" in change("scanned", *RIGHT["by number"])[1]


# Traps: each looks like one that is scanned ---------------------------------------------------------
TRAP = """
import random
import jax
import jax.numpy as jnp
SCALE, FLAGS, count = 2.0, [1], 0
{more}

def cell(w, h, x):
    return jnp.tanh(h @ w + x)

@jax.jit
def step(w, h, xs: {kind}):
    outs{empty} = []
    {before}
    for {loop}:
        {body}
    {after}
    return h{end}
"""


def trap(**given: str) -> str:
    plain = {
        "more": "", "kind": "jax.Array", "empty": "", "before": "pass", "loop": "x in xs",
        "body": "h = cell(w, h, x)", "after": "pass", "end": "",
    }  # fmt: skip
    return TRAP.format(**plain | given)


STACKED = {"body": "h = cell(w, h, x); outs.append(h)".replace("; ", "\n        ")}
TRAPS = {
    "text on the way": ({"body": "h = cell(w, h, x)\n        print(h)"}, "print"),
    "text in what it calls": ({"more": "def log(h):\n    print(h)\n",
                               "body": "h = cell(w, h, x)\n        log(h)"}, "print"),
    "chance of the host": ({"body": "h = cell(w, h, x) * random.random()"}, "random"),
    "a list that is read as one": ({**STACKED, "end": ", outs"}, "not only stacked"),
    "a list that is read in the loop": (
        {"body": "h = cell(w, h, x)\n        outs.append(h)\n        h = h + len(outs)",
         "end": ", jnp.stack(outs)"}, "not only stacked"),
    "a list that is not empty": ({**STACKED, "before": "outs.append(h)", "end": ", jnp.stack(outs)"},
                                 "not only stacked"),
    "a list of another name": ({**STACKED, "empty": " = kept", "end": ", jnp.stack(outs)"}, "another"),
    "two results in one list": ({"body": "h = cell(w, h, x)\n        outs.append(h)\n"
                                 "        outs.append(x)", "end": ", jnp.stack(outs)"}, "one list"),
    "numbers that are kept": ({"body": "h = cell(w, h, x)\n        outs.append(SCALE)",
                               "end": ", jnp.stack(outs)"}, "no array"),
    "leaves early": ({"body": "h = cell(w, h, x)\n        break"}, "leave the loop"),
    "leaves some out": ({"body": "if SCALE > 1:\n            continue\n        h = cell(w, h, x)"},
                        "decides"),
    "an else": ({"body": "h = cell(w, h, x)\n    else:\n        h = -h"}, "else"),
    "a loop within": ({"body": "for _ in range(3):\n            h = cell(w, h, x)"}, "loops again"),
    "by a value": ({"body": "h = h if h[0] > 0 else cell(w, h, x)"}, "condition"),
    "it grows": ({"body": "h = jnp.concatenate([h, x])"}, "another shape"),
    "it shrinks": ({"body": "h = h[::2] + h[1::2]"}, "another shape"),
    "it shrinks by halves": ({"body": "a, b = jnp.split(h, 2)\n        h = a + b * x.mean()"},
                             "another shape"),
    "a rank more": ({"body": "h = h[None] + x"}, "another shape"),
    "states change places": ({"before": "g = w", "body": "h, g = g, h", "end": ", g"}, "another shape"),
    "a state follows another": ({"before": "g = w[0]", "body": "g, h = h, cell(w, h, x)[:2]"},
                                "another shape"),
    "another structure": ({"body": "h = (h, x)"}, "another shape"),
    "a state that counts": ({"before": "n = 0", "body": "h = cell(w, h, x)\n        n += 1",
                             "end": ", jnp.zeros(n)"}, "number of Python"),
    "a number that decides": ({"loop": "t in range(len(xs))",
                               "body": "h = cell(w, h, xs[t]) if t % 2 else h"}, "number of the pass"),
    "a number that is computed with": ({"loop": "t in range(len(xs))",
                                        "body": "h = cell(w, h, xs[t]) * t"}, "number of the pass"),
    "neighbours": ({"loop": "t in range(len(xs))", "body": "h = cell(w, h, xs[t - 1])"},
                   "number of the pass"),
    "a list of arrays": ({"kind": "list"}, "no list of them"),
    "layers that differ": ({"kind": "tuple", "body": "h = jnp.tanh(h @ x)"}, "no list of them"),
    "of several lengths": ({"loop": "x, y in zip(xs, xs[1:])", "body": "h = cell(w, h, x + y)"},
                           "lengths"),
    "numbered": ({"loop": "t, x in enumerate(xs)"}, "not certain"),
    "the last part": ({"end": ", x"}, "of the last pass"),
    "the last result": ({"body": "y = cell(w, h, x)\n        h = y * 2", "end": ", y"},
                        "of the last pass"),
    "a closure that sees each pass": (
        {"before": "seen = lambda: y", "body": "y = cell(w, h, x)\n        h = y * seen()"}, "y is read"),
    "a function that sees the state": (
        {"before": "def seen(x):\n        return cell(w, h, x)", "body": "h = seen(x) + 0 * h"},
        "h is read by another"),
    "a lambda hides that it grows": (
        {"body": "h = jax.vmap(lambda a: jnp.concatenate([h, h]) + a)(x)"}, "another shape"),
    "what it goes over changes": ({"loop": "t in range(4)",
                                   "body": "h = cell(w, h, xs[:, t])\n        xs = xs * 2"}, "goes over"),
    "how often it goes changes": ({"loop": "_ in range(len(h))"}, "goes over"),
    "its own array is written": ({"body": "xs[0] = x\n        h = cell(w, h, x)"}, "it was given"),
    "an attribute is set": ({"body": "h = cell(w, h, x)\n        w.last = h"}, "it was given"),
    "a global": ({"more": "def tell(h):\n    global count\n    count += 1\n    return h\n",
                  "body": "h = tell(cell(w, h, x))"}, "more than compute"),
    "a list of the module": ({"more": "def tell(h):\n    FLAGS.append(1)\n    return h\n",
                              "body": "h = tell(cell(w, h, x))"}, "changes"),
    "what it calls is not seen": ({"more": "from model import cell_of\n",
                                   "body": "h = cell_of(w, h, x)"}, "cell_of"),
    "no pass builds on another": ({"body": "outs.append(cell(w, w, x))",
                                   "end": ", jnp.stack(outs)"}, "builds on"),
}  # fmt: skip


@pytest.mark.parametrize("name", TRAPS)
def test_what_may_differ_is_refused(name: str) -> None:
    given, why = TRAPS[name]
    loop = f"for {given.get('loop', 'x in xs')}:"
    assert why in refused("scanned", trap(**given), loop)


def test_the_plain_program_of_the_traps_is_scanned() -> None:
    assert any("lax.scan" in line for line in change("scanned", trap(), "for x in")[1])


def test_a_loop_of_the_host_is_left() -> None:
    program = """
import jax

@jax.jit
def step(p, x):
    return p - x

def main(p, xs: jax.Array):
    for x in xs:
        p = step(p, x)
    return p
"""
    assert tried("scanned", program, "for x in") is None
    assert tried("scanned", trap(), "return jnp.tanh") is None

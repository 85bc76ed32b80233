"""What the constants of five rules stand on: steps of PyTorch on a CPU, with a fault and without.

Embeddings with dense gradients beside sparse ones: how long the gradient takes beside looking the
rows up, by a profile, and what part of the step comes back. Layers that are checkpointed beside the
same layers that are not: what part of the step the second pass takes, and what part comes back.
Rows of tokens that are padded beside the same rows as long as they need to be: what comes back for
each part of a row less. Layers that nobody updates, with gradients and without: what part of the
step the backward pass takes, and what comes back, with something trained below them or nothing.
Small networks as Python runs them and compiled: how many operators a step has, what part of it they
compute in beyond 13 us each, and what part comes back. A small network that is called once for each
piece of a row, rows of 4 to 12 pieces one after the other, and for one observation at a time: how
many operators a call has, what part comes back of it compiled, and how many times more rows a
second it takes where 64 go through it at once, padded.
Both ways of a pair take turns, so that a slow moment of the machine meets both.

Run: .venv/bin/python benchmarks/step_costs.py [--json]
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.networks import (
    Bare,
    Cell,
    Coupling,
    Euler,
    Piece,
    convolution,
    normed,
    perceptron,
    recurrent,
    transformer,
)

TURNS = 20
# Rows of the table, those that a batch looks up, and how wide they are.
TABLES = (
    (10_000, 4096, 64), (30_000, 4096, 64), (100_000, 4096, 64), (300_000, 4096, 64),
    (30_000, 4096, 256), (50_000, 8192, 512), (5_000, 512, 64), (20_000, 256, 32),
)  # fmt: skip
OPTIMIZERS = {"SGD": {"lr": 0.01}, "Adagrad": {"lr": 0.01}, "Adam": {"lr": 0.001}}
NAMES = {
    "rows": r"aten::(embedding|_embedding_bag)",
    "gradient": r"aten::(embedding|_embedding_bag)_dense_backward",
    "optimizer": r"Optimizer\.step#.*",
}


def in_turns(
    *steps: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Return the milliseconds of each of these, which take turns."""
    taken = [0.0 for _ in steps]
    for turn in range(-3, TURNS):
        for at, step in enumerate(steps):
            began = clock()
            step()
            if turn >= 0:
                taken[at] += 1e3 * (clock() - began) / TURNS
    return taken


def table(rows: int, batch: int, width: int, name: str, *, sparse: bool) -> Callable[[], None]:
    """Return a step of training with a table in front of one layer."""
    kind: Any = getattr(torch.optim, name)
    embedding, layer = nn.Embedding(rows, width, sparse=sparse), nn.Linear(width, width)
    optimizers = [kind(layer.parameters(), **OPTIMIZERS[name])]
    of_table: Any = torch.optim.SparseAdam if sparse and name == "Adam" else kind
    optimizers.append(of_table(embedding.parameters(), **OPTIMIZERS[name]))

    def step() -> None:
        ids = torch.randint(rows, (batch,))
        for optimizer in optimizers:
            optimizer.zero_grad()
        layer(embedding(ids)).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()

    return step


def profiled(dense: Callable[[], None], sparse: Callable[[], None]) -> dict[str, float]:
    """Return what parts of the first take; in turns with the second, as memory is used again."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        for _ in range(TURNS):
            with record_function("dense"):
                dense()
            sparse()
    events = [e for e in seen.events() or () if _within(e, "dense")]
    return {
        what: sum(e.cpu_time_total for e in events if re.fullmatch(like, e.name)) / TURNS / 1e3
        for what, like in NAMES.items()
    }


def _within(event: Any, name: str) -> bool:
    parent = event.cpu_parent
    return parent is not None and (parent.name == name or _within(parent, name))


def embeddings() -> dict[str, dict[str, float]]:
    """Return what dense gradients of tables cost, by how large these are."""
    found = {}
    for rows, batch, width in TABLES:
        for name in OPTIMIZERS:
            dense, sparse = (table(rows, batch, width, name, sparse=s) for s in (False, True))
            with_it, without = in_turns(dense, sparse)
            ms = profiled(dense, sparse)
            found[f"{rows} rows of {width}, {batch} looked up, {name}"] = {
                "gradient_by_rows": round(ms["gradient"] / ms["rows"], 1),
                "gradient": round(ms["gradient"] / with_it, 2),
                "optimizer": round(ms["optimizer"] / with_it, 2),
                "comes_back": round(1 - without / with_it, 2),
            }
    return found


class Timed(Bare):
    """One whose second passes are timed: a checkpoint ends one early, by an exception."""

    goes_back = False
    took_s = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Run the layer."""
        began = time.perf_counter()
        try:
            return super().forward(x)
        finally:
            Timed.took_s += Timed.goes_back * (time.perf_counter() - began)


# What makes a layer, how many of them and how wide; and the shape of what they are given.
NETWORKS: tuple[tuple[Callable[[int], nn.Module], int, int, tuple[int, ...]], ...] = (
    (convolution, 8, 32, (8, 32, 24, 24)),
    (convolution, 4, 16, (32, 16, 24, 24)),
    (perceptron, 6, 128, (256, 128)),
    (perceptron, 4, 512, (64, 512)),
    (perceptron, 12, 32, (64, 32)),
    (transformer, 4, 64, (16, 48, 64)),
    (transformer, 2, 192, (16, 48, 192)),
    (recurrent, 3, 64, (32, 24, 64)),
)


def trained(layers: nn.ModuleList, shape: tuple[int, ...], *, again: bool) -> Callable[[], None]:
    """Return a step of training of these layers, with a checkpoint around each or without."""
    optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-3)

    def step() -> None:
        x = torch.randn(shape)
        optimizer.zero_grad()
        for layer in layers:
            x = checkpoint(layer, x, use_reentrant=False) if again else layer(x)
        Timed.goes_back = True
        x.square().mean().backward()
        Timed.goes_back = False
        optimizer.step()

    return step


def recomputed() -> dict[str, dict[str, float]]:
    """Return what checkpoints cost, by the layers."""
    found = {}
    for kind, number, width, shape in NETWORKS:
        layers = nn.ModuleList(Timed(kind(width)) for _ in range(number))
        again, once = (trained(layers, shape, again=each) for each in (True, False))
        with_it, without = in_turns(again, once)
        Timed.took_s = 0.0
        for _ in range(TURNS):
            again()
        share, back = 1e3 * Timed.took_s / TURNS / with_it, 1 - without / with_it
        found[f"{kind.__name__}, {number} of {width}"] = {
            "second_pass": round(share, 2),
            "comes_back": round(back, 2),
            "times": round(back / share, 2),
        }
    return found


# What makes a layer, how many of them and how wide; rows, their length, and what they need of it.
PADDED: tuple[tuple[Callable[[int], nn.Module], int, int, int, int, float], ...] = (
    (transformer, 4, 64, 16, 64, 0.4),
    (transformer, 3, 128, 16, 192, 0.3),
    (transformer, 2, 192, 32, 96, 0.5),
    (transformer, 2, 96, 64, 64, 0.375),
    (transformer, 2, 128, 8, 512, 0.25),
    (transformer, 2, 256, 8, 256, 0.6),
    (recurrent, 2, 64, 32, 96, 0.4),
    (recurrent, 1, 128, 16, 200, 0.25),
    (perceptron, 3, 128, 16, 128, 0.5),
    (perceptron, 2, 256, 32, 64, 0.3),
)
VOCABULARY = 3000


def reading(layers: nn.ModuleList, shape: tuple[int, int], width: int) -> Callable[[], None]:
    """Return a step of training of these layers on rows of tokens."""
    embedding, head = nn.Embedding(VOCABULARY, width), nn.Linear(width, 10)
    parameters = [p for each in (embedding, layers, head) for p in each.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)

    def step() -> None:
        x = embedding(torch.randint(VOCABULARY, shape))
        optimizer.zero_grad()
        for layer in layers:
            x = layer(x)
        head(x.mean(1)).square().mean().backward()
        optimizer.step()

    return step


def padded() -> dict[str, dict[str, float]]:
    """Return what padding costs, by the layers."""
    found = {}
    for kind, number, width, rows, length, needs in PADDED:
        layers = nn.ModuleList(Bare(kind(width)) for _ in range(number))
        long, short = (reading(layers, (rows, n), width) for n in (length, round(length * needs)))
        with_it, without = in_turns(long, short)
        back = 1 - without / with_it
        found[f"{kind.__name__}, {number} of {width}, {rows} rows of {length}"] = {
            "needs": needs,
            "comes_back": round(back, 2),
            "times": round(back / (1 - needs), 2),
        }
    return found


def headed(
    layers: nn.ModuleList, shape: tuple[int, ...], took: list[float], *, below: bool, frozen: bool
) -> Callable[[], None]:
    """Return a step that trains a head behind these layers, and perhaps a number before them."""
    head, scale = nn.Linear(shape[-1], 10), nn.Parameter(torch.ones(shape[-1]))
    optimizer = torch.optim.AdamW([*head.parameters(), scale], lr=1e-3)

    def step() -> None:
        layers.requires_grad_(not frozen)
        layers.zero_grad()
        optimizer.zero_grad()
        x = torch.randn(shape)
        x = x * scale if below else x
        for layer in layers:
            x = layer(x)
        loss = head(x).square().mean()
        began = time.perf_counter()
        loss.backward()
        took.append(time.perf_counter() - began)
        optimizer.step()

    return step


def unused() -> dict[str, dict[str, float]]:
    """Return what gradients cost that nobody uses, by the layers and what lies below them."""
    found = {}
    for kind, number, width, shape in NETWORKS:
        layers = nn.ModuleList(Bare(kind(width)) for _ in range(number))
        for below in (False, True):
            took: list[float] = []
            whole = headed(layers, shape, took, below=below, frozen=False)
            part = headed(layers, shape, [], below=below, frozen=True)
            with_it, without = in_turns(whole, part)
            back, comes = 1e3 * sum(took[3:]) / TURNS / with_it, 1 - without / with_it
            found[f"{kind.__name__}, {number} of {width}{', one below' * below}"] = {
                "backward": round(back, 2),
                "comes_back": round(comes, 2),
                "times": round(comes / back, 2),
            }
    return found


EAGER: tuple[tuple[Callable[[int], nn.Module], int, int, tuple[int, ...]], ...] = (
    (Cell, 1, 32, (64, 24, 32)),
    (Coupling, 12, 8, (256, 8)),
    (Euler, 2, 4, (256, 4)),
    (normed, 24, 48, (64, 48)),
    (convolution, 4, 8, (64, 8, 16, 16)),
    (transformer, 3, 32, (64, 16, 32)),
)


def trained_as_it_is(
    layers: nn.Module, shape: tuple[int, ...], *, fused: bool
) -> Callable[[], None]:
    """Return a step of these layers, compiled and with a fused optimizer or neither."""
    run: Any = torch.compile(layers) if fused else layers
    optimizer = torch.optim.Adam(layers.parameters(), lr=1e-3, fused=fused)
    x = torch.randn(shape)

    def step() -> None:
        optimizer.zero_grad()
        run(x).square().mean().backward()
        optimizer.step()

    return step


def compiled() -> dict[str, dict[str, float]]:
    """Return what a compiler gives back of steps made of small operators."""
    found = {}
    for kind, number, width, shape in EAGER:
        layers = nn.Sequential(*(Bare(kind(width)) for _ in range(number)))
        eager, fused = (trained_as_it_is(layers, shape, fused=fused) for fused in (False, True))
        before, after = in_turns(eager, fused)
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            eager()
        own = [each for each in seen.key_averages() if each.key.startswith("aten::")]
        beyond = sum(max(0.0, each.self_cpu_time_total - 13 * each.count) for each in own)
        found[f"{kind.__name__}, {number} of {width}"] = {
            "operators": sum(each.count for each in own),
            "compute": round(beyond / 1e3 / before, 2),
            "comes_back": round(1 - after / before, 2),
        }
    return found


# Operations beside the layers of a network that is called for each piece.
MORE: Final = (0, 5, 10, 20, 40)
ROWS: Final = 64


def piece_by_piece(more: int, rows: int, *, fused: bool = False) -> Callable[[], None]:
    """Return a step over rows of letters, of other lengths each time; padded if they are many."""
    network = Piece(64, more)
    run: Any = torch.compile(network) if fused else network
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    lengths = itertools.cycle([12] if rows > 1 else [6, 11, 4, 8, 12, 7, 9, 5])

    def step() -> None:
        state = torch.zeros(rows, 64)
        optimizer.zero_grad()
        out = state
        for x in torch.randn(next(lengths), rows, 64):
            out, state = run(x, state)
        out.square().mean().backward()
        optimizer.step()

    return step


def one_observation(more: int, rows: int, *, fused: bool = False) -> Callable[[], None]:
    """Return what a policy does for an observation, or for those of many environments."""
    network = Piece(64, more)
    run: Any = torch.compile(network) if fused else network
    x, state = torch.randn(2, rows, 64)

    def step() -> None:
        with torch.no_grad():
            run(x, state)

    return step


def called() -> dict[str, dict[str, float]]:
    """Return what comes back of small networks that are called for little: compiled, and batched.

    A turn is eight steps, which have each length once.
    """
    found = {}
    for kind, (more, calls) in itertools.product(
        (piece_by_piece, one_observation), ((n, 62) for n in MORE)
    ):
        # One network after the other is the same code to the compiler, which gives up on it.
        torch.compiler.reset()
        ways = kind(more, 1), kind(more, 1, fused=True), kind(more, ROWS)
        # All of it runs in this thread and that of the backward pass.
        before, after, batched = in_turns(*map(_eight, ways), clock=time.process_time)
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            _eight(ways[0])()
        own = sum(each.count for each in seen.key_averages() if each.key.startswith("aten::"))
        found[f"{kind.__name__}, {more} more"] = {
            "operators": round(own / (calls if kind is piece_by_piece else 8)),
            "comes_back": round(1 - after / before, 2),
            "rows": round(ROWS * before / batched, 1),
        }
    return found


def _eight(step: Callable[[], None]) -> Callable[[], None]:
    def turn() -> None:
        for _ in range(8):
            step()

    return turn


def main() -> None:
    """Print them."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--json", action="store_true")
    given = asked.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(1)
    torch.set_num_threads(1)
    result = {
        "dense_gradients_of_a_table": embeddings(),
        "layers_again": recomputed(),
        "padded_rows": padded(),
        "gradients_that_nobody_uses": unused(),
        "small_operators": compiled(),
        "called_for_little": called(),
    }
    if given.json:
        print(json.dumps(result))
        return
    for name, figures in result.items():
        print(name)
        for what, value in figures.items():
            print(f"  {what}: {value}")


if __name__ == "__main__":
    main()

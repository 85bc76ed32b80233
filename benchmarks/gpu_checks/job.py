"""A small training job that checks itself: each round starts anew and must lose the same losses.

A program of its own that knows nothing of ours. A round is STEPS steps from the same seed; its
losses are read at its end. It says "ready" after the first round, and at the end one JSON object.

Run by a check: job.py jax|torch [--rounds N] [--moments FILE] [--server PORT]
Without --rounds it works until a line comes, or its input ends.
"""

import argparse
import hashlib
import json
import os
import select
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Set before a framework is loaded. Without the first a GPU may add up in any order; without the
# second one job takes most of its memory, and there is none for the next.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# The same for JAX; a later one may not know it any more.
EXACT = {"xla_gpu_deterministic_ops": True}
STEPS = 20
SIZE, BATCH, LAYERS = 128, 32, 4
Round = Callable[[], list[float]]


def torch_round() -> tuple[Round, str]:
    """Return what a round does, and where."""
    import torch  # noqa: PLC0415  one of the two

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.use_deterministic_algorithms(True)
    if device == "cpu":
        torch.set_num_threads(1)

    def work() -> list[float]:
        torch.manual_seed(1)
        layers: list[Any] = []
        for _ in range(LAYERS):
            layers += [torch.nn.Linear(SIZE, SIZE), torch.nn.ReLU()]
        model = torch.nn.Sequential(*layers).to(device)
        best = torch.optim.AdamW(model.parameters(), lr=0.001)
        x, losses = torch.randn(BATCH, SIZE).to(device), []
        for _ in range(STEPS):
            loss = torch.nn.functional.mse_loss(model(x), x)
            best.zero_grad()
            loss.backward()
            best.step()
            losses.append(loss.detach())
        return list(torch.stack(losses).tolist())

    return work, device


def jax_round() -> tuple[Round, str]:
    """Return what a round does, and where."""
    import jax  # noqa: PLC0415  one of the two
    import jax.numpy as jnp  # noqa: PLC0415

    def step_of(weights: Any, x: Any) -> Any:
        def loss_of(weights: Any) -> Any:
            y = x
            for w in weights:
                y = jnp.tanh(y @ w)
            return jnp.mean((y - x) ** 2)

        loss, slopes = jax.value_and_grad(loss_of)(weights)
        return [w - 0.01 * s for w, s in zip(weights, slopes, strict=True)], loss

    keys = jax.random.split(jax.random.key(1), LAYERS + 1)
    first = [jax.random.normal(k, (SIZE, SIZE)) * SIZE**-0.5 for k in keys[1:]]
    x = jax.random.normal(keys[0], (BATCH, SIZE))
    step = jax.jit(step_of, compiler_options=EXACT)
    try:
        step(first, x)
    except jax.errors.JaxRuntimeError:
        step = jax.jit(step_of)

    def work() -> list[float]:
        weights, losses = first, []
        for _ in range(STEPS):
            weights, loss = step(weights, x)
            losses.append(loss)
        return [float(loss) for loss in jax.device_get(losses)]

    return work, jax.default_backend()


def main() -> None:
    """Work, and tell how it went."""
    asked = argparse.ArgumentParser()
    asked.add_argument("framework", choices=("jax", "torch"))
    asked.add_argument("--rounds", type=int)
    asked.add_argument("--moments", type=Path, default=Path(os.devnull))
    asked.add_argument("--server", type=int)
    given = asked.parse_args()
    if given.server is not None:
        import jax  # noqa: PLC0415

        jax.profiler.start_server(given.server)
    work, device = jax_round() if given.framework == "jax" else torch_round()
    with given.moments.open("wb", buffering=0) as moments:
        loop(work, device, given.rounds, moments)


def loop(work: Round, device: str, most: int | None, moments: Any) -> None:
    """Do rounds until the end; write down when each was over."""
    first = work()
    print("ready", flush=True)
    rounds = wrong = 0
    longest, last = 0, time.monotonic_ns()
    while rounds < most if most is not None else not told_to_end():
        wrong += work() != first
        rounds += 1
        now = time.monotonic_ns()
        longest, last = max(longest, now - last), now
        moments.write(struct.pack("<q", now))
    facts = {"rounds": rounds, "wrong": wrong, "longest_round_ms": longest / 1e6, "device": device}
    losses = ",".join(loss.hex() for loss in first)
    digest = hashlib.sha256(losses.encode()).hexdigest()
    print(json.dumps({**facts, "losses": digest, "last_loss": first[-1]}), flush=True)


def told_to_end() -> bool:
    """Tell whether something came, or nothing can come any more."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


if __name__ == "__main__":
    main()

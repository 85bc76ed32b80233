"""The jobs of ``agent_cost.py`` that train: steps with the probes' hooks and without, and traces.

Run by ``agent_cost.py`` as: agents-folder kind milliseconds seconds [gpu]; prints one JSON object.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

# One thread computes, so that its CPU time is all there is. Set before a framework is loaded.
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "" if sys.argv[5:] == ["gpu"] else "cpu"

from agent_cost_inside import Agent, Client, tidy

AGENTS, KIND = sys.argv[1:3]
ON_GPU = sys.argv[5:] == ["gpu"]
STEP_SECONDS, SECONDS = float(sys.argv[3]) / 1000, float(sys.argv[4])
# Short: the two blocks of a pair must meet the same machine.
BLOCK_SECONDS = 0.05
# What comes before a block; of long steps fewer: what is new is little beside them.
WARM_STEPS, WARM_SECONDS = 200, 0.05
SIZES = (8, 64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 2560, 3072, 3328, 3584, 4096)
FEATURES, BATCH, BATCHES = 64, 32, 2_000
if ON_GPU:
    SIZES = (8, 512, 1024, 2048, 3072, 4096, 6144, 8192, 12288)
    BATCH, BATCHES = 4096, 200
TRACES = 2
TRACE_SECONDS = 0.25
# The longest that a trace may take to come, and what is let pass before the next one.
TRACE_PATIENCE, REST_SECONDS = 20.0, 1.5
# In its first seconds the agent looks at all that is there, and at what seldom changes more often;
# a quick run does not wait for the end of that.
FIRST_SECONDS = 16.0
# Enough for its own looks at what seldom changes.
STEADY_SECONDS = 11.0
# From here on the calls that hooks hang on are timed: they would be lost in the whole step.
LONG_SECONDS = 0.01

Step = Callable[[], object]
# The CPU time of what hooks hang on, step by step; nothing where they hang on all that a step does.
spent: list[int] = []


def torch_steps(size: int) -> Step:
    """Return a step: a batch of the loader, forward, backward, the optimizer, one value read."""
    torch: Any = importlib.import_module("torch")
    data: Any = importlib.import_module("torch.utils.data")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if size == SIZES[0]:
        return tiny_torch_steps(torch, data)
    nn = torch.nn
    body = (nn.Linear(FEATURES, size), nn.ReLU(), nn.Linear(size, size), nn.ReLU())
    place = "cuda" if ON_GPU and torch.cuda.is_available() else "cpu"
    model: Any = nn.Sequential(*body, nn.Linear(size, 1)).to(place)
    # A head is trained: what an optimizer takes for millions of values hides its hooks.
    model[:-1].requires_grad_(requires_grad=False)
    optimizer = torch.optim.SGD(model[-1].parameters(), lr=1e-6)
    rows = data.TensorDataset(torch.randn(BATCHES, BATCH, FEATURES))
    batches = endless(data.DataLoader(rows, batch_size=None))
    clock = time.thread_time_ns

    def step() -> object:
        began = clock()
        (batch,) = next(batches)
        waited = clock() - began
        loss = model(batch.to(place) if ON_GPU else batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        began = clock()
        optimizer.step()
        value = loss.item()
        spent.append(clock() - began + waited)
        return value

    return step


def tiny_torch_steps(torch: Any, data: Any) -> Step:
    """Return a step with next to nothing between what the hooks look at: autograd is left out."""
    weight = torch.zeros(8, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1e-6)
    rows = data.TensorDataset(torch.randn(20_000, 8))
    # Rows as they are: to collate a batch takes longer than all the rest.
    batches = endless(data.DataLoader(rows, batch_size=None))
    filler = torch.randn(128, 128)

    def step() -> object:
        (weight.grad,) = next(batches)
        filler @ filler
        optimizer.step()
        return weight[0].item()

    return step


def endless(loader: Any) -> Iterator[Any]:
    """Yield batches for ever."""
    while True:
        yield from loader


def jax_steps(size: int) -> Step:
    """Return a step: one jitted update and one value read."""
    jax: Any = importlib.import_module("jax")
    x = jax.random.normal(jax.random.key(1), (size, size))

    def loss_of(w: Any, x: Any) -> Any:
        return ((x @ w) ** 2).mean()

    # The data as an argument: a constant would be part of the program, and of each trace.
    @jax.jit  # type: ignore[untyped-decorator,unused-ignore]
    def update(w: Any, x: Any) -> Any:
        loss, grad = jax.value_and_grad(loss_of)(w, x)
        return w - 1e-6 * grad, loss

    state = [jax.random.normal(jax.random.key(2), (size, size))]
    clock = time.thread_time_ns

    def short() -> object:
        state[0], loss = update(state[0], x)
        return float(loss)

    def long() -> object:
        state[0], loss = update(state[0], x)
        began = clock()
        value = float(loss)
        spent.append(clock() - began)
        return value

    return long if STEP_SECONDS >= LONG_SECONDS else short


def steps_of(size: int) -> Step:
    """Return the steps of the kind that is asked for."""
    return torch_steps(size) if KIND == "torch" else jax_steps(size)


def calibrated() -> tuple[Step, int]:
    """Return steps that take about as long as is asked for, and how many make a block."""
    found = []
    for size in SIZES:
        step = steps_of(size)
        # The least: whatever else the machine does only adds to it.
        took = min(_seconds(step) for _ in range(30))
        found.append((abs(took - STEP_SECONDS), took, step))
        if took > 2 * STEP_SECONDS:
            break
    _, took, step = min(found, key=lambda each: each[0])
    return step, max(4, round(BLOCK_SECONDS / took))


def _seconds(step: Step) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def block(step: Step, steps: int) -> tuple[float, float, float]:
    """Return what a step takes, in ns: on the clock, of this thread's CPU time, and at the hooks.

    Where a step is long, what hooks cost is lost in what else it does: it is timed where they are.
    """
    spent.clear()
    cpu, wall = time.thread_time_ns(), time.perf_counter_ns()
    for _ in range(steps):
        step()
    wall, cpu = time.perf_counter_ns() - wall, time.thread_time_ns() - cpu
    return wall / steps, cpu / steps, statistics.median(spent) if spent else cpu / steps


def pairs(step: Step, steps: int, agent: Agent) -> list[tuple[Any, Any]]:
    """Return blocks without the probes' hooks and with them, in random order within each pair.

    The agent's thread is held meanwhile: what it takes itself is in ``steady``.
    """
    found = []
    until = time.monotonic() + SECONDS
    agent.hold()
    while time.monotonic() < until:
        made = {}
        for on in random.sample((True, False), 2):
            agent.turn(on=on)
            warm(step)
            agent.look()
            warm(step)
            made[on] = block(step, steps)
        found.append((made[False], made[True]))
    agent.turn(on=True)
    agent.let_go()
    return found


def warm(step: Step) -> None:
    """Step until Python has learned anew what lies where: it forgets when a class changes."""
    until = time.monotonic() + WARM_SECONDS
    for _ in range(WARM_STEPS):
        step()
        if time.monotonic() > until:
            break


def steady(step: Step, steps: int, agent: Agent, seconds: float) -> tuple[float, float]:
    """Return the share of a core that the agent's thread takes, and the middle wall of a step."""
    walls = []
    own, began = agent.cpu_time_ns(), time.monotonic_ns()
    while time.monotonic_ns() - began < seconds * 1e9:
        walls.append(block(step, steps)[0])
    share = (agent.cpu_time_ns() - own) / (time.monotonic_ns() - began)
    return share, statistics.median(walls)


def traces(step: Step, client: Client) -> list[dict[str, Any]]:
    """Return of each trace what the job lost by it."""
    found = []
    for _ in range(TRACES):
        usual_ns = usual(step, REST_SECONDS)
        answer = client.ask({"do": "trace", "seconds": TRACE_SECONDS})
        if not answer.get("ok"):
            found.append({"why": str(answer.get("why"))})
            continue
        found.append(_trace(step, usual_ns, client))
        client.ask({"do": "drop", "id": answer["id"]})
    return found


def usual(step: Step, seconds: float) -> float:
    """Return the mean time of a step, with whatever the machine does meanwhile."""
    began, steps = time.monotonic_ns(), 0
    while time.monotonic_ns() - began < seconds * 1e9:
        step()
        steps += 1
    return (time.monotonic_ns() - began) / steps


def _trace(step: Step, usual_ns: float, client: Client) -> dict[str, Any]:
    """Step until a trace is done; what the steps took more is what it cost."""
    moments = [time.monotonic_ns()]
    looked, ended = moments[0], None
    while ended is None and moments[-1] - moments[0] < TRACE_PATIENCE * 1e9:
        step()
        moments.append(time.monotonic_ns())
        if moments[-1] - looked > 50_000_000:
            ended = client.traced()
            # The look is not the job's.
            now = time.monotonic_ns()
            moments = [moment + now - moments[-1] for moment in moments]
            looked = now
    if ended is None or ended[0] != "done":
        return {"why": "it did not come" if ended is None else str(ended[1].get("why"))}
    facts, steps = ended[1], len(moments) - 1
    window = facts["ended_ns"] - facts["began_ns"]
    lost = moments[-1] - moments[0] - steps * usual_ns
    return {"window_ns": window, "lost_ns": lost, "held_ns": facts["held_ns"]}


def device() -> str:
    """Return where the steps ran."""
    if KIND == "jax":
        return str(importlib.import_module("jax").default_backend())
    return "cuda" if ON_GPU and importlib.import_module("torch").cuda.is_available() else "cpu"


def main() -> None:
    """Measure and print."""
    step, steps = calibrated()
    agent = Agent(AGENTS)
    agent.come()
    found = pairs(step, steps, agent)
    first, _ = steady(step, steps, agent, min(1.3 * SECONDS, FIRST_SECONDS))
    share, wall = steady(step, steps, agent, min(SECONDS, STEADY_SECONDS))
    client = Client()
    taken = traces(step, client)
    client.close()
    agent.go()
    result = {"pairs": found, "agent_first": first, "agent_share": share, "step_ns": wall}
    print(json.dumps({**result, "traces": taken, "device": device()}))
    tidy()


if __name__ == "__main__":
    main()

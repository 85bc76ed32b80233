"""Programs that use the GPU and know nothing of ours: they stand for a user's.

`look` prints where a framework runs. `matmul` and `h2d` are loads for the recorder: they say
"ready", work until their input ends, and print when they began and ended and the bytes copied by
then. `profile` trains under the framework's own profiler, and leaves the trace and facts.json: the
profiler's totals in ns, and what notes claim.

Run by a check: programs.py look|matmul|h2d|profile torch|jax|none [SECONDS|FOLDER]
"""

import json
import re
import select
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

Step = Callable[[], int]  # does some work, returns the bytes that it copied to the GPU
MATRIX, COPY_BYTES, BATCH = 8192, 256 << 20, 10
STEPS, SIZE, COPY_FLOATS = 20, 512, 1 << 20


def look(framework: str) -> dict[str, Any]:
    """Return where a framework runs, once it has run."""
    if framework == "jax":
        import jax  # noqa: PLC0415  one of the two

        jax.numpy.ones(8).sum().block_until_ready()
        return {"device": jax.default_backend(), "name": jax.local_devices()[0].device_kind}
    import torch  # noqa: PLC0415  one of the two

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.ones(8, device=device).sum().item()
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return {"device": device, "name": name, "cuda": torch.version.cuda}


# Loads -------------------------------------------------------------------------------------------
def load(kind: str, framework: str, seconds: float) -> None:
    """Work in one way for half of the time, and then in another, if there is one."""
    steps = {"torch": torch_steps, "jax": jax_steps}.get(framework, no_steps)(kind)
    steps[0]()
    began, copied = time.monotonic(), 0
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        copied += steps[0 if time.monotonic() < began + seconds / 2 else -1]()
    print(json.dumps([(began, 0), (time.monotonic(), copied)]))


def no_steps(_kind: str) -> list[Step]:
    """Return a step for a machine without a GPU."""
    return [lambda: time.sleep(0.05) or 0]


def torch_steps(kind: str) -> list[Step]:
    """Return products of matrices, or copies from pageable and from pinned memory."""
    import torch  # noqa: PLC0415

    def multiply() -> int:
        for _ in range(BATCH):
            torch.mm(a, b, out=c)
        torch.cuda.synchronize()
        return 0

    def copy(source: Any) -> int:
        target.copy_(source)
        torch.cuda.synchronize()
        return COPY_BYTES

    if kind == "matmul":
        # Random numbers: on zeros the GPU draws less power.
        a, b = (torch.randn(MATRIX, MATRIX, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        c = torch.empty_like(a)
        return [multiply]
    target = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    pageable = torch.ones(COPY_BYTES, dtype=torch.uint8)
    return [partial(copy, pageable), partial(copy, pageable.clone().pin_memory())]


def jax_steps(kind: str) -> list[Step]:
    """Return products of matrices, or copies."""
    import jax  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415

    def multiply() -> int:
        [product(a, b) for _ in range(BATCH)][-1].block_until_ready()
        return 0

    def copy() -> int:
        jax.device_put(source).block_until_ready()
        return COPY_BYTES

    if kind == "matmul":
        product, kind_of = jax.jit(jax.numpy.matmul), jax.numpy.bfloat16
        a, b = (jax.random.normal(jax.random.key(s), (MATRIX, MATRIX), kind_of) for s in range(2))
        return [multiply]
    source = np.ones(COPY_BYTES, dtype=np.uint8)
    return [copy]


# Training under a profiler -----------------------------------------------------------------------
def torch_run(folder: Path) -> dict[str, Any]:
    """Train under torch.profiler; return what key_averages says."""
    import torch  # noqa: PLC0415
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415

    is_gpu = torch.cuda.is_available()
    device = "cuda" if is_gpu else "cpu"
    before = dict(torch.cuda.memory_stats()) if is_gpu else {}
    model = torch.nn.Sequential(
        torch.nn.Linear(SIZE, SIZE), torch.nn.ReLU(), torch.nn.Linear(SIZE, SIZE)
    ).to(device)
    best = torch.optim.SGD(model.parameters(), lr=0.01)
    pageable = torch.ones(COPY_FLOATS)
    sources = [pageable, pageable.pin_memory()] if is_gpu else [pageable]

    def step() -> float:
        copied = [source.to(device) for source in sources]
        loss = model(copied[0][: SIZE * SIZE].reshape(SIZE, SIZE)).square().mean()
        best.zero_grad()
        loss.backward()
        best.step()
        return float(loss.item())

    step()
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA][: 1 + is_gpu]
    ) as profiler:
        for _ in range(STEPS):
            step()
        if is_gpu:
            torch.cuda.synchronize()
    profiler.export_chrome_trace(str(folder / "trace.json"))
    totals: dict[str, dict[str, int]] = {}
    for each in profiler.key_averages():
        is_mark = getattr(each, "is_user_annotation", False) and is_gpu
        if is_gpu == str(each.device_type).endswith("CUDA") and not is_mark:
            us = each.self_device_time_total if is_gpu else each.self_cpu_time_total
            totals[each.key] = {"count": each.count, "ns": round(us * 1000)}
    loader = torch.utils.data.DataLoader([1, 2], pin_memory=is_gpu)
    return {
        "device": device,
        "totals": totals,
        "memory_stats_before": sorted(before),
        "memory_stats": dict(sorted(torch.cuda.memory_stats().items())) if is_gpu else {},
        "pin_memory": bool(getattr(iter(loader), "_pin_memory", False)),
    }


def jax_run(folder: Path) -> dict[str, Any]:
    """Train under jax.profiler; return what the planes say, read by JAX's own reader."""
    import jax  # noqa: PLC0415
    import jax.numpy as jnp  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415
    from jax.profiler import ProfileData  # noqa: PLC0415

    @jax.jit
    def step(w: Any, x: Any) -> Any:
        loss, slope = jax.value_and_grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)
        return w - 0.01 * slope, loss

    source = np.ones((SIZE, SIZE), np.float32)
    w, _ = step(jax.random.normal(jax.random.key(1), (SIZE, SIZE)), jax.device_put(source))
    with jax.profiler.trace(str(folder)):
        for _ in range(STEPS):
            w, loss = step(w, jax.device_put(source))
            float(loss)
    (file,) = folder.rglob("*.xplane.pb")
    trace = file.rename(folder / "trace.xplane.pb")
    return {
        "device": jax.default_backend(),
        "planes": {
            plane.name: kinds_of(plane) for plane in ProfileData.from_file(str(trace)).planes
        },
        "memory_stats": jax.local_devices()[0].memory_stats(),
    }


def kinds_of(plane: Any) -> dict[str, Any]:
    """Return the totals of each kind of line, and the names of what its events carry."""
    found: dict[str, Any] = {}
    for line in plane.lines:
        empty = {"lines": [], "totals": {}, "stats": Counter(), "some": {}, "operations": []}
        kind = found.setdefault(re.sub(r"[\d#/]+.*", "#", line.name), empty)
        kind["lines"].append(line.name)
        for event in line.events:
            total = kind["totals"].setdefault(event.name, {"count": 0, "ns": 0.0})
            total["count"] += 1
            total["ns"] += event.duration_ns
            stats = {name: str(value) for name, value in event.stats if name}
            kind["stats"].update(stats.keys())
            if "hlo_op" in stats and event.name not in kind["operations"]:
                kind["operations"].append(event.name)
            kind["some"].setdefault(re.sub(r"[\d._]+", "#", event.name)[:40], stats)
    for kind in found.values():
        kind["some"] = dict(list(kind["some"].items())[:12])
    return found


def main(what: str, framework: str, *more: str) -> None:
    """Be one of the programs."""
    if what == "look":
        print(json.dumps(look(framework)))
    elif what == "profile":
        facts = (jax_run if framework == "jax" else torch_run)(Path(more[0]))
        (Path(more[0]) / "facts.json").write_text(json.dumps(facts, indent=1, default=str))
    else:
        load(what, framework, float(more[0]))


if __name__ == "__main__":
    main(*sys.argv[1:])

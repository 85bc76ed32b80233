"""A small training run of each framework, traced by its own profiler, with what that says itself.

A program of its own that knows nothing of ours: it stands for whoever looks with the profiler's own
tools. It leaves the trace, and told.json: the profiler's totals, and facts that notes claim.

Run by a check: programs.py jax|torch FOLDER
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

STEPS, SIZE = 20, 512
COPY_FLOATS = 1 << 20


def torch_run(folder: Path) -> dict[str, Any]:
    """Train under torch.profiler; return what key_averages says, in ns."""
    import torch  # noqa: PLC0415  one of the two
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415

    device = "cuda" if torch.cuda.is_available() else "cpu"
    before = dict(torch.cuda.memory_stats()) if device == "cuda" else {}
    activities = [ProfilerActivity.CPU]
    activities += [ProfilerActivity.CUDA] if device == "cuda" else []
    model = torch.nn.Sequential(
        torch.nn.Linear(SIZE, SIZE), torch.nn.ReLU(), torch.nn.Linear(SIZE, SIZE)
    ).to(device)
    best = torch.optim.SGD(model.parameters(), lr=0.01)
    pageable = torch.ones(COPY_FLOATS)
    sources = [pageable, pageable.pin_memory()] if device == "cuda" else [pageable]

    def step() -> float:
        copied = [source.to(device) for source in sources]
        x = copied[0][: SIZE * SIZE].reshape(SIZE, SIZE)
        loss = model(x).square().mean()
        best.zero_grad()
        loss.backward()
        best.step()
        return float(loss.item())

    step()
    with profile(activities=activities) as profiler:
        for _ in range(STEPS):
            step()
        if device == "cuda":
            torch.cuda.synchronize()
    profiler.export_chrome_trace(str(folder / "trace.json"))
    totals: dict[str, dict[str, int]] = {}
    for each in profiler.key_averages():
        is_mark = getattr(each, "is_user_annotation", False) and device == "cuda"
        if (device == "cuda") == str(each.device_type).endswith("CUDA") and not is_mark:
            us = each.self_device_time_total if device == "cuda" else each.self_cpu_time_total
            totals[each.key] = {"count": each.count, "ns": round(us * 1000)}
    after = dict(torch.cuda.memory_stats()) if device == "cuda" else {}
    loader = torch.utils.data.DataLoader([1, 2], pin_memory=device == "cuda")
    return {
        "device": device,
        "totals": totals,
        "memory_stats_before": sorted(before),
        "memory_stats": {key: after[key] for key in sorted(after)},
        "pin_memory": bool(getattr(iter(loader), "_pin_memory", False)),
    }


def jax_run(folder: Path) -> dict[str, Any]:
    """Train under jax.profiler; return what the planes say, read by JAX's own reader, in ns."""
    import jax  # noqa: PLC0415  one of the two
    import jax.numpy as jnp  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415
    from jax.profiler import ProfileData  # noqa: PLC0415

    @jax.jit
    def step(w: Any, x: Any) -> Any:
        loss, slope = jax.value_and_grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)
        return w - 0.01 * slope, loss

    w = jax.random.normal(jax.random.key(1), (SIZE, SIZE))
    source = np.ones((SIZE, SIZE), np.float32)
    w, loss = step(w, jax.device_put(source))
    with jax.profiler.trace(str(folder)):
        for _ in range(STEPS):
            w, loss = step(w, jax.device_put(source))
            float(loss)
    (file,) = folder.rglob("*.xplane.pb")
    file.rename(folder / "trace.xplane.pb")
    planes = ProfileData.from_file(str(folder / "trace.xplane.pb")).planes
    device = jax.local_devices()[0]
    return {
        "device": jax.default_backend(),
        "planes": {plane.name: told_of(plane) for plane in planes},
        "memory_stats": device.memory_stats(),
    }


def told_of(plane: Any) -> dict[str, Any]:
    """Return the totals of each kind of line, and the names of what its events carry."""
    found: dict[str, Any] = {}
    for line in plane.lines:
        kind = re.sub(r"[\d#/]+.*", "#", line.name)
        empty = {"lines": [], "totals": {}, "stats": Counter(), "some": {}, "operations": []}
        told = found.setdefault(kind, empty)
        told["lines"].append(line.name)
        for event in line.events:
            total = told["totals"].setdefault(event.name, {"count": 0, "ns": 0.0})
            total["count"] += 1
            total["ns"] += event.duration_ns
            stats = {name: str(value) for name, value in event.stats if name}
            told["stats"].update(stats.keys())
            if "hlo_op" in stats and event.name not in told["operations"]:
                told["operations"].append(event.name)
            told["some"].setdefault(re.sub(r"[\d._]+", "#", event.name)[:40], stats)
    for told in found.values():
        told["some"] = dict(list(told["some"].items())[:12])
    return found


if __name__ == "__main__":
    into = Path(sys.argv[2])
    facts = jax_run(into) if sys.argv[1] == "jax" else torch_run(into)
    (into / "told.json").write_text(json.dumps(facts, indent=1, default=str))

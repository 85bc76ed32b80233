"""Each framework's profiler: our account of its trace beside its own, and what the notes claim."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu.runner import Check, Claim, Failed, LeftOut, Result, need
from whyidle.monitor.traces.analysis import analyse
from whyidle.monitor.traces.answer import contract

STEPS, SIZE = 20, 512
LONGEST = 400
# Theirs are floating point, in microseconds or of picoseconds.
CLOSE, CLOSE_NS = 1e-6, 2
Total = tuple[int, float]
Totals = dict[str, Total]
Answer = tuple[str, bool | None, object]
# A trace, what the profiler says of it, and answers to claims.
Profiled = tuple[Path, Totals, list[Answer]]


def torch_trace(check: Check) -> None:
    """Look at a run under torch.profiler."""
    _look_at_run(check, _torch)


def jax_trace(check: Check) -> None:
    """Look at a run under jax.profiler."""
    _look_at_run(check, _jax)


def _look_at_run(check: Check, run: Callable[[Check], Profiled]) -> None:
    runs: list[Profiled] = []
    check.do("run", lambda check, _: runs.append(run(check)))
    check.do("time by name", compare, runs)
    check.do("claims", ask, runs)


def _torch(check: Check) -> Profiled:
    """Train; of the trace torch's own account is key_averages."""
    need("torch")
    import torch  # noqa: PLC0415  where it is installed
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415

    gpu = torch.cuda.is_available()
    device = "cuda" if gpu else "cpu"
    check.see_device(device)
    before = sorted(torch.cuda.memory_stats()) if gpu else []
    layers = torch.nn.Linear(SIZE, SIZE), torch.nn.ReLU(), torch.nn.Linear(SIZE, SIZE)
    model = torch.nn.Sequential(*layers).to(device)
    best = torch.optim.SGD(model.parameters(), lr=0.01)
    pageable = torch.ones(SIZE, SIZE)
    sources = [pageable, pageable.pin_memory()] if gpu else [pageable]

    def step() -> float:
        copied = [source.to(device) for source in sources]
        best.zero_grad()
        loss = model(copied[0]).square().mean()
        loss.backward()
        best.step()
        return float(loss.item())

    step()
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA][: 1 + gpu]
    with profile(activities=activities) as profiler:
        for _ in range(STEPS):
            step()
        if gpu:
            torch.cuda.synchronize()
    trace = check.work / "trace.json"
    profiler.export_chrome_trace(str(trace))
    totals: Totals = {}
    for each in profiler.key_averages():
        is_mark = getattr(each, "is_user_annotation", False) and gpu
        if gpu == str(each.device_type).endswith("CUDA") and not is_mark:
            us = each.self_device_time_total if gpu else each.self_cpu_time_total
            totals[each.key] = each.count, us * 1000
    # Copies have no name of their own with us.
    copies = [name for name in totals if re.match(r"Mem(cpy|set)\b", name)]
    theirs = {name: total for name, total in totals.items()
              if name not in copies and (gpu or is_operator(name))}  # fmt: skip
    loader = torch.utils.data.DataLoader([1, 2], pin_memory=gpu)  # type: ignore[arg-type,var-annotated]
    pinned = bool(getattr(iter(loader), "_pin_memory", False))
    keys = (
        *("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free"),
        *("inactive_split_bytes.all.current", "reserved_bytes.all.current"),
        *("allocated_bytes.all.current", "active_bytes.all.current"),
    )
    both = ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pinned -> Device)")
    answers: list[Answer] = [
        _has("memory_stats has", keys, torch.cuda.memory_stats() if gpu else ()),
        ("memory_stats is {} before the GPU is initialised", not before, before[:5]),
        ("a loader with pin_memory=True has _pin_memory True", pinned, pinned),
        (f"copies to the GPU are named {' and '.join(both)}", {*both} <= {*copies}, copies),
    ]
    return trace, theirs, answers


def _jax(check: Check) -> Profiled:
    """Train; of the trace JAX's own account is what its reader says."""
    need("jax")
    import jax  # noqa: PLC0415  where it is installed
    import jax.numpy as jnp  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415
    from jax.profiler import ProfileData  # noqa: PLC0415

    check.see_device(jax.default_backend())

    @jax.jit
    def step(w: Any, x: Any) -> Any:
        loss, slope = jax.value_and_grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)
        return w - 0.01 * slope, loss

    source = np.ones((SIZE, SIZE), np.float32)
    w, _ = step(jax.random.normal(jax.random.key(1), (SIZE, SIZE)), jax.device_put(source))
    with jax.profiler.trace(str(check.work / "jax")):
        for _ in range(STEPS):
            w, loss = step(w, jax.device_put(source))
            float(loss)
    (trace,) = (check.work / "jax").rglob("*.xplane.pb")
    planes = list(ProfileData.from_file(str(trace)).planes)
    stats = jax.local_devices()[0].memory_stats() or {}
    return trace, of_jax(planes, gpu=check.gpu), [*_answers_of_jax(planes, stats)]


def of_jax(planes: Iterable[Any], *, gpu: bool) -> Totals:
    """Return what JAX's reader says ran, by name, all lines together."""
    found: Totals = {}
    plane, prefix = ("/device:GPU", "Stream #") if gpu else ("/host:CPU", "tf_XLA")
    for event in _events(planes, plane, prefix):
        name = event.name
        if not name.startswith(("Memcpy", "Memset")) and (gpu or "hlo_op" in dict(event.stats)):
            count, ns = found.get(name, (0, 0.0))
            found[name] = count + 1, ns + event.duration_ns
    return found


def _events(planes: Iterable[Any], plane: str, prefix: str) -> Iterator[Any]:
    for line in (line for each in planes if each.name.startswith(plane) for line in each.lines):
        if line.name.startswith(prefix):
            yield from line.events


def _answers_of_jax(planes: list[Any], memory: dict[str, int]) -> Iterator[Answer]:
    names = [plane.name for plane in planes]
    lines = [x.name for p in planes if p.name.startswith("/device:GPU:") for x in p.lines]
    yield "the GPU's plane is /device:GPU:N", bool(lines), names
    yield "its work lies on lines 'Stream #k(...)'", any("Stream #" in x for x in lines), lines
    more = [name for name in lines if name.startswith(("XLA Modules", "XLA Ops", "Steps"))]
    yield "the file has no lines XLA Modules, XLA Ops, Steps", not more, more
    stats = [stat for e in _events(planes, "/device:GPU:", "Stream #") for stat in e.stats]
    keys = ("correlation_id", "kernel_details", "theoretical_occupancy_pct", "hlo_module", "hlo_op")
    yield _has("kernels carry", keys, {name for name, _ in stats})
    details = [str(value) for name, value in stats if name == "memcpy_details"]
    right = all("size:" in each and "kind_src:" in each for each in details)
    yield "memcpy_details has kind_src: and size:", right if details else None, details
    launches = any("Launch" in event.name for event in _events(planes, "/host:CPU", ""))
    yield "launches lie on /host:CPU", launches, names
    of_pool = ("bytes_in_use", "peak_bytes_in_use", "bytes_limit", "largest_free_block_bytes")
    yield _has("memory_stats has", (*of_pool, "pool_bytes", "num_allocs"), memory)
    free = memory.get("pool_bytes", 0) - memory.get("bytes_in_use", 0)
    share = 1 - memory.get("largest_free_block_bytes", 0) / free if free > 0 else None
    # Elsewhere the pool grows region by region, and each has a free block of its own.
    whole = memory.get("bytes_limit", 0) - memory.get("pool_bytes", 0) < 1 << 20
    claim = "in a whole pool 1 - largest_free / (pool - in_use) is near 0 in a small job"
    holds = None if share is None or not whole else 0 <= share < 0.5
    yield claim, holds, f"{share}; {memory}"


def _has(what: str, keys: tuple[str, ...], found: Iterable[str]) -> Answer:
    missing = [key for key in keys if key not in found]
    return f"{what} {', '.join(keys)}", not missing, f"missing: {missing} of {[*found]}"


# Our account -------------------------------------------------------------------------------------
def compare(check: Check, part: Result, runs: list[Profiled]) -> None:
    """Compare name by name; one of which the two say something else fails it."""
    ((trace, theirs, _),) = runs
    mine = ours(trace, gpu=check.gpu)
    different = [name for name in {**theirs, **mine}
                 if not alike(mine.get(name), theirs.get(name), counted=check.gpu)]  # fmt: skip
    part.figures = {
        "names": len(theirs),
        "count": sum(count for count, _ in theirs.values()),
        "theirs_ns": round(sum(ns for _, ns in theirs.values())),
        "ours_ns": round(sum(ns for _, ns in mine.values())),
        "different": {name: [mine.get(name), theirs.get(name)] for name in different},
    }
    if different or not theirs:
        raise Failed(f"{len(different)} of {len(theirs)} names differ: {different[:3]}")


def alike(mine: Total | None, theirs: Total | None, *, counted: bool) -> bool:
    """Return whether two totals are the same but for rounding."""
    # On the CPU torch counts an operator that calls its like once, and takes the time of both.
    if mine is None or theirs is None or (counted and mine[0] != theirs[0]):
        return False
    # Each event is rounded on its own.
    return abs(mine[1] - theirs[1]) <= CLOSE_NS * theirs[0] + CLOSE * theirs[1]


def ours(file: Path, *, gpu: bool) -> Totals:
    """Return what we say ran, by name."""
    rows = contract(analyse(file))["top_kernels" if gpu else "top_operators"]
    named = {row["name"]: (row["count"], row["total_ns"]) for row in rows}
    return {name: total for name, total in named.items() if gpu or is_operator(name)}


def is_operator(name: str) -> bool:
    """Return whether it is an operator: marks, and what only calls operators, are none."""
    return not name.endswith("Backward0") and not name.startswith(("autograd::", "Optimizer."))


def ask(check: Check, part: Result, runs: list[Profiled]) -> None:
    """Hold each claim about a framework against what its run shows."""
    ((trace, _, answers),) = runs
    found = [*answers, *_answers_of_ours(contract(analyse(trace)))]
    part.figures["asked"] = len(found)
    if not check.gpu:
        raise LeftOut("there is no GPU here to ask")
    part.figures["claims"] = [Claim(claim, holds, str(seen)[:LONGEST])._asdict()
                              for claim, holds, seen in found]  # fmt: skip


def _answers_of_ours(found: Any) -> Iterator[Answer]:
    """Return what our own reader must find in a trace of a GPU."""
    gpus = sum(device["kind"] == "gpu" for device in found["devices"])
    yield "the trace has one GPU", gpus == 1, gpus
    launching = found["launching"] or {}
    names = ("launched", "operations", "started_before_launch")
    launched, all_, early = (launching.get(name) for name in names)
    claim = "each operation of the GPU has a launch of the same correlation id"
    yield claim, launched == all_ if all_ else None, f"{launched} of {all_}"
    claim = "at most 1 % of the operations start before their launch"
    holds = early <= 0.01 * all_ if all_ and early is not None else None
    yield claim, holds, f"{early} of {all_}"
    yield "a short trace has no warnings", not found["warnings"], found["warnings"]

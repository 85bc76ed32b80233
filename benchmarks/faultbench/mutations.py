"""Faults, each as a change of the source: what it inserts or replaces, and what a good answer names.

``faults`` are the rules that name the fault, any of which is right. ``host_code`` stands for faults
that no rule has a cure for: the answer is then the user's own line. Nothing here is chosen by what
a rule looks for; one fault is spelled in several ways as people spell it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from benchmarks.faultbench.program import Anchor, NotApplicable, Program

Change = Callable[[Program], None]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One fault, in one spelling."""

    name: str
    faults: tuple[str, ...]
    change: Change
    framework: str | None = None

    def apply(self, program: Program) -> None:
        """Put the fault in; ``NotApplicable``: this program has no place for it."""
        if self.framework not in {None, program.framework}:
            raise NotApplicable(f"{program.family} does not use {self.framework}")
        self.change(program)


def at(kind: str, code: str, *needed: str, imports: str = "", setup: str = "") -> Change:
    """Insert code at the first anchor that has the names it needs: ``{loss}`` becomes the name."""

    def change(program: Program) -> None:
        anchor = program.anchor(kind, *needed)
        program.insert(anchor, _filled(code, anchor))
        if setup:
            # Where the fault itself is, is where it runs: what it prepares is no part of it.
            ready = program.anchor("setup")
            program.insert(ready, _filled(setup, ready), is_fault=False)
        if imports:
            _import(program, anchor.file, imports)

    return change


def _filled(code: str, anchor: Anchor) -> str:
    def name(found: re.Match[str]) -> str:
        key = found[1]
        if key not in anchor.names:
            raise NotApplicable(f"`#@ {anchor.kind}` names no {key}")
        return anchor.names[key] if found[2] is None else anchor.list(key)[0]

    return re.sub(r"\{(\w+)(\[0\])?\}", name, code)


def _import(program: Program, file: str, text: str) -> None:
    """Import at the head of a file, after its docstring and its imports of ``__future__``."""
    lines = program.files[file]
    anchors = [a for a in program.anchors("imports") if a.file == file]
    if anchors:
        program.insert(anchors[0], text, is_fault=False)
        return
    last = max((i for i, line in enumerate(lines) if re.match(r"(import|from) ", line)), default=-1)
    closes = last
    while closes >= 0 and "(" in lines[closes] and ")" not in "".join(lines[last : closes + 1]):
        closes += 1
        if ")" in lines[closes]:
            break
    lines[closes + 1 : closes + 1] = text.splitlines()


def replaced(pattern: str, by: str) -> Change:
    """Replace what matches, wherever it stands; nothing that matches: not applicable."""

    def change(program: Program) -> None:
        if not program.replace(pattern, by):
            raise NotApplicable(f"{program.family} has nothing like {pattern}")

    return change


def both(*changes: Change) -> Change:
    """Make several changes that are one fault together."""

    def change(program: Program) -> None:
        for each in changes:
            each(program)

    return change


def _dropped_jit(program: Program) -> None:
    jit = r"(?:jax|nnx|eqx)\.(?:filter_)?jit"
    found = program.replace(rf"^\s*@(?:functools\.)?partial\({jit},.*\)\s*$", "# not compiled")
    found += program.replace(rf"^\s*@{jit}(?:\(.*\))?\s*$", "# not compiled")
    found += program.replace(rf"\b{jit}\((\w[\w.]*)(?:,[^()]*(?:\([^()]*\))?)?\)", r"\1")
    if not found:
        raise NotApplicable(f"{program.family} has no jit on a line of its own")


def _smaller_batches(program: Program) -> None:
    sizes = r"\b(batch_size|BATCH_SIZE|BATCH|batch|bs|B)\s*=\s*(\d+)\b"

    def smaller(found: re.Match[str]) -> str:
        return f"{found[1]}={max(1, int(found[2]) // 16)}"

    changed = 0
    for lines in program.files.values():
        for number, text in enumerate(lines):
            new = re.sub(sizes, smaller, text)
            if new != text:
                lines[number] = new + "  #!fault"
                changed += 1
    if not changed:
        raise NotApplicable(f"{program.family} says nowhere how large a batch is")


def _beside(neighbours: int) -> Change:
    def change(program: Program) -> None:
        program.neighbours = neighbours

    return change


def _environment(**values: str) -> Change:
    def change(program: Program) -> None:
        program.environment |= values

    return change


INPUT: Final = ("input_starved",)
READS: Final = ("per_step_sync", "large_readback")
HOST: Final = ("host_code",)

_LOOP_TORCH: Final = """
def _each_on_its_own(model):
    whole = model.forward
    def one_by_one(x, *rest):
        return torch.cat([whole(x[k:k + 1], *rest) for k in range(len(x))])
    model.forward = one_by_one
_each_on_its_own({model})
"""
_LOOP_WHILE: Final = """
def _score(rows, k):
    return rows[k:k + 1].float().pow(2).mean().sqrt()
def _scores(rows):
    k, out = 0, []
    while k < len(rows):
        out.append(_score(rows, k))
        k += 1
    return out
"""
_ROWS_JAX: Final = """
@jax.jit
def _score(row):
    return jnp.sqrt(jnp.mean(jnp.square(row.astype(jnp.float32))))
def _scores(rows):
    return list(map(_score, rows))
"""

MUTATIONS: Final[tuple[Mutation, ...]] = (
    # Values read back.
    Mutation("read_item", READS, at("step", "running = {loss}.item()", "loss")),
    Mutation("read_float", READS, at("step", "print(f'{float({loss}):.4f}', end='\\r')", "loss")),
    Mutation(
        "read_asarray", READS, at("step", "seen_loss = np.asarray({loss}).mean()", "loss", imports="import numpy as np"), "jax"
    ),
    Mutation(
        "read_params_jax", READS,
        at("step", "norms = {str(k): float(np.linalg.norm(np.asarray(v))) for k, v in jax.tree_util.tree_leaves_with_path({params})}",
           "params", imports="import jax\nimport numpy as np"), "jax",
    ),
    Mutation(
        "read_params_torch", READS,
        at("step", "norms = {n: p.detach().norm().item() for n, p in {model}.named_parameters()}", "model"), "torch",
    ),
    Mutation(
        "read_batch_back", ("large_readback", "per_step_sync", "host_code"),
        at("step", "for _ in range(4):\n    kept = [np.array(p) for p in jax.tree.leaves({params})]", "params", imports="import jax\nimport numpy as np"), "jax",
    ),
    Mutation(
        "read_weights_numpy", ("large_readback", "host_code"),
        at("step", "for _ in range(8):\n    snapshot = [p.detach().cpu().numpy().copy() for p in {model}.parameters()]", "model"), "torch",
    ),
    Mutation("block_each_step", ("per_step_sync",), at("step", "jax.block_until_ready({params})", "params", imports="import jax"), "jax"),
    # Compilation.
    Mutation("drop_jit", ("unjitted_step",), _dropped_jit, "jax"),
    Mutation(
        "fresh_lambda", ("retracing",),
        at("step", "smooth = jax.jit(lambda t: jnp.tanh(t) * 0.99 + t)({loss})", "loss", imports="import jax\nimport jax.numpy as jnp"), "jax",
    ),
    Mutation("clear_caches", ("retracing",), at("step", "if {index} % 20 == 0:\n    jax.clear_caches()", "index", imports="import jax"), "jax"),
    Mutation(
        "ragged_batch", ("retracing",),
        at("batch", "import random\n_n = random.randrange(2, 1 + len({arrays[0]}))\n{cut}", "arrays"), "jax",
    ),
    Mutation(
        "eager_average", ("unjitted_step", "eager_launch_bound"),
        at("step", "_ema = jax.tree.map(lambda a, b: 0.99 * a + 0.01 * b, _ema, {params})", "params",
           imports="import jax", setup="_ema = None"), "jax",
    ),
    # Loops over what could be one call.
    Mutation(
        "forward_per_sample", ("python_loop_over_batch",),
        at("setup", _LOOP_TORCH, "model", imports="import torch"), "torch",
    ),
    Mutation(
        "score_per_sample", ("python_loop_over_batch",),
        at("step", "scores = _scores({batch[0]})", "batch", setup=_LOOP_WHILE), "torch",
    ),
    Mutation(
        "score_per_sample_jax", ("python_loop_over_batch",),
        at("step", "scores = _scores({batch[0]})", "batch", setup=_ROWS_JAX, imports="import jax\nimport jax.numpy as jnp"), "jax",
    ),
    # Input.
    Mutation(
        "slow_numpy", INPUT,
        at("sample", "for _ in range(6):\n    _f = np.fft.fft(np.random.default_rng(0).standard_normal(1 << 14))", imports="import numpy as np"),
    ),
    Mutation("slow_python", INPUT, at("sample", "_checksum = 0\nfor _value in range(30_000):\n    _checksum = (_checksum * 31 + _value) % 65_521")),
    Mutation("slow_storage", INPUT, at("sample", "time.sleep(0.004)", imports="import time")),
    Mutation(
        "slow_decode", INPUT,
        at("sample",
           "_file = io.BytesIO()\nImage.effect_noise((160, 160), 60).save(_file, 'JPEG')\n"
           "_picture = Image.open(io.BytesIO(_file.getvalue())).convert('RGB').resize((128, 128))",
           imports="import io\nfrom PIL import Image"),
    ),
    Mutation(
        "slow_tokens", INPUT,
        at("sample", "_words = re.findall(r'\\w+|[^\\w\\s]', 'the quick brown fox, it jumps. ' * 300)\n_ids = [hash(w) % 30_000 for w in _words]", imports="import re"),
    ),
    Mutation(
        "slow_collate", INPUT,
        at("batch", "for _ in range(12):\n    _sorted = np.sort(np.random.standard_normal(200_000))", imports="import numpy as np"),
    ),
    Mutation(
        "pickled_batches", INPUT,
        at("batch", "for _ in range(3):\n    _copy = pickle.loads(pickle.dumps([list(map(float, np.arange(20_000))) for _ in range(4)]))", imports="import pickle\nimport numpy as np"),
    ),
    Mutation(
        "host_noise", ("host_random_numbers", "input_starved"),
        at("batch", "for _ in range(4):\n    _noise = np.random.normal(size=500_000).astype(np.float32)", imports="import numpy as np"),
    ),
    Mutation("no_workers", INPUT, replaced(r"num_workers\s*=\s*[^,)]+", "num_workers=0")),
    Mutation(
        "restarted_workers", INPUT,
        both(replaced(r"persistent_workers\s*=\s*[^,)]+", "persistent_workers=False")),
    ),
    Mutation("too_many_workers", ("cpu_starved", "input_starved"), replaced(r"num_workers\s*=\s*[^,)]+", "num_workers=24")),
    # What the host does beside it.
    Mutation("collects_each_step", ("gc_pauses",), at("step", "gc.collect()", imports="import gc", setup="_held = [{'k': [n], 'v': str(n)} for n in range(400_000)]")),
    Mutation(
        "makes_cycles", ("gc_pauses",),
        at("step", "for _ in range(20_000):\n    _a = {}\n    _b = {'a': _a}\n    _a['b'] = _b", setup="_held = [{'k': [n]} for n in range(600_000)]"),
    ),
    Mutation(
        "growing_array", ("memory_growth", "host_code"),
        at("step", "_history = np.append(_history, np.full(20_000, 1.0))", imports="import numpy as np", setup="import numpy as np\n_history = np.zeros(1)"),
    ),
    Mutation(
        "growing_list", ("memory_growth", "host_code"),
        at("step", "for _n in range(40):\n    if ({index}, _n) not in _seen:\n        _seen.append(({index}, _n))", "index", setup="_seen = []"),
    ),
    Mutation(
        "hooks_pile_up", ("memory_growth", "host_code", "eager_launch_bound"),
        at("step", "for _m in {model}.modules():\n    _m.register_forward_hook(lambda *_: None)", "model"), "torch",
    ),
    Mutation(
        "keeps_graphs", ("memory_growth",),
        at("step", "_kept.append((_ballast * {loss}).sum())", "loss", setup="import torch\n_kept, _ballast = [], torch.zeros(200_000)"), "torch",
    ),
    Mutation("new_buffers", ("allocation_churn",), at("step", "_scratch = np.ones((24_000_000,), np.float32)", imports="import numpy as np")),
    Mutation("copies_model", ("allocation_churn", "host_code"), at("step", "_best = copy.deepcopy({model})", "model", imports="import copy"), "torch"),
    Mutation(
        "sends_table", ("host_resident_data",),
        at("step", "_table_now = jax.device_put(_table)", imports="import jax", setup="import numpy as np\n_table = np.random.default_rng(0).random((4_000_000, 4), dtype=np.float32)"), "jax",
    ),
    Mutation("not_donated", ("buffers_not_donated",), replaced(r",\s*donate_arg(?:nums|names)\s*=\s*(?:\([^)]*\)|[\w'\"]+)", ""), "jax"),
    Mutation(
        "writes_log", HOST,
        at("step", "with open('log.jsonl', 'a') as _log:\n    for _n in range(200):\n        _log.write(json.dumps({'n': _n, 'step': {index}, 'note': 'x' * 40}) + '\\n')\n        _log.flush()", "index", imports="import json"),
    ),
    Mutation(
        "saves_often", HOST,
        at("step", "if {index} % 5 == 0:\n    torch.save({model}.state_dict(), 'latest.pt')\n    os.sync()", "model", "index", imports="import os\nimport torch"), "torch",
    ),
    Mutation(
        "saves_often_jax", HOST,
        at("step", "if {index} % 5 == 0:\n    np.savez('latest.npz', *[np.asarray(p) for p in jax.tree.leaves({params})])\n    os.sync()", "params", "index", imports="import os\nimport jax\nimport numpy as np"), "jax",
    ),
    Mutation("validates_often", HOST, at("step", "if {index} % 4 == 0:\n    with torch.no_grad():\n        for _ in range(6):\n            {model}({batch[0]})", "model", "batch", "index", imports="import torch"), "torch"),
    Mutation("forward_again", ("forward_run_twice", "host_code"), at("step", "with torch.no_grad():\n    _again = {model}({batch[0]})", "model", "batch", imports="import torch"), "torch"),
    Mutation("sleeps", HOST, at("step", "time.sleep(0.03)", imports="import time")),
    Mutation("starts_a_program", HOST, at("step", "subprocess.run(['true'], check=False)\nsubprocess.run(['uname', '-a'], capture_output=True, check=False)", imports="import subprocess")),
    Mutation(
        "formats_arrays", HOST,
        at("step", "for _ in range(3):\n    _text = np.array2string(np.random.standard_normal(3_000), threshold=10_000)", imports="import numpy as np"),
    ),
    Mutation(
        "scores_in_python", HOST,
        at("step", "_hits = 0\nfor _n in range(60_000):\n    if (_n * 7919) % 13 == 5:\n        _hits += 1"),
    ),
    # Precision.
    Mutation(
        "double_model", ("full_precision_matmul",),
        both(at("setup", "{model}.double()", "model"), at("forward", "{x} = {x}.double() if {x}.is_floating_point() else {x}", "x")), "torch",
    ),
    Mutation("double_x64", ("full_precision_matmul",), both(_environment(JAX_ENABLE_X64="1"), at("forward", "{x} = {x}.astype('float64') if {x}.dtype == 'float32' else {x}", "x")), "jax"),
    # Size and cores.
    Mutation("tiny_batches", ("tiny_work", "eager_launch_bound", "unjitted_step"), _smaller_batches),
    Mutation("too_many_threads", ("cpu_starved",), at("setup", "torch.set_num_threads(16)", imports="import torch"), "torch"),
    Mutation("busy_neighbours", ("cpu_starved",), _beside(4)),
)  # fmt: skip


def by_name(names: Iterable[str] = ()) -> list[Mutation]:
    """Return those that were named, or all."""
    wanted = set(names)
    return [each for each in MUTATIONS if not wanted or each.name in wanted]

"""The rule input_starved."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rules.windows import (
    answer,
    cannot_judge,
    found,
    is_silent,
    judge,
    recorded,
    severity,
    stacks,
    traced,
    window,
)
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Found, Severity, SourceLine
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.loading_cause import BEGUN, SLOW_WORKER
from whyidle.monitor.signals.loading_kinds import LOAD_LOOKS
from whyidle.monitor.signals.recorded import Helper, SeenGpu
from whyidle.monitor.signals.window import Window

NAME = "input_starved"
# By framework: what stands before the fix's code, and what must hold after it.
FIXES = {
    "tensorflow": (
        """
import tensorflow as tf
data = tf.data.Dataset.range(256)
def prepare(n):
    return n * 2
""",
        """
batches = [b.numpy() for b in data]
assert len(batches) == 4
assert sorted(n for b in batches for n in b) == list(range(0, 512, 2))
""",
    ),
    "pytorch": (
        """
import os
import torch
from torch.utils.data import DataLoader, TensorDataset
dataset, as_before = TensorDataset(torch.zeros(256, 4)), {"batch_size": 32}
""",
        "assert loader.num_workers >= 1 and len(loader) == 8",
    ),
    "jax": (
        """
import collections
from concurrent.futures import ThreadPoolExecutor
import jax
import numpy as np
""",
        """
got = list(ahead(lambda rows: np.full(3, rows), range(9)))
assert [int(g[0]) for g in got] == list(range(9))
assert isinstance(got[0], jax.Array)
""",
    ),
}


def test_a_trace_with_waits_for_the_loader() -> None:
    bad = answer({Slice.COMPUTE: 0.5, Slice.IDLE_INPUT: 0.4, Slice.IDLE_DISPATCH: 0.1})
    finding = found(NAME, window(bad))
    assert finding.gain is not None
    assert finding.gain.low == pytest.approx(0.4 - 0.67 * 0.1)
    assert finding.gain.high == pytest.approx(0.5)
    assert finding.slice is Slice.IDLE_INPUT


def test_waits_that_only_the_agent_saw() -> None:
    finding = found(NAME, window(means={m.JOB_LOADER_WAIT: 0.5}, inside=True))
    assert finding.gain is not None
    assert 0.25 < finding.gain.low < finding.gain.high <= 0.51
    assert finding.evidence[0].source == "agent"


def test_a_job_that_waits_for_nothing() -> None:
    good = answer({Slice.COMPUTE: 0.95, Slice.IDLE_DISPATCH: 0.05})
    assert is_silent(NAME, window(good, means={m.JOB_LOADER_WAIT: 0.001}))


def test_nothing_measured() -> None:
    assert cannot_judge(NAME, window())


# What came back when the workers were turned on, in shares of the step (notes/budget.md).
@pytest.mark.parametrize(
    ("trace", "realised"),
    [("v100_resnet50_workers0", 0.282), ("resnet50_b_workers0", 0.218)],
)
def test_the_range_holds_what_came_back(trace: str, realised: float) -> None:
    finding = found(NAME, traced(trace))
    assert finding.gain is not None
    assert finding.gain.low <= realised <= finding.gain.high


@pytest.mark.parametrize("trace", ["h100_qwen05b", "mi300_ddp_resnet18"])
def test_traces_that_wait_for_something_else(trace: str) -> None:
    assert is_silent(NAME, traced(trace))


def loader(workers: int) -> dict[str, object]:
    """Return what PyTorch's probe says of a loader."""
    return {"torch": {"loaders": [{"workers": workers}]}}


def test_no_more_is_promised_than_the_cores_can_load() -> None:
    means = {m.JOB_LOADER_WAIT: 0.8, m.HOST_CORES: 2.0}
    finding = found(NAME, window(means=means, inside=True, facts=loader(0)))
    assert finding.gain is not None
    # Two workers at best need 0.4 of the step for what took 0.8 of it.
    assert finding.gain.high == pytest.approx(0.6)
    assert finding.gain.low == pytest.approx(0.46)


def test_as_many_workers_as_cores() -> None:
    means = {m.JOB_LOADER_WAIT: 0.8, m.HOST_CORES: 2.0}
    finding = found(NAME, window(means=means, inside=True, facts=loader(2)))
    assert finding.gain is None
    assert finding.severity is Severity.LOW


def test_a_main_thread_that_reads_files_itself(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("x = np.load(path)\ny = step(x)\n")
    lines = (SourceLine(str(file), 1, "train", 0.8), SourceLine(str(file), 2, "train", 0.2))
    taken = answer({Slice.COMPUTE: 0.1, Slice.IDLE_UNKNOWN: 0.9}, fmt="xplane")
    means = {m.HOST_CORES: 8.0}
    finding = found(NAME, window(taken, means=means, inside=True, lines=lines, looks=10**9))
    assert finding.gain is not None
    assert finding.gain.high <= 0.8001
    assert finding.where[0].line == 1
    busy = answer({Slice.COMPUTE: 1.0}, fmt="xplane")
    assert is_silent(NAME, window(busy, means=means, inside=True, lines=lines))


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_the_recorded_pair(framework: str) -> None:
    finding = found(NAME, recorded(f"{NAME}/before_{framework}"))
    assert finding.gain is not None
    assert finding.gain.expected >= 0.3
    after = judge(NAME, recorded(f"{NAME}/after_{framework}"))
    assert not isinstance(after, Found) or after.severity is Severity.LOW


def test_a_gpu_gets_no_whole_wait_back() -> None:
    gain = found(NAME, traced("h100_owlv2")).gain
    assert gain is not None
    # Measured of others: 60-73% of the wait comes back.
    assert gain.low <= 0.6 * 0.511 + 0.001
    assert gain.high >= 0.511


def test_only_lines_at_the_loader_are_named(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "for x in loader:\n    loss.backward()\nx = next(it)\nfor i in range(9):\n    z\n"
    )
    lines = tuple(SourceLine(str(file), line, "train", 0.2) for line in (2, 4, 5, 1, 3))
    generated = SourceLine("/tmp/torchinductor_me/ab/cab.py", 9, "__next__", 0.1)
    library = SourceLine(
        "/v/lib/python3.11/site-packages/torch/utils/data/x.py", 9, "__next__", 0.1
    )
    means = {m.JOB_LOADER_WAIT: 0.5}
    finding = found(NAME, window(means=means, inside=True, lines=(generated, library, *lines)))
    assert [place.line for place in finding.where] == [1, 3]


MAKES = """\
import jax.numpy as jnp, numpy
def drawn(order):
    images = numpy.flip(table[order])
    return jnp.asarray(images)
for order in orders:
    images = drawn(order)
    state = step(state, images)
"""


@pytest.mark.parametrize(
    ("library", "unknown", "fires"),
    [
        (None, 0.6, True),
        ("numpy/lib/stride_tricks.py", 0.6, True),
        ("torch/_tensor.py", 0.6, False),
        (None, 0.04, False),  # the device is busy meanwhile
    ],
)
def test_batches_that_the_main_thread_makes(
    tmp_path: Path, library: str | None, unknown: float, *, fires: bool
) -> None:
    file = tmp_path / "train.py"
    file.write_text(MAKES)
    taken = answer({Slice.COMPUTE: 1 - unknown, Slice.IDLE_UNKNOWN: unknown}, kind="gpu")
    made, loop = CodeLine(str(file), 3, "drawn"), CodeLine(str(file), 6, "<module>")
    leaf = made if library is None else CodeLine(f"{PACKAGES}/{library}", 9, "f")
    samples = StackSamples()
    for chain in (
        Chain((made, loop), leaf, None if library is None else leaf),
        Chain(
            (CodeLine(str(file), 7, "<module>"),), CodeLine(f"{PACKAGES}/jax/_src/pjit.py", 9, "f")
        ),
    ):
        samples.samples += 200
        samples.count(chain, 200, 200)
    means = {m.HOST_CORES: 8.0}
    job = window(taken, means=means, inside=True, stacks=samples, lines=samples.lines())
    result = judge(NAME, job)
    assert isinstance(result, Found) is fires
    if isinstance(result, Found):
        assert result.where[0].line == 3
        assert result.gain is not None
        assert 0.3 < result.gain.high <= 0.6
        # However many cores there are: the samples err, and a batch is still handed over.
        assert result.gain.low < 0.9 * 0.5 < 0.5 < result.gain.high


def test_a_library_that_reads_puts_no_other_line_to_blame(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("def images():\n    return decoded(path)\n\nloss.backward()\n")
    pil = SourceLine("/v/lib/python3.11/site-packages/PIL/Image.py", 9, "load", 0.6)
    lines = (SourceLine(str(file), 4, "train", 0.3), SourceLine(str(file), 2, "load_images", 0.6))
    taken = answer({Slice.COMPUTE: 0.4, Slice.IDLE_UNKNOWN: 0.6}, fmt="xplane")
    means = {m.HOST_CORES: 8.0}
    finding = found(NAME, window(taken, means=means, inside=True, lines=lines, leaves=(pil,)))
    assert [place.line for place in finding.where] == [2]


def test_a_loader_of_keras_is_known_by_the_samples() -> None:
    adapter = "/env/lib/python3.11/site-packages/keras/src/trainers/data_adapters"
    get = CodeLine(f"{adapter}/py_dataset_adapter.py", 669, "get")
    trains = CodeLine(
        "/env/lib/python3.11/site-packages/keras/src/backend/jax/trainer.py", 9, "fit"
    )
    fit = CodeLine("/me/train.py", 150, "main")
    facts = {"jax": {"backend": "cpu"}}
    waits = stacks((get, (fit,), 80), (trains, (fit,), 20), waited=1)
    finding = found(NAME, window(facts=facts, stacks=waits, inside=True))
    assert finding.gain is not None
    assert finding.evidence[0].value == pytest.approx(0.8)
    fed = stacks((get, (fit,), 4), (trains, (fit,), 96), waited=1)
    assert not isinstance(judge(NAME, window(facts=facts, stacks=fed, inside=True)), Found)


@pytest.mark.parametrize(("waited", "is_sure"), [(0.0, True), (1.0, False)])
def test_what_a_backend_does_meanwhile_surely_gives_nothing_back(
    waited: float, *, is_sure: bool
) -> None:
    get = CodeLine("/env/lib/python3.11/site-packages/grain/_src/python/loader.py", 9, "__next__")
    trains = CodeLine("/env/lib/python3.11/site-packages/jax/_src/pjit.py", 9, "call")
    loop = CodeLine("/me/train.py", 150, "main")
    rows = stacks((get, (loop,), 200), (trains, (loop,), 800), waited=waited)
    facts, means = {"jax": {"backend": "cpu"}}, {m.HOST_CORES: 2.0}
    gain = found(NAME, window(facts=facts, means=means, stacks=rows, inside=True)).gain
    assert gain is not None
    assert (gain.low > 0.05) is is_sure
    assert gain.high == pytest.approx(0.2, abs=0.05)


# Causes ------------------------------------------------------------------------------------------
LIB = "/venv/lib/python3.11"
PACKAGES = f"{LIB}/site-packages"
LOOP = CodeLine("/job/train.py", 40, "main")
ITEM = CodeLine("/job/data.py", 12, "__getitem__")
NEXT = CodeLine(f"{PACKAGES}/torch/utils/data/dataloader.py", 700, "__next__")
IDLE = CodeLine(f"{PACKAGES}/torch/utils/data/_utils/worker.py", 280, "_worker_loop")
PIL = CodeLine(f"{PACKAGES}/PIL/ImageFile.py", 300, "load")
CORES = {m.HOST_CORES: 8.0}


def of_chains(*rows: tuple[Chain, float, float, float]) -> StackSamples:
    """Return samples: each chain, how many, how many waited, and how many for a disk."""
    found = StackSamples()
    for chain, count, waited, blocked in rows:
        found.samples += count
        found.count(chain, count, count, waited, 0, blocked)
    return found


WAITS = of_chains((Chain((LOOP,), NEXT, NEXT), 90, 90, 0), (Chain((LOOP,), LOOP), 10, 0, 0))


def works(chain: Chain, share: float = 0.9, *, blocked: float = 0.0) -> Helper:
    """Return a worker that is at a chain for such a share of its time, part of it on a disk."""
    at, idle = share * blocked * 200, (1 - share) * 200
    rows = (chain, 200 * share, at, at), (Chain((LOOP,), IDLE), idle, idle, 0)
    return Helper(share, of_chains(*rows))


def fed_by(*workers: Helper, wait: float = 0.8, **more: Any) -> Window:
    """Return the window of a job whose loader has such workers."""
    facts = {"torch": {"backend": "cpu", "loaders": [{"workers": len(workers), **more}]}}
    means = {m.JOB_LOADER_WAIT: wait, **CORES}
    return window(means=means, inside=True, facts=facts, stacks=WAITS, helpers=workers)


def test_a_folder_of_images_without_workers() -> None:
    decodes = of_chains((Chain((LOOP,), PIL, NEXT), 80, 0, 0), (Chain((LOOP,), LOOP), 20, 0, 0))
    means = {m.JOB_LOADER_WAIT: 0.8, **CORES}
    finding = found(NAME, window(means=means, inside=True, facts=loader(0), stacks=decodes))
    assert finding.title is not None
    assert "decodes" in finding.title
    # Workers divide it: they stay the first cure.
    assert finding.fixes is not None
    fix = finding.fixes["pytorch"]
    assert "num_workers" in fix.code
    assert "Decode once" in fix.text
    assert finding.gain is not None
    assert ("who loads", "the main thread") in {(e.name, e.value) for e in finding.evidence}


@pytest.mark.parametrize(
    ("busy", "backend", "workers"),
    [(8.0, "cpu", False), (7.7, "cpu", False), (5.0, "cpu", True), (8.0, "cuda", True)],
)
def test_no_worker_is_advised_where_the_steps_take_all_cores(
    busy: float, backend: str, *, workers: bool
) -> None:
    decodes = of_chains((Chain((LOOP,), PIL, NEXT), 80, 0, 0), (Chain((LOOP,), LOOP), 20, 0, 0))
    means = {m.JOB_LOADER_WAIT: 0.8, m.HOST_CORES: 8.0, m.HOST_CPU: busy / 8}
    means |= {m.JOB_CPU: busy, m.PROCESS_CPU: busy, m.JOB_MAIN_THREAD: 1.0}
    facts = {"torch": {**loader(0)["torch"], "backend": backend}}  # type: ignore[dict-item]
    fixes = found(NAME, window(means=means, inside=True, facts=facts, stacks=decodes)).fixes
    assert fixes is not None
    assert ("num_workers" in fixes["pytorch"].code) is workers
    assert "Decode once" in fixes["pytorch"].text


def test_workers_that_wait_for_nfs() -> None:
    waits = works(Chain((ITEM, LOOP), ITEM), blocked=0.9)
    job = fed_by(*[waits] * 8)
    reads = {"nfs4 at /data": 40, "ext4 at /": 2}
    means = {**job.job.means, m.JOB_DISK_READ: 3e7}
    nfs = replace(job, job=replace(job.job, read_from=reads, means=means))
    finding = found(NAME, nfs)
    assert finding.title == "The data loader waits for storage: NFS"
    # Their waits take no core: nearer data gives back what is surely that, and at most all of it.
    assert finding.gain is not None
    assert 0.4 < finding.gain.low < 0.6 < finding.gain.high
    assert finding.where[0].line == 12
    assert "nfs4 at /data" in {e.value for e in finding.evidence}
    # Few reads were seen: the kind of storage is not named.
    some = replace(job, job=replace(job.job, read_from={"nfs4 at /data": 2}))
    assert found(NAME, some).title == "The data loader waits for storage"


def test_as_many_workers_as_cores_that_sleep() -> None:
    # Half of their time they wait for nothing that takes a core: a lock, a service, a pause.
    asleep = Helper(
        0.9, of_chains((Chain((ITEM, LOOP), ITEM), 180, 180, 0), (Chain((LOOP,), IDLE), 20, 20, 0))
    )
    finding = found(NAME, fed_by(*[asleep] * 8))
    assert finding.title == "The data loader sleeps: it uses no CPU time"
    # More of them wait at once: most of the wait comes back, whatever the cores are.
    assert finding.gain is not None
    assert finding.gain.low > 0.4
    assert severity(NAME, finding) is Severity.HIGH
    # Its twin works all the time, and no more fit.
    working = fed_by(*[works(Chain((ITEM, LOOP), PIL))] * 8)
    assert found(NAME, working).severity is Severity.LOW


def test_shards_on_a_slow_disk() -> None:
    job = fed_by(*[works(Chain((ITEM, LOOP), ITEM), blocked=0.8)] * 2)
    reads = {"rotational disk sda (ext4 at /data)": 60}
    finding = found(NAME, replace(job, job=replace(job.job, read_from=reads)))
    assert finding.title is not None
    assert "for storage" in finding.title
    assert finding.where[0].line == 12


def test_texts_that_workers_tokenise_as_they_come() -> None:
    line = CodeLine("/u/data.py", 40, "collate")
    tokens = CodeLine(f"{PACKAGES}/transformers/tokenization_utils_fast.py", 500, "_batch_encode")
    asked = CodeLine(f"{PACKAGES}/transformers/tokenization_utils_base.py", 2800, "__call__")
    at = Chain((line, LOOP), tokens, asked)
    finding = found(NAME, fed_by(works(at), works(at), wait=0.3))
    assert finding.title is not None
    assert "tokenizes" in finding.title
    assert (finding.where[0].line, finding.where[0].function) == (40, "collate")


def test_one_slow_worker_of_several() -> None:
    at = Chain((ITEM, LOOP), ITEM)
    slow, quick = works(at, 1.0), works(at, 0.1)
    finding = found(NAME, fed_by(quick, slow, quick))
    assert finding.title is not None
    assert "One loader worker is slow" in finding.title
    assert finding.gain is not None
    assert finding.gain.high == pytest.approx(0.6)
    assert severity(NAME, finding, measured=0.6) is Severity.MEDIUM
    assert severity(NAME, finding, measured=0.04) is Severity.INFO
    # Workers that are all busy, or all half so: none of them is late.
    assert "slower" not in str(found(NAME, fed_by(works(at, 0.9), works(at, 1.0))).title)
    assert "slower" not in str(found(NAME, fed_by(works(at, 0.4), works(at, 0.1))).title)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("taken", "begins"), [("next(iter(loader))", True), ("next(batches)", False)]
)
def test_a_loader_that_begins_for_each_batch(
    tmp_path: Path, taken: str, workers: int, *, begins: bool
) -> None:
    file = tmp_path / "train.py"
    file.write_text(f"for step in range(9):\n    x = {taken}\n    train(x)\n")
    asks, trains = (CodeLine(str(file), line, "<module>") for line in (2, 3))
    shuffles = CodeLine(NEXT.file.replace("dataloader", "sampler"), 182, "__iter__")
    starts = CodeLine(NEXT.file, 500, "__iter__")
    rows = (
        (Chain((asks,), NEXT if workers else shuffles, starts if workers else NEXT), 300, 0, 0),
        (Chain((asks,), NEXT, NEXT), 100, 0, 0),
        (Chain((trains,), trains), 600, 0, 0),
    )
    facts = {"torch": {"backend": "cpu", "loaders": [{"workers": workers}]}}
    means = {m.JOB_LOADER_WAIT: 0.4, m.HOST_CORES: 2.0}
    lines = (SourceLine(*trains, 0.6), SourceLine(*asks, 0.4))
    job = window(means=means, inside=True, facts=facts, stacks=of_chains(*rows), lines=lines)
    finding = found(NAME, job)
    assert (finding.title == BEGUN) is begins
    if begins:
        assert finding.fixes is not None
        assert "for batch in loader" in finding.fixes["pytorch"].code
        assert finding.gain is not None
        assert 0.1 < finding.gain.low < 0.3 < finding.gain.high


def test_workers_that_start_anew_at_each_epoch() -> None:
    starts = CodeLine(f"{LIB}/multiprocessing/popen_fork.py", 66, "_launch")
    begins = CodeLine(NEXT.file, 500, "__iter__")
    rows = (
        (Chain((LOOP,), starts, begins), 60, 0, 0),
        (Chain((LOOP,), NEXT, NEXT), 10, 10, 0),
        (Chain((LOOP,), LOOP), 30, 0, 0),
    )
    facts = {"torch": {"backend": "cpu", "loaders": [{"workers": 2, "persistent_workers": False}]}}
    means = {m.JOB_LOADER_WAIT: 0.1, m.HOST_CORES: 2.0}
    job = window(means=means, inside=True, facts=facts, stacks=of_chains(*rows))
    finding = found(NAME, job)
    assert finding.title == "The device waits while loader workers start again"
    assert finding.gain is not None
    assert finding.gain.high == pytest.approx(0.7)
    # Who starts takes cores as well: what the main thread waits for those may come back with it.
    crowded = replace(job.job, means={**means, m.JOB_MAIN_THREAD_WAIT: 0.2})
    late = found(NAME, replace(job, job=crowded))
    assert late.gain is not None
    assert late.gain.low == finding.gain.low
    assert late.gain.high == pytest.approx(0.9)
    assert finding.fixes is not None
    assert "persistent_workers=True" in finding.fixes["pytorch"].code
    assert ("persistent_workers", "False") in {(e.name, e.value) for e in finding.evidence}
    # Workers stay: what begins there is something else.
    facts = {"torch": {"backend": "cpu", "loaders": [{"workers": 2, "persistent_workers": True}]}}
    assert "start again" not in str(found(NAME, replace(job, job=replace(job.job, facts=facts))))


def test_what_no_sample_names_stays_without_a_name() -> None:
    codec = Chain((ITEM, LOOP), CodeLine(f"{PACKAGES}/somebody/codec.py", 3, "run"))
    for job in (fed_by(works(codec)), fed_by()):
        finding = found(NAME, job)
        assert finding.title is None or "cache or shrink" in finding.title


def test_a_healthy_job_whose_workers_decode_all_the_time() -> None:
    # They keep ahead: nobody waits, and the cores are there for it.
    busy = works(Chain((ITEM, LOOP), PIL))
    assert is_silent(NAME, replace(fed_by(busy, busy, wait=0.001), job=replace(
        fed_by(busy, busy, wait=0.001).job, stacks=of_chains((Chain((LOOP,), LOOP), 100, 0, 0))
    )))  # fmt: skip


# What stands before the code of each kind, and after it.
OF_KINDS = {
    "start": (
        "dataset, as_before = TensorDataset(torch.zeros(4, 4)), {'num_workers': 1}",
        "assert len(loader) == 4",
    ),
    "start jax": (
        "epochs, orders, read, got = 2, [1, 2], abs, []\ntrain = got.append",
        "assert got == [1, 2, 1, 2]",
    ),
    "storage": (
        "root = tempfile.mkdtemp()\ntempfile.tempdir = tempfile.mkdtemp()",
        "assert os.path.isdir(local)",
    ),
    "network": ("fetch, keys = abs, [-1, 2]", "assert samples == [1, 2]"),
    "wait": ("fetch, keys = abs, [-1, 2]", "assert samples == [1, 2]"),
    "tokenise": (
        "kept, texts, tokenize = tempfile.mkdtemp() + '/t.npy', [b'a', b'bc'], list",
        "assert tokens.tolist() == [97, 98, 99]",
    ),
    "unpack": (
        "kept, paths = tempfile.mkdtemp() + '/s.npy', [1, 2]\nread = prepare = lambda x: x",
        "assert samples.tolist() == [1, 2]",
    ),
    "decode": (
        "path = tempfile.mkdtemp() + '/a.jpg'\nImage.new('RGB', (900, 900)).save(path)",
        "assert pixels.shape == (224, 224, 3) and image.size[0] < 900",
    ),
    "hand_over": ("", "xs, ys = collate([([1.0], 2), ([3.0], 4)])\nassert ys.tolist() == [2, 4]"),
    "collate": (
        "",
        "padded = collate([torch.ones(2), torch.ones(3)])\nassert padded.shape == (2, 3)",
    ),
    "collate jax": ("", "assert collate([np.ones(2), np.ones(2)]).shape == (2, 2)"),
    "transform": (
        "batch, device = torch.ones(4, 3, 8, 8), 'cpu'",
        "assert batch.shape == (4, 3, 8, 8)",
    ),
    "transform jax": (
        "",
        "assert augment(jax.random.key(0), jnp.ones((4, 8, 8, 3))).shape == (4, 8, 8, 3)",
    ),
    "slow worker": ("dataset, as_before = TensorDataset(torch.zeros(8, 4)), {'num_workers': 1}",
        "assert not loader.in_order"),
}  # fmt: skip
IMPORTS = """
import os, shutil, tempfile
from concurrent.futures import ThreadPoolExecutor
import jax
import jax.numpy as jnp
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset
"""
CODES = {
    f"{kind}{'' if framework == 'pytorch' else ' jax'}": code
    for kind, look in LOAD_LOOKS.items()
    for framework, code in look.code.items()
} | {"slow worker": SLOW_WORKER["pytorch"].code}


@pytest.mark.parametrize("kind", CODES)
def test_the_code_of_each_cure_runs(kind: str) -> None:
    # The same code for both frameworks has one case.
    before, after = OF_KINDS[kind if kind in OF_KINDS else kind.removesuffix(" jax")]
    # In a process of its own: JAX minds each fork of one that has imported it.
    code = f"{IMPORTS}\n{before}\n{CODES[kind]}\n{after}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_two_loaders_of_which_one_rests_have_no_slow_worker() -> None:
    at = Chain((ITEM, LOOP), ITEM)
    busy, rests = works(at, 1.0), works(at, 0.0)
    job = fed_by(busy, rests)
    facts = {"torch": {"backend": "cpu", "loaders": [{"workers": 1}]}}
    two = replace(job, job=replace(job.job, facts=facts))
    assert "slower" not in str(found(NAME, two).title)
    # A process that logs is no worker of a loader.
    logs = Chain((CodeLine("/job/log.py", 3, "send"),), CodeLine(f"{LIB}/queue.py", 171, "get"))
    logger = Helper(0.0, of_chains((logs, 200, 200, 0)))
    assert "slower" not in str(found(NAME, fed_by(busy, logger)).title)


def test_workers_that_are_all_busy_beside_free_cores() -> None:
    codec = Chain((ITEM, LOOP), CodeLine(f"{PACKAGES}/somebody/codec.py", 3, "run"))
    means = {m.JOB_CPU: 2.2, m.PROCESS_CPU: 0.3, m.JOB_MAIN_THREAD: 0.2}

    def job(chain: Chain, share: float) -> Window:
        one = fed_by(works(chain, share), works(chain, share))
        return replace(one, job=replace(one.job, means={**one.job.means, **means}))

    assert "too few workers" in str(found(NAME, job(codec, 0.97)).title)
    assert "too few workers" not in str(found(NAME, job(codec, 0.5)).title)
    # No core is left for more of them.
    full = {m.HOST_CPU: 1.0, m.HOST_CORES: 8.0}
    taken = job(codec, 0.97)
    taken = replace(taken, job=replace(taken.job, means={**taken.job.means, **full}))
    assert "too few workers" not in str(found(NAME, taken).title)
    # What they do has a name: more of them come first all the same.
    decodes = found(NAME, job(Chain((ITEM, LOOP), PIL), 0.97))
    assert "decodes" in str(decodes.title)
    assert decodes.fixes is not None
    assert "num_workers" in decodes.fixes["pytorch"].code


FEED = CodeLine("/job/train.py", 20, "feed_batches")
TAKES = of_chains((Chain((LOOP,), CodeLine(f"{LIB}/queue.py", 171, "get")), 80, 80, 0),
                  (Chain((LOOP,), LOOP), 20, 0, 0))  # fmt: skip


def fed_by_threads(threads: StackSamples, **more: Any) -> Window:
    """Return the window of a JAX job that takes its batches from a queue of its own."""
    facts = {"jax": {"backend": "gpu"}}
    job = {"facts": facts, "stacks": TAKES, "threads": threads, "inside": True, **more}
    return window(means={m.HOST_CORES: 8.0}, **job)


def test_a_queue_that_threads_of_the_process_fill() -> None:
    decodes = of_chains((Chain((FEED,), PIL), 60, 0, 0))
    finding = found(NAME, fed_by_threads(decodes))
    assert "decodes" in str(finding.title)
    assert [(p.line, p.function) for p in finding.where] == [(20, "feed_batches"), (40, "main")]
    assert finding.gain is not None
    # The GPU was busy meanwhile: the host runs ahead of it, and waits for nothing that costs.
    busy = SeenGpu("0", "H100", owned=True, means={m.GPU_UTILISATION: 0.99})
    assert not isinstance(judge(NAME, fed_by_threads(decodes, gpus=(busy,))), Found)


def test_threads_that_wait_for_the_device_are_not_slow() -> None:
    put = CodeLine(f"{PACKAGES}/jax/_src/api.py", 2700, "device_put")
    ahead = of_chains((Chain((FEED,), put, put), 90, 85, 0), (Chain((FEED,), PIL), 6, 0, 0))
    assert not isinstance(judge(NAME, fed_by_threads(ahead)), Found)
    # Threads of another kind: the main thread waits for one that trains.
    train = CodeLine("/job/train.py", 30, "train_batches")
    backward = CodeLine(f"{PACKAGES}/torch/_tensor.py", 5, "backward")
    trains = of_chains((Chain((train,), backward), 90, 0, 0), (Chain((train,), PIL), 9, 0, 0))
    assert not isinstance(judge(NAME, fed_by_threads(trains)), Found)


SLEEPS = """\
def read(rows):
    time.sleep(0.01 * len(rows))
    return np.load(path)[rows]
for rows in orders:
    state = step(state, read(rows))
"""


@pytest.mark.parametrize("cores", [2.0, 8.0])
def test_a_main_thread_that_waits_gets_surely_what_as_many_readers_as_cores_give(
    tmp_path: Path, cores: float
) -> None:
    """Without a trace, too: how many of them wait at once is not known."""
    file = tmp_path / "train.py"
    file.write_text(SLEEPS)
    loop = CodeLine(str(file), 5, "<module>")
    samples = StackSamples()
    samples.samples += 400
    samples.count(
        Chain((CodeLine(str(file), 2, "read"), loop), CodeLine(str(file), 2, "read")), 390, 390, 390
    )
    samples.count(Chain((loop,), CodeLine(f"{PACKAGES}/jax/_src/pjit.py", 9, "f")), 10, 10)
    means = {m.HOST_CORES: cores, m.JOB_STEPS: 5.0}
    facts = {"jax": {"backend": "cpu"}}
    job = window(means=means, inside=True, facts=facts, stacks=samples, lines=samples.lines())
    gain = found(NAME, job).gain
    assert gain is not None
    assert gain.low < 1 - 1 / cores < 0.9 < gain.high
    assert gain.low > 0.8 * (1 - 1 / cores)

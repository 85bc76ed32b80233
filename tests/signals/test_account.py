"""The account of the host, from made-up samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.account import account_of

SOURCE = """
import numpy as np
import torch

def augment(x):
    return np.sort(x)

def step(model, x):
    y = torch.relu(x)
    for n in range(9):
        n * n
    return model(augment(x))

for x in loader:
    step(model, x)
"""
PACKAGES = "/venv/lib/python3.11/site-packages"


@pytest.fixture
def train(tmp_path: Path) -> str:
    file = tmp_path / "train.py"
    file.write_text(SOURCE)
    return str(file)


def test_its_rows_are_chains_with_classes_and_sum_to_one(train: str) -> None:
    loop, step = CodeLine(train, 15, "<module>"), CodeLine(train, 12, "step")
    sort, relu, number = (
        CodeLine(train, line, name) for line, name in ((6, "augment"), (9, "step"), (11, "step"))
    )
    conv = CodeLine(f"{PACKAGES}/torch/nn/modules/conv.py", 5, "forward")
    call = CodeLine(f"{PACKAGES}/torch/nn/modules/module.py", 7, "__call__")
    reader = CodeLine("/usr/lib/python3.11/selectors.py", 3, "select")
    loader = CodeLine(f"{PACKAGES}/torch/utils/data/dataloader.py", 3, "__next__")
    head = CodeLine(train, 14, "<module>")
    samples = StackSamples()
    samples.samples = 100
    samples.count(Chain((sort, step, loop), sort), 20, 20, 0)
    samples.count(Chain((relu, loop), relu), 10, 10, 0)
    samples.count(Chain((number, loop), number), 15, 15, 0)
    samples.count(Chain((step, loop), conv, call), 25, 25, 5)
    samples.count(Chain((head,), reader, loader), 30, 30, 29)
    account = account_of(samples)
    assert account is not None
    assert account.knows_waits
    assert sum(row.share for row in account.rows) == pytest.approx(1)
    found = {(row.frames[0].line, row.doing): row.share for row in account.rows}
    assert found == {
        (14, HostClass.LOADER): 0.3,
        (6, HostClass.LIBRARY): 0.2,
        (12, HostClass.FRAMEWORK): 0.2,
        (11, HostClass.PYTHON): 0.15,
        (9, HostClass.FRAMEWORK): 0.1,
        (12, HostClass.FRAMEWORK_WAIT): 0.05,
    }
    assert account.rows[1].frames == (sort, step, loop)
    assert account.share(HostClass.PYTHON, HostClass.LIBRARY) == pytest.approx(0.35)
    assert 0 < account.error(0.35) < 0.1


def test_samples_that_do_not_say_whether_it_waited_wait_nowhere(train: str) -> None:
    sleeps = CodeLine(train, 11, "step")
    samples = StackSamples()
    samples.samples = 10
    samples.count(Chain((sleeps,), sleeps), 10)
    account = account_of(samples)
    assert account is not None
    assert not account.knows_waits
    assert [row.doing for row in account.rows] == [HostClass.PYTHON]


def test_start_up_is_no_part_of_it(train: str) -> None:
    imports, work = CodeLine(train, 2, "<module>"), CodeLine(train, 11, "step")
    samples = StackSamples()
    samples.samples = 10
    samples.count(Chain((imports,), CodeLine("/usr/lib/python3.11/ast.py", 1, "parse")), 5)
    samples.count(Chain((work,), work), 5)
    account = account_of(samples)
    assert account is not None
    assert [row.share for row in account.rows] == [1]


def test_without_samples_there_is_none() -> None:
    assert account_of(StackSamples()) is None


JAX = """
import time
import numpy as np
import jax

def log(history, loss):
    history.append(np.asarray(loss))

def train(step, batches):
    for batch in batches:
        loss = step(batch)
        log([], loss)
        time.sleep(0.1)
"""


def test_what_waits_for_a_value_reads_it_however_it_is_spelled(tmp_path: Path) -> None:
    file = tmp_path / "loop.py"
    file.write_text(JAX)
    log, step, sleep = (
        CodeLine(str(file), 7, "log"), CodeLine(str(file), 11, "train"),
        CodeLine(str(file), 13, "train"),
    )  # fmt: skip
    value = CodeLine(f"{PACKAGES}/jax/_src/array.py", 9, "_value")
    read = CodeLine(f"{PACKAGES}/jax/_src/array.py", 5, "__float__")
    mean = CodeLine(f"{PACKAGES}/numpy/_core/fromnumeric.py", 5, "mean")
    samples = StackSamples()
    samples.samples = 100
    samples.count(Chain((log,), log), 30, 30, 25)
    samples.count(Chain((log,), value, read), 20, 20, 18)
    samples.count(Chain((log,), mean, mean), 10, 10, 10)
    samples.count(Chain((step,), step), 20, 20, 15)
    samples.count(Chain((sleep,), sleep), 20, 20, 20)
    account = account_of(samples)
    assert account is not None
    found = {(row.frames[0].line, row.doing): row.share for row in account.rows}
    assert found == pytest.approx({
        (7, HostClass.READ): 0.55,
        (7, HostClass.LIBRARY): 0.05,
        # A function that was handed in: nobody knows whether it is the framework's, unless it
        # waits there.
        (11, HostClass.UNCLEAR): 0.05,
        (11, HostClass.FRAMEWORK_WAIT): 0.15,
        (13, HostClass.WAIT): 0.2,
    })  # fmt: skip


def test_jax_in_the_midst_of_a_collection_is_no_call_of_the_users(train: str) -> None:
    sort = CodeLine(train, 6, "augment")
    jax = CodeLine(f"{PACKAGES}/jax/_src/lib/__init__.py", 132, "_xla_gc_callback")
    numpy = CodeLine(f"{PACKAGES}/numpy/_core/arrayprint.py", 3, "array2string")
    samples = StackSamples()
    samples.samples = 100
    samples.count(Chain((sort,), jax, jax), 40, 40, 0)
    samples.count(Chain((sort,), jax, numpy), 60, 60, 0)
    account = account_of(samples)
    assert account is not None
    assert {row.doing for row in account.rows} == {HostClass.LIBRARY}


PYTHON = "/usr/lib/python3.11"


@pytest.mark.parametrize(
    ("called", "leaf", "whose"),
    [
        ("copy.py deepcopy", "torch/nn/parameter.py __deepcopy__", HostClass.LIBRARY),
        ("dataclasses.py asdict", "torch/_tensor.py __deepcopy__", HostClass.LIBRARY),
        ("pickle.py dumps", "torch/storage.py __reduce__", HostClass.LIBRARY),
        # These only pass a call on.
        ("contextlib.py inner", "torch/optim/adam.py step", HostClass.FRAMEWORK),
        ("functools.py wrapper", "torch/nn/modules/conv.py forward", HostClass.FRAMEWORK),
    ],
)
def test_what_copies_objects_works_for_the_line_that_asked_for_it(
    train: str, called: str, leaf: str, whose: HostClass
) -> None:
    asked, at = called.split(), leaf.split()
    samples = StackSamples()
    samples.samples = 100
    chain = Chain(
        (CodeLine(train, 12, "step"),),
        CodeLine(f"{PACKAGES}/{at[0]}", 5, at[1]),
        CodeLine(f"{PYTHON}/{asked[0]}", 9, asked[1]),
    )
    samples.count(chain, 100, 100, 10)
    account = account_of(samples)
    assert account is not None
    # Where it waits, it waits for the framework's device in either case.
    shares = {row.doing: row.share for row in account.rows}
    assert shares == pytest.approx({whose: 0.9, HostClass.FRAMEWORK_WAIT: 0.1})


def test_what_jax_runs_outside_of_compiled_functions_is_a_class_of_its_own(train: str) -> None:
    line = CodeLine(train, 9, "step")
    packages = f"{PACKAGES}/jax/_src"
    single = CodeLine(f"{packages}/dispatch.py", 88, "apply_primitive")
    put = CodeLine(f"{packages}/dispatch.py", 600, "_device_put_impl")
    value = CodeLine(f"{packages}/array.py", 623, "_value")
    each = CodeLine(f"{packages}/array.py", 350, "<genexpr>")
    samples = StackSamples()
    samples.samples = 40
    samples.count(Chain((line,), single, each), 10, 10, 5)
    samples.count(Chain((line,), value, each), 10, 10, 10)
    samples.count(Chain((line,), put, put), 20, 20, 0)
    account = account_of(samples)
    assert account is not None
    # Where it waits, the device is behind.
    assert account.share(HostClass.EAGER) == pytest.approx(0.125)
    assert account.share(HostClass.FRAMEWORK_WAIT) == pytest.approx(0.125)
    assert account.share(HostClass.READ) == pytest.approx(0.25)
    assert account.share(HostClass.PUT) == pytest.approx(0.5)


def test_a_line_that_is_mostly_in_the_framework_is_in_it_also_where_its_calls_are_unclear(
    train: str,
) -> None:
    line, other = CodeLine(train, 9, "step"), CodeLine(train, 12, "step")
    conv = CodeLine(f"{PACKAGES}/torch/nn/modules/conv.py", 5, "forward")
    samples = StackSamples()
    samples.samples = 40
    for place, inside, unclear in ((line, 12, 8), (other, 4, 16)):
        samples.count(Chain((place,), conv, conv), inside, inside, 0)
        samples.count(Chain((place,), place), unclear, unclear, 0)
    account = account_of(samples)
    assert account is not None
    shares = {
        (row.frames[0].line, row.doing): row.share for row in account.rows if row.frames[0] == other
    }
    assert sum(row.share for row in account.rows) == pytest.approx(1)
    assert all(row.doing is HostClass.FRAMEWORK for row in account.rows if row.frames[0] == line)
    assert shares[12, HostClass.UNCLEAR] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("file", "function", "blocked", "doing"),
    [
        ("matplotlib/image.py", "imsave", 0, HostClass.READ),
        ("PIL/Image.py", "fromarray", 0, HostClass.READ),
        ("seaborn/matrix.py", "heatmap", 0, HostClass.READ),
        # Healthy twins: it writes to a disk, pauses between pictures, or asks another machine.
        ("matplotlib/image.py", "imsave", 100, HostClass.WAIT),
        ("matplotlib/pyplot.py", "pause", 0, HostClass.WAIT),
        ("boto3/session.py", "get", 0, HostClass.WAIT),
    ],
)
def test_who_draws_an_array_waits_for_its_numbers(
    file: str, function: str, blocked: int, doing: HostClass, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text("show(image)\n")
    leaf = CodeLine(f"{PACKAGES}/{file}", 9, function)
    samples = StackSamples()
    samples.samples = 100
    mine = Chain((CodeLine(str(script), 1, "<module>"),), leaf, leaf)
    samples.count(mine, 100, 100, 100, 0, blocked)
    account = account_of(samples, by_time=True)
    assert account is not None
    assert [row.doing for row in account.rows] == [doing]


@pytest.mark.parametrize(
    ("text", "whose"),
    [
        ("import torch\n\ndef solve(f, y):\n    return y + f(y)\n", HostClass.FRAMEWORK),
        ("from jax import numpy as jnp\n\ndef solve(y):\n    return y\n", HostClass.FRAMEWORK),
        ("def layer():\n    from torch.nn import Linear\n    return Linear\n", HostClass.FRAMEWORK),
        # The healthy twins: it parses, or computes with arrays of the host.
        ("import json\n\ndef solve(y):\n    return json.loads(y)\n", HostClass.LIBRARY),
        ("import numpy as np\n\ndef solve(y):\n    return np.sort(y)\n", HostClass.LIBRARY),
    ],
)
def test_a_package_that_no_table_knows_works_on_what_its_file_imports(
    train: str, tmp_path: Path, text: str, whose: HostClass
) -> None:
    file = tmp_path / "site-packages" / "nobody_knows" / "solvers.py"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    samples = StackSamples()
    samples.samples = 10
    samples.count(
        Chain((CodeLine(train, 15, "<module>"),), CodeLine(str(file), 4, "solve")), 10, 10
    )
    account = account_of(samples)
    assert account is not None
    assert {row.doing for row in account.rows} == {whose}

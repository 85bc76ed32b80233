"""The table of packages: each stands once, and rows of one's own are added to it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from whyidle.monitor.core.errors import Problem
from whyidle.monitor.libraries.frames import (
    first,
    is_call,
    is_module,
    kind_of,
    package_of,
    plays,
    roles,
)
from whyidle.monitor.libraries.table import CALLS, OURS, TABLE, VARIABLE, Kind, Role, read, rows
from whyidle.monitor.libraries.users import is_users
from whyidle.monitor.runs.stacks import CodeLine

LIB = "/venv/lib/python3.11/site-packages"
RAW = tomllib.loads(OURS.read_text())


def line(file: str, function: str = "f") -> CodeLine:
    return CodeLine(file, 1, function)


def test_no_package_stands_twice() -> None:
    of_rows = [
        n
        for n, row in RAW.items()
        if n not in {"words", "calls", "packages"}
        for n in named(n, row)
    ]
    alone = " ".join(RAW["packages"][kind] for kind in ("device", "host")).split()
    twice = [name for name, times in Counter([*of_rows, *alone]).items() if times > 1]
    assert twice == []


def named(name: str, row: dict[str, str]) -> list[str]:
    return [name, *row.get("also", "").split()]


def test_every_expression_of_ours_can_be_compiled() -> None:
    played = {role for package in TABLE.values() for role in package.looks}
    assert played | {*CALLS} == {*Role}
    assert [role for role in CALLS if is_call(role, ["no_such_call"])] == []


@pytest.mark.parametrize(
    ("file", "function", "role"),
    [
        (f"{LIB}/torch/utils/data/dataloader.py", "__next__", Role.LOADER),
        ("torch/utils/data/dataloader.py", "__next__", Role.LOADER),
        ("<_whyidle_agent.torch.loaders>", "next_of", Role.LOADER),
        (f"{LIB}/torch/serialization.py", "save", Role.CHECKPOINT),
        (f"{LIB}/wandb/sdk/wandb_run.py", "log", Role.LOG),
        ("/usr/lib/python3/dist-packages/gymnasium/core.py", "step", Role.ENVIRONMENT),
        ("/usr/lib/python3.13t/json/decoder.py", "decode", Role.FETCH),
        ("/home/me/transformers/src/transformers/generation/utils.py", "generate", Role.GENERATE),
        ("<frozen importlib._bootstrap>", "_load", Role.IMPORT),
        (f"{LIB}/soundfile.py", "read", Role.DECODE),
    ],
)
def test_a_file_is_known_by_its_package(file: str, function: str, role: Role) -> None:
    assert role in roles(line(file, function))


@pytest.mark.parametrize(
    ("file", "function"),
    [
        # What reads a checkpoint back is start-up, or a data set.
        (f"{LIB}/torch/serialization.py", "load"),
        (f"{LIB}/wandb/sdk/wandb_run.py", "finish"),
        # Folders of one's own, whatever they are called.
        ("/home/me/datasets/images.py", "__getitem__"),
        ("/home/me/evaluate/metrics.py", "f1"),
        ("gym/train.py", "step"),
        ("/home/me/train.py", "log"),
    ],
)
def test_what_does_something_else_plays_no_role(file: str, function: str) -> None:
    wanted = (Role.CHECKPOINT, Role.LOG, Role.LOADER, Role.METRIC, Role.ENVIRONMENT)
    assert first(wanted, line(file, function)) is None


def test_what_a_line_calls_and_imports() -> None:
    assert is_call(Role.CHECKPOINT, ["time.time", "torch.save"])
    assert not is_call(Role.CHECKPOINT, ["torch.load"])
    assert not is_call(Role.COMPILE, ["torch.compile"])
    assert is_module(Role.METRIC, "sklearn.metrics")
    assert is_module(Role.METRIC, "evaluate")
    assert not is_module(Role.METRIC, "sklearn.svm")
    assert not is_module(Role.METRIC, "")


def test_whose_work_a_call_is() -> None:
    assert kind_of(f"{LIB}/vllm/worker.py") is Kind.DEVICE
    assert kind_of(f"{LIB}/numpy/linalg.py") is Kind.ARRAYS
    assert kind_of(f"{LIB}/h5py/_hl/dataset.py") is Kind.HOST
    assert kind_of(f"{LIB}/nobody_knows/it.py") is None
    assert not plays(Role.LOADER, None)


ROWS = """
[words]
[our_reader]
also = "our_other_reader"
loader = 'batches/ (next|get)\\w*'
[torch]
is = "host"
"""


def test_rows_of_ones_own_are_added_and_stand_before_ours(tmp_path: Path) -> None:
    own = tmp_path / "mine.toml"
    own.write_text(ROWS)
    ask = (
        "from whyidle.monitor.libraries.frames import *\n"
        "from whyidle.monitor.runs.stacks import CodeLine as L\n"
        "lib = '/venv/lib/python3.11/site-packages'\n"
        "at = L(f'{lib}/our_other_reader/batches/disk.py', 1, 'next_batch')\n"
        "print(sorted(roles(at)), kind_of(f'{lib}/torch/nn.py'), kind_of(f'{lib}/jax/x.py'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", ask], env={VARIABLE: str(own)}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout == "[<Role.LOADER: 'loader'>] host device\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[ours", "cannot be read"),
        ("[ours]\nloads = '*'", "'loads' is not a valid Role"),
        ("[ours]\nloader = '('", "missing ), unterminated subpattern"),
        ("[ours]\nis = 'fast'", "'fast' is not a valid Kind"),
        ("[ours]\nloader = '* {nowhere}'", "'nowhere'"),
        ("ours = 3", "[ours]"),
    ],
)
def test_a_row_that_cannot_be_read_says_which(tmp_path: Path, text: str, said: str) -> None:
    own = tmp_path / "mine.toml"
    own.write_text(text)
    with pytest.raises(Problem) as error:
        rows(read(own), RAW["words"], own)
    assert said in error.value.what
    assert str(own) in error.value.what


def test_a_file_that_is_named_and_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="cannot be read"):
        read(tmp_path / "nowhere.toml")


@pytest.mark.parametrize("text", ["[packages]\ndevice = ['a']", "[packages]\nhots = 'a'"])
def test_a_list_of_packages_that_cannot_be_read_says_so(tmp_path: Path, text: str) -> None:
    own = tmp_path / "mine.toml"
    own.write_text(text)
    with pytest.raises(Problem, match=r"\[packages\]"):
        rows(read(own), RAW["words"], own)


def test_a_file_of_other_letters_says_so(tmp_path: Path) -> None:
    own = tmp_path / "mine.toml"
    own.write_bytes(b"[ours]\nlog = '\xff'")
    with pytest.raises(Problem, match="cannot be read"):
        read(own)


@pytest.mark.parametrize(
    ("file", "function", "role"),
    [
        ("/usr/lib/python3.13/pathlib/_local.py", "stat", Role.DISK),
        ("/usr/lib/python3.12/zipfile/__init__.py", "read", Role.DISK),
        ("/usr/lib/python3.11/gzip.py", "decompress", Role.UNPACK),
    ],
)
def test_modules_of_python_that_became_packages(file: str, function: str, role: Role) -> None:
    assert role in roles(line(file, function))


def test_ones_own_folder_below_src_is_ones_own() -> None:
    assert is_users("/home/u/proj/src/torch/train.py")
    assert not is_users("/home/u/transformers/src/transformers/trainer.py")
    assert Role.LOG not in roles(line(f"{LIB}/wandb/__init__.py", "<module>"))


def test_a_file_that_a_package_wrote_is_no_code_of_the_users() -> None:
    written = "/tmp/torch_geometric.nn.conv.gcn_conv_GCNConv_propagate_x1.py"
    assert not is_users(written)
    assert (package_of(written), kind_of(written)) == ("torch_geometric", Kind.DEVICE)
    # The healthy twins: a name with a dot, and one that begins as a package's does.
    assert is_users("/home/u/train.v2.final.py")
    assert is_users("/home/u/torch.py2.py") is is_users("/home/u/torch_py2.py")

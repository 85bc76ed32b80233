"""A kernel is called by its notebook, where something says which one that is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from whyidle.monitor.core.errors import TargetGone
from whyidle.monitor.processes import by_name
from whyidle.monitor.processes.notebooks import notebook_of
from whyidle.monitor.processes.process import describe

# As VS Code starts one itself.
OF_AN_EDITOR = [
    *("/w/.venv/bin/python", "-m", "ipykernel_launcher"),
    "--f=/home/me/.local/share/jupyter/runtime/kernel-v35d1c.json",
]
KERNEL = ["/usr/bin/python3", "-m", "ipykernel_launcher", "-f", "/run/jupyter/kernel-1a2b.json"]


@pytest.mark.parametrize(
    ("arguments", "environment", "folder", "name"),
    [
        (KERNEL, {"JPY_SESSION_NAME": "/home/me/work/train.ipynb"}, "/x", "notebook train.ipynb"),
        (KERNEL, {"JPY_SESSION_NAME": "work/a b.ipynb"}, "/x", "notebook a b.ipynb"),
        (KERNEL, {}, "/home/me/work", "a notebook in work"),
        (KERNEL, {"JPY_SESSION_NAME": "console-1"}, "/", "a notebook in /"),
        (KERNEL, {}, None, "a notebook"),
        (["python", "-m", "ipykernel_launcher", "--f=/k.json"], {}, "/w", "a notebook in w"),
        (OF_AN_EDITOR, {"JPY_SESSION_NAME": "/w/train.ipynb"}, "/w", "notebook train.ipynb"),
        (OF_AN_EDITOR, {"VSCODE_PID": "7"}, "/w", "a notebook in w"),
        (["python", "/site/ipykernel_launcher.py", "-f", "k.json"], {}, "/w", "a notebook in w"),
        (["python", "train.py"], {"JPY_SESSION_NAME": "train.ipynb"}, "/w", None),
        (["python", "-m", "trainer", "ipykernel"], {}, "/w", None),
        ([], {}, None, None),
    ],
)
def test_a_kernel_has_the_name_of_its_notebook(
    arguments: list[str], environment: dict[str, str], folder: str | None, name: str | None
) -> None:
    assert notebook_of(arguments, environment, folder) == name


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like one."""
    script = tmp_path / "ipykernel_launcher.py"
    script.write_text("import sys; print(flush=True); sys.stdin.read()")
    with subprocess.Popen(
        [sys.executable, str(script), "-f", "kernel-1.json"],
        env={**os.environ, "JPY_SESSION_NAME": f"{tmp_path}/of this test.ipynb"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_it_is_found_by_the_name_of_its_notebook(kernel: subprocess.Popen[bytes]) -> None:
    who = describe(kernel.pid)
    assert who is not None
    assert who.script == "notebook of this test.ipynb"
    assert by_name.find("of this test.ipynb").pid == kernel.pid
    with pytest.raises(TargetGone):
        by_name.find("another.ipynb")

"""Programs as forks of a process that has imported their framework: many fit into a minute."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

# Each line says what to run; the answer is how it ended, and what it printed.
_SERVER: Final = """
import json, os, runpy, signal, sys
IMPORTS
for line in sys.stdin:
    asked = json.loads(line)
    read, write = os.pipe()
    if os.fork() == 0:
        # What it starts ends with it.
        os.setsid()
        signal.alarm(asked["seconds"])
        os.dup2(write, 1); os.dup2(write, 2); os.close(read); os.close(write)
        os.chdir(asked["folder"]); os.environ.update(asked["environment"])
        sys.argv = asked["words"]; sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")
        break
    os.close(write)
    with os.fdopen(read, errors="replace") as told:
        text = told.read()
    print(json.dumps([os.wait()[1], text]), flush=True)
"""
# What takes long to import, and starts no thread and no device yet.
IMPORTS: Final = {
    "torch": "import torch, torch.utils.data, torch._dynamo",
    "jax": "import jax, jax.numpy",
    "tensorflow": "import numpy",
}


class Forks:
    """The process, while the block runs; it runs one program at a time."""

    def __init__(self, python: str, imports: str) -> None:
        self._server = subprocess.Popen(
            [python, "-c", _SERVER.replace("IMPORTS", imports)], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __call__(
        self,
        words: Sequence[str],
        folder: Path,
        seconds: int,
        environment: Mapping[str, str] | None = None,
    ) -> tuple[int, str]:
        """Run a program; return how it ended, as ``os.wait`` has it, and what it printed."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        asked = {"words": list(words), "folder": str(folder), "seconds": seconds,
                 "environment": dict(environment or {})}  # fmt: skip
        self._server.stdin.write(json.dumps(asked) + "\n")
        self._server.stdin.flush()
        status, text = json.loads(self._server.stdout.readline())
        return int(status), str(text)

    def __exit__(self, *_error: object) -> None:
        self._server.communicate()

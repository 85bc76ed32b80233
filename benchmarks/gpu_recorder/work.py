"""The loads: small programs of torch or JAX that the recorder starts, waits for and ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MATRIX = 8192
COPY_BYTES = 256 << 20
MIB = 1 << 20
BATCH = 10
TELL_SECONDS = 0.25
STOP_SECONDS = 5.0
# How much longer than it was asked for a load goes on by itself, if nobody ends it.
GRACE_SECONDS = 60.0
CHECK_SECONDS = 90.0
NONE = "none"
DESCRIPTIONS = {
    "matmul": f"bf16 products of {MATRIX}x{MATRIX}",
    "h2d": f"copies of {COPY_BYTES // MIB} MiB to the GPU (pageable, then with torch pinned)",
}

Step = Callable[[], int]  # does some work, returns the bytes that it copied to the GPU


class WorkFailed(Exception):  # noqa: N818  a sentence for the user, not a defect of ours
    """A load did not start, or ended before its time."""


# In the load's own process -----------------------------------------------------------------------


def main(kind: str, framework: str, seconds: float) -> None:
    """Run one load; tell on stdout that it is ready, then how far it is."""
    if kind == "check":
        print(_sees_gpu())
        return
    parent = os.getppid()
    first, second = _steps(kind, framework)
    first()
    print("ready", flush=True)
    started = told = time.monotonic()
    copied = 0
    step = first
    # An orphan ends itself, so that no load outlives its recorder.
    while (now := time.monotonic()) < started + seconds + GRACE_SECONDS and os.getppid() == parent:
        if step is first and now > started + seconds / 2:
            step = second
        copied += step()
        if time.monotonic() - told >= TELL_SECONDS:
            told = time.monotonic()
            print(f"{told:.6f} {copied}", flush=True)


def _steps(kind: str, framework: str) -> tuple[Step, Step]:
    """Return what to do in the first half of the time, and in the second."""
    if framework == NONE:
        return _sleep, _sleep
    matmul, copy = _torch() if framework == "torch" else _jax()
    if kind == "matmul":
        return matmul, matmul
    return copy()


def _sleep() -> int:
    time.sleep(0.05)
    return 0


def _torch() -> tuple[Step, Callable[[], tuple[Step, Step]]]:
    import torch  # noqa: PLC0415  only the load's own process pays for it

    def matmul() -> int:
        for _ in range(BATCH):
            torch.mm(a, b, out=c)
        torch.cuda.synchronize()
        return 0

    def copies() -> tuple[Step, Step]:
        target = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")

        def step(source: Any) -> int:
            target.copy_(source)
            torch.cuda.synchronize()
            return COPY_BYTES

        pageable = torch.ones(COPY_BYTES, dtype=torch.uint8)
        pinned = pageable.clone().pin_memory()
        return (lambda: step(pageable)), (lambda: step(pinned))

    # Random numbers: on zeros the GPU draws less power.
    a, b = (torch.randn(MATRIX, MATRIX, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    c = torch.empty_like(a)
    return matmul, copies


def _jax() -> tuple[Step, Callable[[], tuple[Step, Step]]]:
    import jax  # noqa: PLC0415  only the load's own process pays for it
    import jax.numpy as jnp  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415

    def matmul() -> int:
        done = [product(a, b) for _ in range(BATCH)]
        done[-1].block_until_ready()
        return 0

    def copies() -> tuple[Step, Step]:
        source = np.ones(COPY_BYTES, dtype=np.uint8)

        def step() -> int:
            jax.device_put(source).block_until_ready()
            return COPY_BYTES

        return step, step

    product = jax.jit(jnp.matmul)
    a, b = (
        jax.random.normal(jax.random.key(seed), (MATRIX, MATRIX), dtype=jnp.bfloat16)
        for seed in range(2)
    )
    return matmul, copies


def _sees_gpu() -> str:
    try:
        import torch  # noqa: PLC0415

        if torch.cuda.is_available():
            return "torch"
    except ImportError:
        pass
    try:
        import jax  # noqa: PLC0415

        jax.devices("gpu")
    except (ImportError, RuntimeError):
        return NONE
    return "jax"


# In the recorder ---------------------------------------------------------------------------------


class Work:
    """A load that runs."""

    def __init__(self, process: subprocess.Popen[bytes], said: Path, errors: Path) -> None:
        self.process = process
        self._said = said
        self._errors = errors

    def is_ready(self) -> bool:
        """Tell whether it works by now; raise :class:`WorkFailed` if it has ended."""
        if self.process.poll() is not None:
            last = (self._errors.read_text().strip().splitlines() or ["it said nothing"])[-1]
            msg = f"A load ended early (exit code {self.process.returncode}): {last}"
            raise WorkFailed(msg)
        return self._said.read_text().startswith("ready\n")

    def copied(self) -> list[tuple[float, int]]:
        """Return (monotonic seconds, bytes copied so far)."""
        lines = (line.split() for line in self._said.read_text().splitlines()[1:])
        return [(float(words[0]), int(words[1])) for words in lines if len(words) == 2]

    def stop(self) -> None:
        """End it, by its pid."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()


def environment(uuid: str | None) -> dict[str, str]:
    """Return the environment of a load that shall see this GPU alone."""
    inherited = {name: v for name, v in os.environ.items() if name != "JAX_PLATFORMS"}
    added = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if uuid is not None:
        added["CUDA_VISIBLE_DEVICES"] = uuid
    return inherited | added


def check(script: Path, uuid: str | None) -> str:
    """Return which framework sees the GPU: torch, jax or none."""
    try:
        done = subprocess.run(
            [sys.executable, str(script), "--work", "check"],
            env=environment(uuid),
            capture_output=True,
            text=True,
            timeout=CHECK_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return NONE
    return (done.stdout.split() or [NONE])[-1]


@contextmanager
def running(script: Path, folder: Path, words: list[str], uuid: str | None) -> Iterator[Work]:
    """Run a load, and end it whatever happens."""
    said, errors = folder / "said", folder / "errors"
    folder.mkdir()
    with said.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, str(script), *words],
            env=environment(uuid),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            # Ctrl-C is for the recorder, which ends the load itself.
            process_group=0,
        )
    work = Work(process, said, errors)
    try:
        yield work
    finally:
        work.stop()

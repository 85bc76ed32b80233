"""What many tests need: the command in a subprocess, a state folder, a job, a fake NVML."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import fake_nvml, longer
from tests.forked import Forked, Imported

ROOT = Path(__file__).parent.parent
TAPES = ROOT / "tests" / "data" / "tapes"

# Tests use every core, and none of them is somebody's job.
os.environ["WHYIDLE_CORE_SHARE"] = "1"

# A job says when it is ready, then works until its input ends: no test waits for a clock.
JOB = """
import sys, threading
print("ready", flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), __import__("os")._exit(0)), daemon=True).start()
while True:
    sum(range(20000))
    threading.Event().wait(0.01)
"""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what only the long run does, and what this machine forbids; check the list."""
    longer.mark(items)
    entering = [item for item in items if item.get_closest_marker("ptrace")]
    if entering and not _may_enter():
        for item in entering:
            item.add_marker(pytest.mark.skip("entering another process is not permitted here"))
    wrong = longer.mistakes(items) if os.environ.get("CI") == "true" else []
    if wrong:
        raise pytest.UsageError("\n".join([f"{longer.LIST}:", *wrong]))


def _may_enter() -> bool:
    """Return whether a process may trace its sibling: Yama or a container may forbid it."""
    seize = "import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(0x4206, int(sys.argv[1]), 0, 0))"
    with subprocess.Popen(["sleep", "60"]) as sibling:
        tracer = [sys.executable, "-c", seize, str(sibling.pid)]
        code = subprocess.run(tracer, check=False).returncode
        sibling.kill()
    return code == 0


@pytest.fixture(autouse=True, scope="session")
def _signals_reach_children() -> None:
    """Undo what a script's `&` and nohup pass on: children would ignore Ctrl-C and hang-ups."""
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of this test's own."""
    folder = tmp_path / "state"
    monkeypatch.setenv("WHYIDLE_STATE_DIR", str(folder))
    return folder


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


Monitor = Callable[..., subprocess.CompletedProcess[str]]


def command(*arguments: object) -> list[str]:
    """Return the command line of the monitor."""
    return [sys.executable, "-m", "whyidle.monitor", *map(str, arguments)]


# The command with all that it imports: to import it again takes each call a third of a second.
COMMAND = Imported(
    "import importlib, pkgutil, numpy, rich.live, rich.table\n"
    "from whyidle.monitor import app, cli, commands, rules\n"
    "from whyidle.monitor.traces import answer, analysis, kineto, xplane\n"
    "for room in (app, commands):\n"
    " for each in pkgutil.iter_modules(room.__path__):\n"
    "  importlib.import_module(f'{room.__name__}.{each.name}')\n"
    "rules.load()",
    warnings="default",
)
CALL = """
import os, sys
os.chdir({folder!r})
os.environ.clear()
os.environ.update({env!r})
sys.argv = {line!r}
# Those of the process before belong to other files.
sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)
sys.stderr = open(2, "w", closefd=False, buffering=1)
cli.main()
"""


@pytest.fixture
def monitor(state: Path) -> Monitor:
    """Run a command of the monitor and return what it said.

    Where start-up matters (an environment, a preexec function), it is a process of its own.
    """

    def call(
        *arguments: object, env: dict[str, str] | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        is_plain = options.keys() <= {"cwd"} and not env
        env = {**os.environ, "WHYIDLE_STATE_DIR": str(state), **(env or {})}
        if is_plain:
            return _called(list(map(str, arguments)), env, options.get("cwd") or Path.cwd())
        return subprocess.run(
            command(*arguments),
            env=env,
            text=True,
            timeout=60,
            check=False,
            stdin=options.pop("stdin", subprocess.DEVNULL),
            capture_output=True,
            **options,
        )

    return call


def _called(
    arguments: list[str], env: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    line = ["monitor", *arguments]
    with Forked(COMMAND, CALL.format(folder=str(folder), env=env, line=line)) as process:
        out, errors = process.communicate(timeout=60)
    assert process.returncode is not None
    return subprocess.CompletedProcess(line, process.returncode, out, errors)


@pytest.fixture
def job() -> Iterator[subprocess.Popen[str]]:
    """A Python process that works until the test ends."""
    with start_job() as process:
        yield process
        process.kill()


def start_job(source: str = JOB, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start a Python job and wait until it says that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", source, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def lines(text: str) -> list[dict[str, Any]]:
    """Return JSON lines, each of which must have the schema number."""
    objects = [json.loads(line) for line in text.splitlines()]
    assert all(o["schema"] == 1 for o in objects)
    return objects


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    folder = tmp_path / "mounted"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake libnvidia-ml.so.1, compiled once."""
    try:
        return fake_nvml.build(tmp_path_factory.mktemp("nvml"))
    except RuntimeError as missing:
        pytest.skip(str(missing))


@pytest.fixture
def tape(library: Path) -> Callable[..., dict[str, str]]:
    """Return the environment in which NVML plays a tape: a file of data/tapes, or a path."""

    def play(name: str | Path, **pids: int) -> dict[str, str]:
        path = name if isinstance(name, Path) else TAPES / f"{name}.tape"
        return fake_nvml.environment(library, path, **pids)

    return play

"""`monitor run` brings the agent along, however the job starts its Pythons."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from whyidle.monitor.app.launch import with_boot
from whyidle.monitor.attach import bootdir

# Stands for the agent: it says into which process it came.
AGENT = "import os\nwith open(os.environ['SEEN'], 'a') as f: f.write('%d ' % os.getpid())\n"
# A job says which of its processes have a framework, in a file of its own: what it prints is
# compared with what it prints without us.
SAY = """
import os
def say():
    with open(os.environ["SAID"], "a") as f: f.write("%d " % os.getpid())
"""
TRAIN = f"{SAY}\nimport sys, torch\nsay()\nprint(sys.argv[1:], __name__, flush=True)\n"
IDLE = "import json; print('no framework', flush=True)"
POOL = f"""
{SAY}
import multiprocessing, sys
def work(number):
    import torch
    say()
    return number
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    for number in range(2):
        # One after the other, so that what they print comes in order.
        worker = context.Process(target=work, args=(number,))
        worker.start()
        worker.join()
        print(worker.exitcode, flush=True)
"""
NOTEBOOK = f"""
import sys
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="python3")
try:
    said = client.execute_interactive({TRAIN!r}, timeout=60, output_hook=lambda message: None)
    print(said["content"]["status"], flush=True)
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
"""
MPIRUN = """
for rank in 0 1; do
  OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=2 "$1" "$2" $rank
done
"""


class Way:
    """Runs a command with our environment and without; says where a framework and an agent were."""

    def __init__(self, folder: Path, boot: Path) -> None:
        self.folder = folder
        self.boot = boot
        self.libraries = folder / "libraries"
        (self.libraries / "torch").mkdir(parents=True)
        (self.libraries / "torch" / "__init__.py").touch()

    def file(self, name: str, text: str) -> str:
        """Write a file of the job's."""
        (self.folder / name).write_text(text)
        return name

    def same(self, *command: str, given: str = "") -> tuple[set[str], set[str]]:
        """Return the processes with a framework and those with an agent; the output is the same."""
        pids = {name: self.folder / name for name in ("SAID", "SEEN")}
        plain = self._run(command, given, {})
        for file in pids.values():
            file.unlink(missing_ok=True)
        with_us = self._run(command, given, with_boot(self.boot, {}))
        assert with_us == plain
        assert plain[0] == 0, plain
        said, seen = (p.read_text().split() if p.exists() else [] for p in pids.values())
        assert len(set(seen)) == len(seen), "an agent for each process, once"
        return set(said), set(seen)

    def _run(
        self, command: Sequence[str], given: str, more: dict[str, str]
    ) -> tuple[int, str, str]:
        ours = more.get("PYTHONPATH")
        path = os.pathsep.join([*([ours] if ours else []), str(self.libraries)])
        environment = {
            **os.environ,
            "PYTHONPATH": path,
            "SAID": str(self.folder / "SAID"),
            "SEEN": str(self.folder / "SEEN"),
        }
        done = subprocess.run(
            command, env=environment, cwd=self.folder, input=given,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def way(tmp_path: Path, state: Path) -> Way:
    boot = bootdir.make(AGENT)
    assert boot is not None
    return Way(tmp_path, boot)


@pytest.mark.parametrize(
    "options", ["train.py", "-s train.py", "-P train.py", "-u -X dev train.py", "-m train"]
)
def test_python_starts_the_agent_however_it_is_called(way: Way, options: str) -> None:
    way.file("train.py", TRAIN)
    framework, agent = way.same(sys.executable, *options.split(), "--lr", "1")
    assert len(framework) == 1
    assert agent == framework


def test_code_on_the_command_line_and_from_the_input(way: Way) -> None:
    for said, seen in (
        way.same(sys.executable, "-c", TRAIN),
        way.same(sys.executable, given=TRAIN),
        way.same(sys.executable, "-", "x", given=TRAIN),
    ):
        assert len(said) == 1
        assert said == seen


def test_a_python_without_a_framework_has_no_agent(way: Way) -> None:
    assert way.same(sys.executable, "-c", IDLE) == (set(), set())


def test_a_virtual_environment(way: Way) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", way.folder / "v"], check=True)
    framework, agent = way.same(str(way.folder / "v" / "bin" / "python"), "-c", TRAIN)
    assert len(framework) == 1
    assert agent == framework


def test_uv_run(way: Way) -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if uv is None:
        pytest.skip("uv is not installed")
    python = ("--python", sys.executable, "python", "-c", TRAIN)
    framework, agent = way.same(uv, "run", "--offline", "--no-project", "--quiet", *python)
    assert len(framework) == 1
    assert agent == framework


def test_a_shell_script_that_starts_several_pythons(way: Way) -> None:
    way.file("train.py", TRAIN)
    way.file("idle.py", IDLE)
    way.file("run.sh", '"$1" idle.py; "$1" train.py 1; "$1" train.py 2 | cat; exec "$1" idle.py')
    framework, agent = way.same("bash", "run.sh", sys.executable)
    assert len(framework) == 2
    assert agent == framework


def test_a_launcher_that_numbers_its_workers(way: Way) -> None:
    way.file("train.py", TRAIN)
    way.file("mpirun", MPIRUN)
    framework, agent = way.same("sh", "mpirun", sys.executable, "train.py")
    assert len(framework) == 2
    assert agent == framework


def test_a_job_that_becomes_another_python_by_exec(way: Way) -> None:
    source = f"import os, sys, json; os.execv(sys.executable, [sys.executable, '-c', {TRAIN!r}])"
    framework, agent = way.same(sys.executable, "-c", source)
    assert len(framework) == 1
    assert agent == framework


@pytest.mark.parametrize("how", ["spawn", "fork", "forkserver"])
def test_workers_of_multiprocessing(way: Way, how: str) -> None:
    way.file("pool.py", POOL)
    framework, agent = way.same(sys.executable, "pool.py", how)
    assert len(framework) == 2
    assert agent == framework


def test_a_notebooks_kernel(way: Way) -> None:
    pytest.importorskip("ipykernel")
    pytest.importorskip("jupyter_client")
    framework, agent = way.same(sys.executable, "-c", NOTEBOOK)
    assert len(framework) == 1
    assert agent == framework


@pytest.mark.parametrize("scrubbed", ["env -i", "env -u PYTHONPATH"])
def test_an_environment_that_was_scrubbed_keeps_us_out(way: Way, scrubbed: str) -> None:
    framework, agent = way.same(*scrubbed.split(), sys.executable, "-c", IDLE)
    assert not framework
    assert not agent


@pytest.mark.parametrize(
    ("old", "parts"),
    [
        (None, "{}"),
        ("", "{}"),
        ("a", "{}:a"),
        (":", "{}::"),
        ("a::b:", "{}:a::b:"),
        (".:../x", "{}:.:../x"),
        ("\udcff", "{}:\udcff"),
    ],
)
def test_what_stood_on_the_path_is_kept_byte_for_byte(old: str | None, parts: str) -> None:
    before = {"A": "b"} if old is None else {"A": "b", "PYTHONPATH": old}
    after = with_boot(Path("/boot"), before)
    assert after == {"A": "b", "PYTHONPATH": parts.format("/boot")}
    # A `monitor run` in a `monitor run` does not stand there twice.
    assert with_boot(Path("/boot"), after) == after

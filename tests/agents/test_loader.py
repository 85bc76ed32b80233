"""The agent is loaded into a job that forks, ends, or iterates over its modules at that moment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.agents.pythons import AGENTS, every_python
from whyidle.agents import wire
from whyidle.monitor.attach.payload import payload

# What the agent imports is not loaded yet: without ``site`` a job has next to nothing.
BARE = "import os, sys, time\n"


def came(python: str, source: str, folder: Path) -> None:
    """Run a job into which the real loader text is injected; files go to the test's folder."""
    text = payload({"method": "ptrace", "grace": 60})
    folders = repr(wire.FOLDERS).replace("'", '"')
    assert folders in text
    text = text.replace(folders, f'("{folder}",)')
    line = [python, "-I", "-S", "-c", f"{BARE}TEXT = sys.stdin.read()\n{source}"]
    # It is longer than an argument may be.
    done = subprocess.run(line, input=text, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@every_python
def test_a_fork_in_the_middle_finds_every_module_whole(python: str, tmp_path: Path) -> None:
    source = """
exec(TEXT)
started = False
while not started:
    pid = os.fork()
    if not pid:
        try:
            half = [n for n, m in list(sys.modules.items())
                    if getattr(getattr(m, "__spec__", None), "_initializing", False)]
            import contextlib, json, typing, functools, struct
            os._exit(len(half))
        except BaseException:
            os._exit(99)
    assert os.waitpid(pid, 0)[1] == 0
    there = sys.modules.get("_whyidle_agent")
    started = there is not None and there.ready
"""
    came(python, source.replace("os.fork()", "fork()").replace("exec(TEXT)\n", QUIET), tmp_path)


# While a thread of ours loads the agent, Python 3.12 warns of it where ``__main__`` forks.
QUIET = """
fork = os.fork
if sys.version_info >= (3, 12):
    import warnings; warnings.simplefilter("ignore")
exec(TEXT)
"""


# A module of Python that is slow to come, so that the fork is sure to find it half there.
SLOW = """
import importlib.util, _struct
class Slow:
    began = False
    def find_spec(self, name, *_):
        return importlib.util.spec_from_loader(name, self) if name == "struct" else None
    def create_module(self, spec): return None
    def exec_module(self, module):
        self.began = True
        time.sleep(0.3)
        vars(module).update(vars(_struct))
slow = Slow()
sys.meta_path.insert(0, slow)
sys.modules.pop("struct", None)
"""


@every_python
def test_a_fork_waits_for_a_module_that_is_half_there(python: str, tmp_path: Path) -> None:
    source = """
while not slow.began: time.sleep(0.001)
pid = fork()
if not pid:
    os._exit(0 if hasattr(sys.modules["struct"], "Struct") else 1)
assert os.waitpid(pid, 0)[1] == 0
"""
    came(python, SLOW + QUIET + source, tmp_path)


@every_python
def test_an_end_in_the_middle_is_quiet(python: str, tmp_path: Path) -> None:
    for wait in (0, 0.0005, 0.002, 0.006, 0.015):
        came(python, f"exec(TEXT); time.sleep({wait})", tmp_path)
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_one_module_comes_where_the_job_may_look(tmp_path: Path) -> None:
    source = f"""
sys.path.insert(0, {str(AGENTS.parent)!r})
NEEDED = {needed()!r}
for name in NEEDED: __import__(name)
before = set(sys.modules)
exec(TEXT)
while not getattr(sys.modules.get("_whyidle_agent"), "ready", False): time.sleep(0.001)
assert set(sys.modules) - before == {{"_whyidle_agent", "_whyidle_fork"}}, set(sys.modules) - before
"""
    came(sys.executable, source, tmp_path)


def needed() -> tuple[str, ...]:
    """Return the standard modules that the agent imports."""
    from whyidle.monitor.attach.bootdir import needed as found  # noqa: PLC0415  it is the monitor's

    return found(AGENTS)

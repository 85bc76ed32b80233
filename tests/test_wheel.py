"""The wheel and the source archive, installed where there is no repository: everything works."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.agents.pythons import interpreters
from tests.conftest import JOB, ROOT

UV = shutil.which("uv", path=Path(sys.executable).parent)
pytestmark = pytest.mark.skipif(UV is None, reason="uv is not here: it builds and installs")
WANTED = ("3.11", "3.12", "3.13")
# The wheels are fetched where they were not before.
LONGEST_S = 600


def said_by(*line: object, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        list(map(str, line)),
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def version_of(python: str) -> str:
    source = "import sys; print('%d.%d' % sys.version_info[:2])"
    return said_by(python, "-c", source, cwd=ROOT).strip()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive, and the wheel that is made of it and of nothing else."""
    out = tmp_path_factory.mktemp("dist")
    said_by(UV, "build", "--out-dir", out, ROOT, cwd=out)
    return out


@pytest.fixture(scope="module", params=WANTED)
def monitor(
    request: pytest.FixtureRequest, built: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The command in an environment that has the wheel, far from the repository."""
    found = {version_of(path): path for path in [sys.executable, *interpreters()]}
    if request.param not in found:
        pytest.skip(f"Python {request.param} is not here")
    folder = tmp_path_factory.mktemp("clean")
    (wheel,) = built.glob("*.whl")
    said_by(UV, "venv", "--python", found[request.param], folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    said_by(
        *(UV, "pip", "install", "--python", python, "-c", ROOT / "constraints.txt"),
        *(f"{wheel}[dashboard]", "jax"),
        cwd=folder,
    )
    yield python.with_name("monitor")
    shutil.rmtree(folder)


def run(monitor: Path, state: Path, *arguments: object) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": str(state), "WHYIDLE_STATE_DIR": str(state / "s")}
    return said_by(monitor, *arguments, cwd=state, env=env)


def test_the_source_archive_has_the_project_and_no_leftovers(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert {"pyproject.toml", "README.md", "LICENSE", "whyidle/monitor/cli.py"} <= {*names}
    assert "whyidle/monitor/traces/kineto/_scan.c" in names
    assert not [name for name in names if "__pycache__" in name or name.startswith(".venv")]


def test_help_names_every_command(monitor: Path, tmp_path: Path) -> None:
    said = run(monitor, tmp_path, "--help")
    for name in ("attach", "run", "demo", "dashboard", "trace", "diagnose", "compare", "doctor"):
        assert name in said


def test_a_running_job_is_entered(monitor: Path, tmp_path: Path) -> None:
    python = monitor.with_name("python")
    source = "import jax\n" + JOB
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([python, "-c", source], **pipes) as job:
        try:
            assert job.stdout is not None
            assert job.stdout.readline() == "ready\n"
            said = run(monitor, tmp_path, "attach", job.pid, "--for", 3, "--json")
            assert job.poll() is None
        finally:
            job.kill()
    summary = json.loads(said.splitlines()[-1])
    assert summary["summary"] is True
    assert summary["attached"] in {"agent", "outside"}


def test_a_demo_finds_its_fault(monitor: Path, tmp_path: Path) -> None:
    said = run(
        monitor, tmp_path, "demo", "unjitted_step", "--framework", "jax", "--no-dashboard", "--json"
    )
    assert json.loads(said)["before"]["top"] == "unjitted_step"


def test_the_dashboard_shows_the_sample(monitor: Path, tmp_path: Path) -> None:
    line = [monitor, "dashboard", "--sample", "--no-browser", "--no-token"]
    env = {**os.environ, "WHYIDLE_STATE_DIR": str(tmp_path)}
    pipe = subprocess.PIPE
    with subprocess.Popen(line, cwd=tmp_path, env=env, stdout=pipe, text=True) as page:
        try:
            assert page.stdout is not None
            link = next(w for text in page.stdout for w in text.split() if w.startswith("http://"))
            with urlopen(link, timeout=60) as answer:
                assert answer.status == 200
        finally:
            page.terminate()


SCANNER = "from whyidle.monitor.traces.kineto import scanning; print(scanning.Scanner is not None)"
TRACE = ROOT / "tests/data/traces/kineto/cpu_plain.json.gz"


def test_traces_are_read_by_the_compiled_scanner(monitor: Path, tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    said = said_by(monitor.with_name("python"), "-c", SCANNER, cwd=tmp_path)
    assert said.strip() == "True"
    assert json.loads(run(monitor, tmp_path, "trace", TRACE, "--json"))["events"] > 0


@pytest.mark.parametrize("editable", [False, True])
def test_it_installs_without_a_compiler(
    built: Path, monitor: Path, tmp_path: Path, editable: bool
) -> None:
    """From the source archive, with a compiler that fails; the answer is the same."""
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    (source,) = tmp_path.glob("whyidle-*/")
    said_by(UV, "venv", "--python", sys.executable, tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    said_by(
        *(UV, "pip", "install", "--python", python, "-c", ROOT / "constraints.txt"),
        *(["-e"] if editable else []),
        source,
        cwd=tmp_path,
        env={**os.environ, "CC": "/bin/false"},
    )
    assert said_by(python, "-c", SCANNER, cwd=tmp_path).strip() == "False"
    answers = [
        run(each, tmp_path, "trace", TRACE, "--json")
        for each in (monitor, python.with_name("monitor"))
    ]
    assert answers[0] == answers[1]

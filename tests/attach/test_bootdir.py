from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.agents.pythons import interpreters
from whyidle.agents import wire
from whyidle.monitor.attach import bootdir

# Stands for the agent: it only says where it was started.
AGENT = "import os\nwith open(os.environ['SEEN'], 'a') as f: f.write('%d ' % os.getpid())\n"
# What a job can see of us: without us it prints the same.
LOOK = """
import sys
def look():
    print([p for p in sys.path], sorted(sys.modules), [type(f).__name__ for f in sys.meta_path])
    print(sys.modules.get("sitecustomize"), sorted(sys.path_importer_cache), sys.flags)
"""
TRAIN = f"{LOOK}\nimport torch\nlook()\nimport jax\nlook()\n"


def old_interpreters() -> list[str]:
    """Return the Pythons that are too old for the agent, but must not break."""
    home = Path.home() / ".pyenv" / "versions"
    found = (
        sorted(home.glob(f"{version}.*/bin/python")) for version in ("2.7", "3.6", "3.7", "3.8")
    )
    return [str(paths[-1]) for paths in found if paths]


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    """Frameworks that are imported quickly."""
    folder = tmp_path / "libraries"
    for name in ("torch", "jax"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").touch()
    return folder


class Job:
    """Runs a Python with the folder on its path, or without."""

    def __init__(self, tmp_path: Path, boot: Path, libraries: Path) -> None:
        self.seen = tmp_path / "seen"
        self.boot = boot
        self.libraries = libraries
        self.folder = tmp_path

    def run(
        self, *arguments: str, boot: bool = True, python: str = sys.executable, path: str = ""
    ) -> subprocess.CompletedProcess[str]:
        parts = [
            *([str(self.boot)] if boot else []),
            *([path] if path else []),
            str(self.libraries),
        ]
        environment = {**os.environ, "SEEN": str(self.seen), "PYTHONPATH": ":".join(parts)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return subprocess.run(
            [python, *arguments], env=environment, cwd=self.folder,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def same(self, *arguments: str, python: str = sys.executable, path: str = "") -> str:
        """Return what it prints, which must be the same with us and without."""
        results = [
            (done.returncode, done.stdout, done.stderr)
            for boot in (False, True)
            for done in [self.run(*arguments, boot=boot, python=python, path=path)]
        ]
        assert results[0] == results[1]
        return results[1][1] + results[1][2]

    def starts(self) -> int:
        """Return how often the agent was started."""
        return len(self.seen.read_text().split()) if self.seen.exists() else 0


@pytest.fixture
def job(tmp_path: Path, libraries: Path, state: Path) -> Job:
    boot = bootdir.make(AGENT)
    assert boot is not None
    return Job(tmp_path, boot, libraries)


@pytest.mark.parametrize("python", interpreters(), ids=lambda path: path.split("/")[-3])
def test_the_agent_starts_once_at_the_first_framework_and_nothing_else_is_seen_of_us(
    job: Job, python: str
) -> None:
    job.same("-c", f"{LOOK}\nfrom concurrent import futures", python=python)
    assert job.starts() == 0
    job.same("-W", "error", "-b", "-c", TRAIN, python=python)
    assert job.starts() == 1


@pytest.mark.parametrize("python", old_interpreters(), ids=lambda path: path.split("/")[-3])
def test_a_python_too_old_for_the_agent_goes_without(job: Job, python: str) -> None:
    said = job.same("-c", TRAIN, python=python)
    assert "Error" not in said
    assert job.starts() == 0


@pytest.mark.parametrize(
    "text",
    [
        "import sys; print('mine', __name__, __file__, sys.path, __package__)",
        "raise RuntimeError('mine fails')",
        "import missing_module",
        "raise ImportError('odd', name='sitecustomize')",
        "import os, sys; print('bye'); sys.exit(3)",
        "raise KeyboardInterrupt",
        "import sys; del sys.modules[__name__]",
        "def broken(:",
    ],
)
@pytest.mark.parametrize("python", [sys.executable, *old_interpreters()[:1]])
def test_a_sitecustomize_of_the_users_own_runs_as_without_us(
    job: Job, tmp_path: Path, text: str, python: str
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text(text)
    # A relative part is the user's own business.
    results = []
    for boot in (False, True):
        done = job.run("-B", "-c", TRAIN, boot=boot, python=python, path="own")
        # Where the error is no Exception, Python prints the traceback: our frames are in it.
        results.append((done.returncode, done.stdout, done.stderr.splitlines()[-1:]))
    assert results[0] == results[1]
    if text.startswith("raise RuntimeError"):
        assert "fail" in results[1][2][0]


@pytest.mark.parametrize(
    "how", ["import torch", "import importlib; importlib.import_module('torch')"]
)
def test_a_framework_that_the_users_sitecustomize_imports_starts_it(
    job: Job, tmp_path: Path, how: str
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text(how)
    job.same("-B", "-c", TRAIN, path="own")
    assert job.starts() == 1


def test_a_framework_that_is_there_before_us_starts_it(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "early.pth").write_text("import torch\n")
    (tmp_path / "own").mkdir()
    # Ours comes second: this one hides it, and gives way to it as we do.
    (tmp_path / "own" / "sitecustomize.py").write_text(
        f"import site, sys\nsite.addsitedir({str(site)!r})\n"
        f"sys.path.remove({str(tmp_path / 'own')!r})\n"
        f"sys.path.insert(0, {str(job.boot)!r})\ndel sys.modules[__name__]\n__import__(__name__)\n"
    )
    done = job.run("-B", "-c", TRAIN, boot=False, path=str(tmp_path / "own"))
    assert (done.returncode, done.stderr) == (0, "")
    assert job.starts() == 1


def test_a_search_for_a_framework_starts_nothing(job: Job) -> None:
    job.same(
        "-c",
        "import importlib.util as u; print(u.find_spec('torch').name, u.find_spec('jax').origin)",
    )
    assert job.starts() == 0


def test_a_framework_that_is_not_there_starts_nothing(job: Job) -> None:
    source = "try: import jaxlib\nexcept ImportError as error: print(repr(error), error.name)"
    assert "jaxlib" in job.same("-S", "-c", f"import site, sys; site.execsitecustomize()\n{source}")
    assert job.starts() == 0


def test_an_import_in_a_thread_leaves_the_list_of_finders_alone(job: Job) -> None:
    source = (
        "import sys, threading\n"
        "thread = threading.Thread(target=__import__, args=('torch',))\n"
        "thread.start(); thread.join()\n"
        "print([type(f).__name__ for f in sys.meta_path]); import jax"
    )
    done = job.run("-c", source)
    # It stays, disabled: to remove it could make another thread's iteration skip a finder.
    assert done.stdout.startswith("['_Hook'")
    assert done.stderr == ""
    assert job.starts() == 1


def test_a_forked_child_that_imports_a_framework_has_an_agent_of_its_own(job: Job) -> None:
    source = "import os\nif os.fork() == 0:\n    import torch; os._exit(0)\nos.wait()"
    job.same("-c", source)
    assert job.starts() == 1


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_a_python_that_ignores_our_folder_is_left_alone(job: Job, flag: str) -> None:
    source = f"import sys; sys.path.insert(0, {str(job.libraries)!r}); import torch"
    done = job.run(flag, "-c", source)
    assert (done.stdout, done.stderr, job.starts()) == ("", "", 0)


@pytest.mark.parametrize("agent", ["raise SystemError", "no python !", None])
def test_an_agent_that_fails_or_is_gone_is_not_heard_of(job: Job, agent: str | None) -> None:
    if agent is None:
        (job.boot / "agent.py").unlink()
    else:
        (job.boot / "agent.py").write_text(agent)
    job.same("-X", "dev", "-c", TRAIN)


def test_a_coverage_tool_does_not_count_us_with_the_job(job: Job) -> None:
    source = (
        "import sys\nfiles = set()\n"
        "sys.settrace(lambda frame, *_: files.add(frame.f_code.co_filename))\n"
        "import torch\nsys.settrace(None)\n"
        f"print([f for f in files if f.startswith({str(job.boot)!r})])"
    )
    assert job.run("-c", source).stdout == "[]\n"
    assert job.starts() == 1


def test_the_folder_is_made_once_and_for_us_alone(state: Path) -> None:
    first, other = bootdir.make(AGENT), bootdir.make("pass")
    assert first is not None
    assert first != other
    before = (first / "agent.py").stat()
    assert bootdir.make(AGENT) == first
    assert (first / "agent.py").stat().st_ino == before.st_ino
    assert first.parent == state / "boot"
    assert {p.stat().st_mode & 0o777 for p in (first, state, first.parent)} == {0o700}
    assert {p.stat().st_mode & 0o777 for p in first.iterdir()} == {0o600}
    assert {p.name for p in first.iterdir()} == {"sitecustomize.py", "agent.py"}


@pytest.mark.parametrize("harm", ["changed", "missing", "open", "link", "file"])
def test_a_damaged_folder_is_made_anew(state: Path, tmp_path: Path, harm: str) -> None:
    folder = bootdir.make(AGENT)
    assert folder is not None
    if harm == "changed":
        (folder / "agent.py").write_text("another")
    elif harm == "missing":
        (folder / "sitecustomize.py").unlink()
    elif harm == "open":
        folder.chmod(0o777)
    else:
        folder.rename(tmp_path / "moved")
        if harm == "link":
            folder.symlink_to(tmp_path / "moved")
        else:
            folder.touch()
    assert bootdir.make(AGENT) == folder
    assert (folder / "agent.py").read_text() == AGENT
    assert not folder.is_symlink()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]


def test_what_was_not_used_for_long_goes(state: Path) -> None:
    old, fresh = bootdir.make("old"), bootdir.make("fresh")
    assert old is not None
    assert fresh is not None
    os.utime(old, (1e9, 1e9))
    os.utime(fresh, None)
    new = bootdir.make("new")
    assert new is not None
    assert {p.name for p in new.parent.iterdir()} == {fresh.name, new.name}


def test_many_at_once_make_one(state: Path) -> None:
    source = f"from whyidle.monitor.attach import bootdir; print(bootdir.make({AGENT!r}))"
    started = [
        subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    said = {process.communicate()[0] for process in started}
    assert len(said) == 1
    assert [str(p) for p in (state / "boot").iterdir()] == [said.pop().strip()]


UNFIT = ["colon", "file", "open", "none"]


@pytest.mark.parametrize("why", UNFIT)
def test_without_a_state_folder_fit_for_it_there_is_one_until_we_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    folder = tmp_path / ("a:b" if why == "colon" else "state")
    if why == "file":
        folder.touch()
    elif why == "open":
        folder.mkdir()
        folder.chmod(0o777)
    monkeypatch.setenv("WHYIDLE_STATE_DIR", "" if why == "none" else str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path / "no"))
    source = (
        f"from whyidle.monitor.attach import bootdir; b = bootdir.make({AGENT!r}); print(b)\n"
        "print(sorted(p.name for p in b.iterdir()), oct(b.stat().st_mode))"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True
    )
    path, files, *_ = done.stdout.splitlines()
    assert files == "['agent.py', 'sitecustomize.py'] 0o40700"
    assert Path(path).parent == Path(tempfile.gettempdir())
    assert not Path(path).exists()


def test_where_no_folder_can_be_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHYIDLE_STATE_DIR", "/dev/null/state")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    assert bootdir.make(AGENT) is None
    (tmp_path / "a:b").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "a:b"))
    assert bootdir.make(AGENT) is None


def test_what_the_agent_needs_of_python_is_imported_by_the_jobs_own_thread(
    state: Path, job: Job
) -> None:
    # A fork right after the import finds no module half imported by a thread that it leaves behind.
    boot = bootdir.make()
    assert boot is not None
    job.boot = boot
    needed = bootdir.needed(Path(wire.__file__).parent)
    source = f"import sys, torch; print([name for name in {needed} if name not in sys.modules])"
    assert job.run("-S", "-c", f"import site; site.execsitecustomize()\n{source}").stdout == "[]\n"
    assert {"os", "socket"} & {name.strip("_") for name in needed} == {"os", "socket"}

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attach.targets import others
from whyidle.monitor.attach.payload import FOLDER, PIECE_CHARACTERS, payload, pieces

# A package like the agent's: it prints what is done to it.
MADE_UP = {
    "__init__": '"""A package."""\n',
    "wire": "LOADS = []\n",
    "alpha": (
        "from __future__ import annotations\n"
        "from .probes import inner\n"
        "from .wire import LOADS\n"
        "LOADS.append('alpha')  # a comment\n"
        "def late():\n    '''Documented.'''\n    from . import core\n    return core\n"
    ),
    "probes/__init__": "",
    "probes/inner": (
        "from ..wire import LOADS\nLOADS.append('inner')\n\nclass Empty:\n    '''Doc.'''\n"
    ),
    "core": (
        "from .alpha import LOADS, late\n"
        "def start(options):\n"
        "    print('start', LOADS, sorted(options.items()), late().__name__, flush=True)\n"
    ),
}
WATCH = """
import os, sys, time
def there(): return sorted(m for m in sys.modules if m.startswith("_whyidle"))
def settle():
    while len(os.listdir("/proc/self/task")) > 1: time.sleep(0.001)
"""


def agent(folder: Path, **changed: str) -> Path:
    """Write a made-up agent; the loader is the real one."""
    for name, text in {**MADE_UP, **changed}.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in ("loader.py", "load_guard.py", "forks.py"):
        shutil.copy(FOLDER / name, folder)
    return folder


def in_job(python: str, text: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the text as a method would, in ``__main__``."""
    job = "\n".join([WATCH, "before = set(globals())", f"exec({text!r})", *more])
    command = [python, "-I", "-S", "-c", job]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("python", others(), ids=lambda path: path.split("/")[-3])
def test_the_agent_starts_on_the_pythons_of_jobs(python: str, tmp_path: Path) -> None:
    text = payload({"method": "ptrace", "grace": 3.5}, agent(tmp_path / "agents"))
    done = in_job(
        python,
        text,
        "settle()",
        "print(there(), set(globals()) - before - {'before'}, 'threading' in sys.modules)",
    )
    names = ["_whyidle_agent", "_whyidle_fork"]
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "start ['inner', 'alpha'] [('grace', 3.5), ('method', 'ptrace')] _whyidle_agent.core",
        f"{names} set() False",
    ]


@pytest.mark.parametrize("python", others(), ids=lambda path: path.split("/")[-3])
def test_the_real_text_is_understood_by_the_pythons_of_jobs(python: str) -> None:
    every = [p for path in FOLDER.rglob("*.py") for p in pieces(path.read_text())]
    source = f"for text in {[payload({}), *every]!r}: compile(text, 'x', 'exec')"
    # By its input: the text is nearly as long as an argument may be.
    done = subprocess.run(
        [python, "-I", "-"], input=source, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("failure", ["raise SystemExit(3)", "1 / 0", "import no_such_module"])
def test_a_failure_stays_inside_and_leaves_nothing(failure: str, tmp_path: Path) -> None:
    text = payload({}, agent(tmp_path, alpha=f"from .wire import LOADS\n{failure}\n"))
    done = in_job(sys.executable, text, "settle()", "print(there())")
    # What was registered for forks cannot be removed.
    assert (done.returncode, done.stdout, done.stderr) == (0, "['_whyidle_fork']\n", "")


def test_threads_that_are_none_do_not_run_it(tmp_path: Path) -> None:
    patched = "import _thread\ndef inline(f, args): f(*args)\n_thread.start_new_thread = inline"
    done = in_job(sys.executable, "0", patched, f"exec({payload({}, agent(tmp_path))!r}); settle()")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_second_text_starts_the_same_agent_again(tmp_path: Path) -> None:
    text = payload({}, agent(tmp_path))
    done = in_job(
        sys.executable,
        text,
        "settle()",
        f"exec({text!r}); settle()",
    )
    assert done.stdout.splitlines() == ["start ['inner', 'alpha'] [] _whyidle_agent.core"] * 2


@pytest.mark.parametrize(
    ("state", "starts"),
    [
        ("ready=False, pid=__import__('os').getpid()", False),  # another thread is at it
        ("ready=False, pid=-1", True),  # a fork in the middle of it
        ("ready=True, digest='old'", True),  # an older agent that has gone to rest
    ],
)
def test_what_is_half_there_or_old_gives_way(state: str, starts: bool, tmp_path: Path) -> None:
    text = payload({}, agent(tmp_path))
    before = (
        "mod = type(sys)('_whyidle_agent'); vars(mod).update(" + state + ")\n"
        "sys.modules['_whyidle_agent'] = mod\n"
    )
    done = in_job(sys.executable, "0", before, f"exec({text!r}); settle()")
    assert ("start" in done.stdout) is starts
    assert done.stderr == ""


def test_an_older_agent_that_lives_stays(tmp_path: Path) -> None:
    old = payload({}, agent(tmp_path / "old", core=MADE_UP["core"] + "def alive(): return True\n"))
    new = payload({}, agent(tmp_path / "new", wire="LOADS = ['new']\n"))
    done = in_job(sys.executable, old, "settle()", f"exec({new!r}); settle()")
    assert done.stdout.splitlines() == ["start ['inner', 'alpha'] [] _whyidle_agent.core"] * 2


def test_the_same_agent_is_the_same_text(tmp_path: Path) -> None:
    source = "from whyidle.monitor.attach.payload import payload; print(payload({'b': 1, 'a': 2}))"
    texts = {
        subprocess.run(
            [sys.executable, "-c", source],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(texts) == 1


def test_no_piece_is_long_to_compile() -> None:
    for path in FOLDER.rglob("*.py"):
        for piece in pieces(path.read_text()):
            # One class is one statement and cannot be cut.
            assert len(piece) <= PIECE_CHARACTERS or piece.count("\nclass ") == 0


def test_comments_and_docstrings_are_left_out() -> None:
    text = (
        '"""Long."""\nA = "# kept"\n# gone\nclass B:\n    """Gone.\n\n    All.\n    """\n\n'
        '    def c(self):\n        """Gone."""\n'
    )
    (piece,) = pieces(text)
    assert "one." not in piece.replace("# kept", "")
    assert "# kept" in piece
    namespace: dict[str, object] = {}
    exec(piece, namespace)
    assert namespace["A"] == "# kept"


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: path.name)
def test_the_pieces_of_a_file_are_its_program(path: Path) -> None:
    text = path.read_text()
    found = pieces(text)
    for piece in found:
        ast.parse(piece)
    before, after = ast.parse(text), ast.parse("".join(found))
    before.body = [x for x in before.body if not _is_of_the_future(x)]
    assert [ast.dump(x) for x in _said(before)] == [ast.dump(x) for x in _said(after)]


def _is_of_the_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _said(program: ast.Module) -> list[ast.stmt]:
    """Leave out what does nothing: docstrings, and what stands for them."""
    for node in ast.walk(program):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [x for x in body if not _is_nothing(x)]
    return program.body


def _is_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return isinstance(statement.value.value, str)
    return isinstance(statement, ast.Pass)

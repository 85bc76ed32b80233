from __future__ import annotations

import importlib
import inspect
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.conftest import Monitor, lines
from whyidle.monitor import commands
from whyidle.monitor.cli import SECTIONS, file_of
from whyidle.monitor.core.errors import Exit

FILES = (m.name for m in pkgutil.iter_modules(commands.__path__) if m.name[0] != "_")
COMMANDS = sorted(name.removesuffix("_") for name in FILES)
# Those that another room than app/ carries out.
ELSEWHERE = {"mcp": "serve.server"}
# Parts of a command that have a module of their own.
ALONE = {("fleet", "top"): ("fleet_top", "run")}
HEAVY = {"rich", "numpy", "streamlit", "plotly", "pynvml", "psutil", "sqlite3", "msgspec"}
HEAVY |= {"mcp", "pydantic"}


@pytest.mark.parametrize("arguments", [["--help"], *([c, "--help"] for c in COMMANDS)])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    source = (
        "import json, sys\nfrom whyidle.monitor.cli import main\n"
        "sys.argv = ['monitor'] + sys.argv[1:]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", source, *arguments], capture_output=True, text=True, check=True
    )
    assert "Usage: monitor" in done.stdout
    loaded = {name.split(".")[0] for name in json.loads(done.stderr)}
    assert not loaded & HEAVY


@pytest.mark.parametrize("name", COMMANDS)
def test_what_carries_a_command_out_takes_its_options(name: str) -> None:
    file = file_of(name)
    declared = importlib.import_module(f"{commands.__name__}.{file}").command
    module = importlib.import_module(f"whyidle.monitor.{ELSEWHERE.get(name, f'app.{file}')}")
    parts = {"run": declared}
    if isinstance(declared, click.Group):
        # By the names of their functions: "list" would hide Python's own.
        parts = {"listing" if n == "list" else n: each for n, each in declared.commands.items()}
    for function, part in parts.items():
        carrier, name_there = ALONE.get((name, function), (module, function))
        if isinstance(carrier, str):
            carrier = importlib.import_module(f"whyidle.monitor.app.{carrier}")
        carried = inspect.signature(getattr(carrier, name_there)).parameters
        assert {each.name for each in part.params} == {*carried}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_ends_with_examples(name: str) -> None:
    declared = importlib.import_module(f"{commands.__name__}.{file_of(name)}").command
    assert f"monitor {name}" in (declared.epilog or "")


def test_every_command_is_listed_once_under_what_it_is_for(monitor: Monitor) -> None:
    assert sorted(name for names in SECTIONS.values() for name in names) == COMMANDS
    shown = monitor("--help").stdout
    assert all(f"\n  {name} " in shown for name in COMMANDS)
    assert all(f"\n{section}:\n" in shown for section in SECTIONS)


def test_no_description_is_cut_in_a_narrow_terminal(monitor: Monitor) -> None:
    for group in ((), ("baseline",), ("fleet",)):
        shown = monitor(*group, "--help", env={"COLUMNS": "80"}).stdout
        assert "..." not in shown.partition("Options:")[2]


WRONG = """
atach 1               | There is no command 'atach'.                | Did you mean: monitor attach
status                | There is no command 'status'.               | Did you mean: monitor ps
4711                  | There is no command '4711'.                 | monitor attach 4711
/dev/null             | There is no command '/dev/null'.            | monitor diagnose /dev/null
xyzzy                 | There is no command 'xyzzy'.                | All commands: monitor --help
fleet tp              | 'tp'                                        | See: monitor fleet --help
attach --observ 1     | monitor attach has no option '--observ'.    | Did you mean --observe?  See:
attach 1 --hz 99      | --hz: '99' is not a number from 0.1 to 10.  | See: monitor attach --help
attach 1 --for 0      | --for: '0' is not a number above 0.         | See: monitor attach --help
attach 1 --for nan    | --for: 'nan' is not a number above 0.       | See: monitor attach --help
dashboard --port x    | 'x' is not a whole number from 1 to 65535.  | See: monitor dashboard --help
prune --keep -1       | --keep: '-1' is not a whole number from 0 on. | See: monitor prune --help
demo --framework m    | --framework: 'm' is not one of 'jax',       | See: monitor demo --help
trace                 | monitor trace needs FILE...|DIR|PID.        | For instance: monitor trace
stop 1 2              | Got unexpected extra argument (2).          | See: monitor stop --help
"""


@pytest.mark.parametrize("case", WRONG.strip().splitlines())
def test_a_wrong_command_line_is_a_sentence_and_what_to_type(monitor: Monitor, case: str) -> None:
    line, what, hint = (part.strip() for part in case.split(" | "))
    done = monitor(*line.split())
    assert done.returncode == Exit.USAGE
    assert done.stdout == ""
    said, next_step = done.stderr.splitlines()
    assert said.startswith("monitor: ")
    assert what in said
    assert hint in next_step


@pytest.mark.parametrize(
    ("line", "error", "code"),
    [
        ("attach 999999999 --json", "gone", Exit.GONE),
        ("ps --json --nope", "usage", Exit.USAGE),
        ("diagnose nofile.json --format json", "usage", Exit.USAGE),
        ("run --json -- no-such-command", "failed", 127),
    ],
)
def test_a_failure_is_json_where_json_was_asked_for(
    monitor: Monitor, line: str, error: str, code: int
) -> None:
    done = monitor(*line.split())
    assert done.returncode == code
    (failure,) = lines(done.stdout)
    assert (failure["error"], failure["exit"]) == (error, code)
    assert done.stderr == f"monitor: {failure['why']}\n  {failure['hint']}\n"


def test_the_json_of_a_job_is_not_ours(monitor: Monitor) -> None:
    done = monitor("run", "--", "no-such-command", "--json")
    assert (done.returncode, done.stdout) == (127, "")


def test_no_home_is_a_sentence(monitor: Monitor, job: subprocess.Popen[str]) -> None:
    env = {"WHYIDLE_STATE_DIR": "", "XDG_STATE_HOME": "", "HOME": "/nonexistent"}
    done = monitor("attach", job.pid, "--for", "0.2", env=env)
    assert done.returncode == Exit.STORAGE
    assert "no home folder" in done.stderr
    assert "WHYIDLE_STATE_DIR" in done.stderr


@pytest.fixture
def read_only(tmp_path: Path) -> Path:
    """A folder that not even root can write to."""
    if os.geteuid() != 0:
        folder = tmp_path / "home"
        folder.mkdir(mode=0o500)
        return folder
    return Path("/proc/self")


def test_a_read_only_home_is_a_sentence(
    monitor: Monitor, job: subprocess.Popen[str], read_only: Path
) -> None:
    env = {"WHYIDLE_STATE_DIR": "", "XDG_STATE_HOME": "", "HOME": str(read_only)}
    done = monitor("attach", job.pid, "--for", "0.2", env=env)
    assert done.returncode == Exit.STORAGE, done.stderr
    assert "Traceback" not in done.stderr
    assert str(read_only) in done.stderr


def test_a_defect_is_a_sentence_too(monitor: Monitor, state: Path) -> None:
    source = (
        "import sys\nfrom whyidle.monitor import cli\n"
        "def broken(**_):\n    raise ValueError('oops')\ncli.cli.main = broken\ncli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=False
    )
    assert done.returncode == 70
    assert "defect" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "without"),
    [("run", {"msgspec", "numpy", "whyidle.monitor.recording"}), ("attach", {"numpy", "rich"})],
)
def test_little_is_imported_before_a_job_is_started_or_entered(
    name: str, without: set[str]
) -> None:
    source = f"import sys, whyidle.monitor.app.{name}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True
    )
    assert not without & set(done.stdout.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_how_to_complete(monitor: Monitor, shell: str) -> None:
    done = monitor("completion", shell)
    assert done.returncode == 0, done.stderr
    for name in ("monitor", "whyidle"):
        assert f"_{name}_completion" in done.stdout
    assert f"_MONITOR_COMPLETE={shell}_complete" in done.stdout


def test_commands_are_completed(monitor: Monitor) -> None:
    env = {"_MONITOR_COMPLETE": "bash_complete", "COMP_WORDS": "monitor dia", "COMP_CWORD": "1"}
    assert monitor(env=env).stdout == "plain,diagnose\n"

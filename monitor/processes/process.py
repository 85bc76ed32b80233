"""The identity of a process: (pid, start time), and the names that people know it by."""

from __future__ import annotations

import pwd
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from whyidle.monitor.core import settings
from whyidle.monitor.processes.container import placed
from whyidle.monitor.processes.notebooks import notebook_of
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.processes.ranks import Rank, rank_of
from whyidle.monitor.processes.roles import Role, role_of, title_of
from whyidle.monitor.processes.secrets import mask

JULIA = "julia"
# What holds Julia's code; where a program brings its own copy along, the name may begin otherwise.
JULIA_LIBRARY = re.compile(r"/[\w-]*libjulia(-internal)?(-debug)?\.so[^/]*$")
# Only the framework itself maps this library; the folder beside it shows the version.
FRAMEWORKS = {
    "jax": (re.compile(r"/jaxlib/|/xla_extension\.|libjax_common"), "jaxlib"),
    "torch": (re.compile(r"/libtorch(_cpu|_cuda|_python)?\.so"), "torch"),
    "tensorflow": (re.compile(r"/libtensorflow|/_pywrap_tensorflow"), "tensorflow"),
    JULIA: (JULIA_LIBRARY, None),
}
# The agent measures nothing in a process without one of these.
_MEASURED = FRAMEWORKS.keys() - {JULIA}
_LAUNCHERS = {
    *("torchrun", "accelerate", "deepspeed", "horovodrun"),
    *("mpirun", "mpiexec", "orterun", "prterun", "srun"),
    *("uv", "poetry", "pdm", "hatch", "pixi", "conda"),
}
# These take -m as Python does; for srun it means something else.
_PYTHON_LIKE = {"torchrun", "accelerate", "uv", "torch"}
_OPTIONS_WITH_VALUE = {"-W", "-X", "--check-hash-based-pycs"}
# Of Julia's options those whose value may be a word of its own.
_JULIA_WITH_VALUE = {
    *("-C", "-H", "-J", "-L", "-m", "-p", "-t", "--cpu-target", "--gcthreads", "--home", "--load"),
    *("--machine-file", "--procs", "--sysimage", "--threads", "--trace-compile"),
}
_JULIA_CODE = {"-e", "-E", "--eval", "--print"}
_SHELLS = {"sh", "bash", "dash", "zsh"}
_SHELL_OPTION = re.compile(r"[-+](\w+)")
_SHELL_OPTIONS_WITH_VALUE = {"--rcfile", "--init-file", "--emulate"}
_PYTHON_PROGRAM = re.compile(r"/python(\d+\.\d+)[a-z]*(?: \(deleted\))?$")
_ANY_PYTHON = re.compile(r"/python[\d.]*[a-z]*(?: \(deleted\))?$")
_PYTHON_LIBRARY = re.compile(r"/libpython(\d+\.\d+)[a-z]*\.so[^/]*$")
_PYTHON_MODULES = re.compile(r"/lib/python(\d+\.\d+)[a-z]*/lib-dynload/")


class ProcessKey(NamedTuple):
    """A unique process: its pid alone may be reused."""

    pid: int
    start_ticks: int


@dataclass(frozen=True)
class Identity:
    """What people call this process; ``None`` where we may not look."""

    key: ProcessKey
    parent: int
    name: str
    command: str
    script: str
    user: str
    python: str | None
    frameworks: dict[str, str | None] | None
    container: str | None
    state: str
    visible_gpus: str | None = field(default=None)
    rank: Rank | None = field(default=None)
    arguments: tuple[str, ...] = ()
    # Of its environment only what ``core/settings.py`` names; ``None``: it cannot be read.
    settings: Mapping[str, str] | None = None

    @property
    def framework(self) -> str | None:
        """Frameworks with their versions; ``None`` if none is mapped or readable."""
        if not self.frameworks:
            return None
        return ", ".join(f"{n} {v}" if v else n for n, v in self.frameworks.items())

    @cached_property
    def title(self) -> str | None:
        """The title that it gave itself as a part of a job; ``None``: it has arguments."""
        return title_of(self.arguments)

    @cached_property
    def role(self) -> Role | None:
        """Which part of a job it is; ``None``: its title does not say."""
        return role_of(self.title)

    @property
    def has_framework(self) -> bool:
        """Whether there is anything to learn from inside."""
        return bool(_MEASURED & (self.frameworks or {}).keys())


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something that happened in a process of a job, or that we did to it."""

    kind: str
    key: ProcessKey
    text: str
    severity: str = "info"
    # Seconds on our monotonic clock; ``None``: now.
    at: float | None = None
    data: Mapping[str, Any] | None = None
    # Events that come all the time are stored, but are no news.
    is_news: bool = True


def describe(pid: int, fs: ProcFs | None = None, files: set[str] | None = None) -> Identity | None:
    """Return the identity, ``None`` if it is gone; ``files`` are those mapped into it, if known."""
    fs = fs or ProcFs()
    stat = fs.stat(pid)
    if stat is None:
        return None
    arguments = mask(fs.arguments(pid) or [])
    files = fs.mapped_files(pid) if files is None else files
    given = fs.environment(pid)
    environment = given or {}
    return Identity(
        key=ProcessKey(pid, stat.start_ticks),
        parent=stat.parent,
        name=stat.name,
        command=shlex.join(arguments) or f"[{stat.name}]",
        script=notebook_of(arguments, environment, fs.link(f"{pid}/cwd"))
        or script_of(arguments)
        or stat.name,
        user=user_of(fs, pid),
        python=python_of(fs.link(f"{pid}/exe"), files),
        frameworks=None if files is None else frameworks_of(files, f"{fs.root}/{pid}/root"),
        container=_container(fs, pid),
        state=stat.state,
        visible_gpus=environment.get("CUDA_VISIBLE_DEVICES"),
        rank=rank_of(environment),
        arguments=tuple(arguments),
        settings=None if given is None else settings.kept(given),
    )


def script_of(arguments: list[str]) -> str | None:
    """Return the part of a command line that a person would call the job."""
    if not arguments:
        return None
    program = PurePath(arguments[0]).name
    shell = program.removeprefix("-")
    if shell in _SHELLS:
        return f"{shell} {_shell_script(arguments[1:])}".rstrip()
    if program == "julia" or program.startswith("julia-"):
        return _julia_script(program, arguments[1:])
    if program in _LAUNCHERS or not _is_python(program):
        return _launched(program, arguments[1:])
    return _python_script(program, arguments[1:])


def _python_script(program: str, arguments: list[str]) -> str:
    rest = iter(arguments)
    for argument in rest:
        if argument in _OPTIONS_WITH_VALUE:
            next(rest, None)
        elif argument == "-c":
            return "python -c"
        elif argument == "-m":
            return _launched(f"-m {next(rest, '?')}", list(rest))
        elif not argument.startswith("-"):
            name = PurePath(argument).name
            return _launched(name, list(rest)) if name in _LAUNCHERS else argument
    return program


def _julia_script(program: str, arguments: list[str]) -> str:
    """Return the first argument that is no option."""
    rest = iter(arguments)
    for argument in rest:
        if argument in _JULIA_CODE:
            return f"{program} -e"
        if argument == "--":
            return next(rest, program)
        if argument in _JULIA_WITH_VALUE:
            next(rest, None)
        elif not argument.startswith(("-", "+")):
            return argument
    return program


def _shell_script(arguments: list[str]) -> str:
    """Return the first argument that is no option; empty for commands from stdin."""
    rest = iter(arguments)
    for argument in rest:
        if argument in {"-", "--"}:
            return next(rest, "")
        letters = _SHELL_OPTION.fullmatch(argument)
        if letters is None and not argument.startswith("--"):
            return argument
        if letters and set("cs") & set(letters[1]):
            return "-c" if "c" in letters[1] else ""
        if argument in _SHELL_OPTIONS_WITH_VALUE or (letters and letters[1][-1] in "oO"):
            next(rest, None)
    return ""


def _is_python(program: str) -> bool:
    return program.startswith(("python", "pypy"))


def _launched(launcher: str, rest: list[str]) -> str:
    name = launcher.rpartition(" ")[2].partition(".")[0]
    if name not in _LAUNCHERS | {"torch"}:
        return launcher
    like_python = name in _PYTHON_LIKE
    for argument, value in zip(rest, [*rest[1:], "?"], strict=True):
        if like_python and argument in {"-m", "--module"}:
            return f"{launcher} -m {value}"
        if argument.endswith(".py"):
            return f"{launcher} {argument}"
        like_python = like_python or _is_python(PurePath(argument).name)
    return launcher


def frameworks_of(files: set[str], root: str) -> dict[str, str | None]:
    """Return the frameworks whose libraries are mapped, with their versions where readable."""
    found: dict[str, str | None] = {}
    for name, (pattern, distribution) in FRAMEWORKS.items():
        hit = next((f for f in sorted(files) if pattern.search(f)), None)
        if hit is not None:
            found[name] = _version(hit, distribution, root)
    return found


def _version(library: str, distribution: str | None, root: str) -> str | None:
    site, _, _ = library.partition(f"/{distribution}/")
    if distribution is None or site == library:
        return None
    prefix = f"{distribution}-"
    try:
        names = [entry.name for entry in Path(f"{root}{site}").iterdir()]
    except OSError:
        return None
    info = (n for n in names if n.startswith(prefix) and n.endswith(".dist-info"))
    return next((n.removeprefix(prefix).removesuffix(".dist-info") for n in info), None)


def python_of(exe: str | None, files: set[str] | None) -> str | None:
    """Return the version of Python in a process, by the names of its files.

    The program's own name has it (Debian, venvs, static builds), or its library's, or the folder
    of its modules. Other parts of a path may name another version. Where Julia has loaded a Python
    of its own (PyCall, PythonCall), the process is Julia's.
    """
    if hit := _PYTHON_PROGRAM.search(exe or ""):
        return hit[1]
    if not _ANY_PYTHON.search(exe or "") and any(map(JULIA_LIBRARY.search, files or ())):
        return None
    for pattern in (_PYTHON_PROGRAM, _PYTHON_LIBRARY, _PYTHON_MODULES):
        hits = {hit[1] for path in files or () if (hit := pattern.search(path))}
        if hits:
            return min(hits)
    return None


def _container(fs: ProcFs, pid: int) -> str | None:
    if shown := placed(fs.text(f"{pid}/cgroup") or "").shown:
        return shown
    ours, theirs = fs.namespace, fs.link(f"{pid}/ns/pid")
    return "another pid namespace" if ours and theirs and ours != theirs else None


def user_of(fs: ProcFs, pid: int) -> str:
    """Return the name of a process's user; "?" if it is gone."""
    uid = fs.owner(pid)
    if uid is None:
        return "?"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)

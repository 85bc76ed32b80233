"""The options that a user's script declares: on the command line, in the environment, in a file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import argument, name_of, plain_text
from whyidle.monitor.code.source import Function, last

_SWITCHES: Final = {"store_true": True, "store_false": False}
_CONFIGURATIONS: Final = (".yaml", ".yml", ".json", ".toml")
# What makes options of the fields of a class, and what it puts between their words.
_OF_FIELDS: Final = {"HfArgumentParser": "_", "simple_parsing": "_", "tyro": "-"}


@dataclass(frozen=True, slots=True)
class Option:
    """Where a value is set."""

    # As the user knows it: "--workers", "NUM_WORKERS".
    name: str
    # What to do, with the value in the place of {}.
    how: str
    # Of a switch that takes no value: what it sets.
    sets: bool | None = None
    # What it is set to, where the source says that.
    now: int | None = None

    def to(self, value: str) -> str:
        """Say how to set another value."""
        if self.sets is None:
            return self.how.replace("{}", value)
        return f"start {'with' if value == str(self.sets) else 'without'} {self.name}"


def switch(name: str, sets: bool | None = None) -> Option:
    """Return an option of the command line."""
    return Option(name, f"start with {name} {{}}", sets)


def variable(name: str | None) -> Option | None:
    """Return a variable of the environment."""
    return None if name is None else Option(name, f"set {name}={{}} in the environment")


def override(path: tuple[str, ...]) -> Option:
    """Return a key of hydra's, as its command line takes it."""
    name = ".".join(path)
    return Option(name, f"start with {name}={{}}")


def key_in_file(opened: ast.expr, path: tuple[str, ...]) -> Option | None:
    """Return a key of a configuration that is loaded from a file: ``load(open("a.yaml"))``."""
    texts = (plain_text(node) for node in ast.walk(opened))
    files = [x for x in texts if x is not None and x.endswith(_CONFIGURATIONS)]
    name = ".".join(path)
    return Option(name, f"set {name} to {{}} in {files[0]}") if len(files) == 1 else None


def by_call(call: ast.Call, name: str) -> Option | None:
    """Return the option that a call declares, if that is read by this name."""
    if last(call) == "add_argument":
        option, given = _flag(call), plain_text(argument(call, "dest"))
        action = plain_text(argument(call, "action")) or "store"
        is_mine = option and (given or option.lstrip("-").replace("-", "_")) == name
        if option and is_mine and action in (*_SWITCHES, "store"):
            return switch(option, _SWITCHES.get(action))
    return of_absl(call) if plain_text(argument(call, "name", 0)) == name else None


def of_absl(call: ast.Call) -> Option | None:
    """Return the flag of absl's that a call declares."""
    name = plain_text(argument(call, "name", 0))
    is_flag = name is not None and last(call).startswith("DEFINE_")
    return Option(f"--{name}", f"start with --{name}={{}}") if is_flag else None


def by_fields(source: Source, name: str, program: str) -> Iterator[Option]:
    """Yield the options that a library makes of the fields of classes."""
    between = next((_OF_FIELDS[x] for x in _OF_FIELDS if x in program), None)
    for node in source.everything if between else ():
        is_field = isinstance(node, ast.AnnAssign) and name_of(node.target) == name
        if is_field and isinstance(source.parent(node), ast.ClassDef):
            yield switch(f"--{name.replace('_', between or '')}")


def of_command(source: Source, function: Function, param: ast.arg) -> Option | None:
    """Return the option that gives a command its parameter: of click, of typer, of fire."""
    for mark in function.decorator_list:
        if isinstance(mark, ast.Call) and last(mark) == "option" and (option := _flag(mark)):
            name, slash, _ = option.partition("/")
            said = [x for each in mark.args if (x := plain_text(each)) and not x.startswith("-")]
            if param.arg in (said or [name.lstrip("-").replace("-", "_").lower()]):
                is_flag = bool(slash) or source.means(argument(mark, "is_flag"), "True")
                return switch(name, True if is_flag else None)
    marked = any(
        isinstance(x, ast.Call) and last(x) in {"command", "callback"}
        for x in function.decorator_list
    )
    is_run = any(
        source.means(call.func, "typer.run", "fire.Fire")
        and any(source.defined(x) is function for x in call.args)
        for call in source.calls
    )
    if not is_run and not (marked and "typer" in source.words):
        return None
    parts = (x for x in (param.annotation, default_of(function, param)) if x is not None)
    calls = (x for part in parts for x in ast.walk(part) if isinstance(x, ast.Call))
    said = [x for call in calls if (x := _flag(call))]
    name = next(iter(said), f"--{param.arg.replace('_', '-')}").partition("/")[0]
    is_flag = param.annotation is not None and name_of(param.annotation) == "bool"
    return switch(name, True if is_flag else None)


def default_of(function: Function, param: ast.arg) -> ast.expr | None:
    """Return what a parameter is where nothing is given."""
    args = function.args
    placed = [*args.posonlyargs, *args.args]
    given = dict(zip(reversed(placed), reversed(args.defaults), strict=False))
    given |= {x: y for x, y in zip(args.kwonlyargs, args.kw_defaults, strict=True) if y}
    return given.get(param)


def _flag(call: ast.Call) -> str | None:
    """Return the long name of the option that a call declares, else its short one."""
    names = [x for each in call.args if (x := plain_text(each)) and x.startswith("-")]
    return max(names, key=lambda x: (x.startswith("--"), len(x)), default=None)

"""The command line: finds the commands in ``commands/``, loads only the one that is asked for."""

from __future__ import annotations

import contextlib
import errno
import importlib
import keyword
import os
import pkgutil
import re
import shlex
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import NoReturn

import click

from whyidle.monitor import commands
from whyidle.monitor.core.errors import Exit, Problem, UsageProblem
from whyidle.monitor.core.paths import hand_over
from whyidle.monitor.render.console import mute, open_what_is_closed, say

DEBUG = "WHYIDLE_DEBUG"
_OUTPUT_FAILED = {errno.ENOSPC, errno.EIO, errno.EBADF}


def file_of(command: str) -> str:
    """Return the module of a command; a word of Python's has an underscore behind it."""
    return f"{command}_" if keyword.iskeyword(command) else command


# What a person wants, and the commands for it, the usual first.
SECTIONS = {
    "Look": ("ps", "top", "attach", "run", "dashboard", "runs", "stop"),
    "Explain": ("diagnose", "trace", "compare", "rules", "demo"),
    "Fix": ("fix", "try"),
    "Share": ("report", "baseline", "mcp"),
    "Operate": ("doctor", "export", "fleet", "prune", "completion"),
}
SHORTEST_TERMINAL = 80
# What other programs call it.
OTHER_WORDS = {
    "list": "ps",
    "ls": "ps",
    "status": "ps",
    "watch": "attach PID",
    "record": "attach PID",
    "profile": "trace PID",
    "start": "run -- CMD",
    "exec": "run -- CMD",
    "why": "diagnose",
    "explain": "diagnose",
    "show": "runs last",
    "kill": "stop",
    "rm": "prune RUN",
    "delete": "prune RUN",
    "check": "doctor",
    "help": "--help",
}


class Commands(click.Group):
    """One module in ``commands/`` is one command, found by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all commands."""
        files = (i.name for i in pkgutil.iter_modules(commands.__path__) if i.name[0] != "_")
        return sorted(name.removesuffix("_") for name in files)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"{commands.__name__}.{file_of(cmd_name)}")
        command = module.command
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one may be meant."""
        name = args[0]
        if not ctx.resilient_parsing and name[:1] != "-" and name not in self.list_commands(ctx):
            meant = self._meant(name, ctx)
            hint = f"Did you mean: monitor {meant}    All commands" if meant else "All commands"
            raise UsageProblem(f"There is no command '{name}'.", f"{hint}: monitor --help")
        return super().resolve_command(ctx, args)

    def _meant(self, name: str, ctx: click.Context) -> str | None:
        if name in OTHER_WORDS:
            return OTHER_WORDS[name]
        if name.isdecimal():
            return f"attach {name}"
        if os.path.exists(name):  # noqa: PTH110  a word may be too long for a path
            return f"diagnose {shlex.quote(name)}"
        return next(iter(_similar(name, self.list_commands(ctx))), None)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands under what they are for."""
        for section, names in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(f"{name:<10}", self._purpose(ctx, name)) for name in names])

    def _purpose(self, ctx: click.Context, name: str) -> str:
        command = self.get_command(ctx, name)
        # The first sentence of its help.
        return "" if command is None else command.get_short_help_str(SHORTEST_TERMINAL)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; the reader of its output may close it at any moment."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            mute()
            return Exit.OK
        return code


def _similar(word: str, words: Sequence[str]) -> list[str]:
    # Only a wrong word needs it.
    from difflib import get_close_matches  # noqa: PLC0415

    return get_close_matches(word, words, n=1)


_EPILOG = """\b
A running job:   monitor attach PID
A job to start:  monitor run -- python train.py"""


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_EPILOG,
)
@click.version_option(package_name="whyidle", prog_name="whyidle")
def cli() -> None:
    """Say why a running job leaves its GPU idle, and what gives the time back."""


def main() -> NoReturn:
    """Run the command; every failure is a sentence and an exit code."""
    open_what_is_closed()
    try:
        code = cli.main(prog_name="monitor", standalone_mode=False)
    except Problem as problem:
        code = _fail(problem)
    except _HELP as error:
        # A group without a command.
        error.show()
        code = Exit.USAGE
    except click.ClickException as error:
        code = _fail(_in_words(error))
    except (click.Abort, KeyboardInterrupt):
        code = Exit.INTERRUPTED
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        if isinstance(error, OSError) and error.errno in _OUTPUT_FAILED:
            mute()
            say(f"The output cannot be written: {error.strerror}.", "")
            sys.exit(Exit.STORAGE)
        what = f"This is a defect of whyidle: {type(error).__name__}: {error}"
        again = f"{DEBUG}=1 monitor {shlex.join(sys.argv[1:])}"
        defect = Problem(what, f"Please report it with what this prints: {again}")
        code = _fail(defect.with_code(Exit.DEFECT))
    hand_over()
    sys.exit(code if isinstance(code, int) else Exit.OK)


def _fail(problem: Problem) -> int:
    """Say what failed, to programs that asked for JSON on stdout, too; return the exit code."""
    say(problem.what, problem.next_step)
    if _wants_json(sys.argv[1:]) and not problem.is_answered:
        known = {each.value: each.name.lower() for each in Exit}
        failure = {
            "schema": 1,
            "error": known.get(problem.code, "failed"),
            "why": problem.what,
            "hint": problem.next_step or None,
            "exit": problem.code,
        }
        # Only a program needs it.
        import json  # noqa: PLC0415

        with contextlib.suppress(OSError):
            click.echo(json.dumps(failure, ensure_ascii=False))
    return problem.code


def _wants_json(words: list[str]) -> bool:
    # Behind -- stand the words of a job.
    ours = words[: words.index("--")] if "--" in words else words
    return "--json" in ours or "--format=json" in ours or ("--format", "json") in pairwise(ours)


# click 8.1 prints the help of a group without a command itself.
_HELP: tuple[type[click.UsageError], ...] = tuple(
    each for each in [getattr(click.exceptions, "NoArgsIsHelpError", None)] if each
)


def _in_words(error: click.ClickException) -> Problem:
    """Return a wrong command line as one of our sentences, with what may be meant."""
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return UsageProblem(error.format_message())
    path = error.ctx.command_path
    see = f"See: {path} --help"
    if isinstance(error, click.NoSuchOption):
        meant = f"Did you mean {error.possibilities[0]}?  " if error.possibilities else ""
        return UsageProblem(f"{path} has no option '{error.option_name}'.", f"{meant}{see}")
    if isinstance(error, click.MissingParameter) and error.param is not None:
        example = re.search("monitor .*", error.ctx.command.epilog or "")
        hint = f"For instance: {example[0]}    {see}" if example else see
        named = error.param.metavar or error.param.human_readable_name
        return UsageProblem(f"{path} needs {named}.", hint)
    if isinstance(error, click.BadParameter) and error.param is not None:
        named = error.param.get_error_hint(error.ctx).replace("'", "")
        return UsageProblem(f"{named}: {error.message}", see)
    what = error.format_message()
    return UsageProblem(what if what.endswith((".", "?")) else f"{what}.", see)

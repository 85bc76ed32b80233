"""The command line: finds the commands in ``commands/``, loads only the one that is asked for."""

from __future__ import annotations

import errno
import importlib
import keyword
import os
import pkgutil
import shlex
import sys
from typing import NoReturn

import click

from whyidle.monitor import commands
from whyidle.monitor.core.errors import Exit, Problem
from whyidle.monitor.render.console import mute, open_what_is_closed, say

DEBUG = "WHYIDLE_DEBUG"
_OUTPUT_FAILED = {errno.ENOSPC, errno.EIO, errno.EBADF}


def file_of(command: str) -> str:
    """Return the module of a command; a word of Python's has an underscore behind it."""
    return f"{command}_" if keyword.iskeyword(command) else command


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

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; the reader of its output may close it at any moment."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            mute()
            return Exit.OK
        return code


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
    """Watch a running GPU job: what its GPUs and its host do."""


def main() -> NoReturn:
    """Run the command; every failure is a sentence and an exit code."""
    open_what_is_closed()
    try:
        code = cli.main(prog_name="monitor", standalone_mode=False)
    except Problem as problem:
        say(problem.what, problem.next_step)
        code = problem.code
    except click.ClickException as error:
        error.show()
        code = Exit.USAGE
    except (click.Abort, KeyboardInterrupt):
        code = Exit.INTERRUPTED
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        if isinstance(error, OSError) and error.errno in _OUTPUT_FAILED:
            mute()
            say(f"The output cannot be written: {error.strerror}.", "")
            sys.exit(Exit.STORAGE)
        say(
            f"This is a defect of whyidle: {type(error).__name__}: {error}",
            f"Please report it with what this prints: {DEBUG}=1 monitor {shlex.join(sys.argv[1:])}",
        )
        code = Exit.DEFECT
    sys.exit(code if isinstance(code, int) else Exit.OK)

"""``monitor completion``: let a shell complete our commands."""

from __future__ import annotations

import click

from whyidle.monitor.commands import _options as options

SHELLS = ("bash", "zsh", "fish")
_EPILOG = """\b
bash:   monitor completion bash >> ~/.bashrc
zsh:    monitor completion zsh >> ~/.zshrc
fish:   monitor completion fish > ~/.config/fish/completions/monitor.fish"""


@click.command(epilog=_EPILOG)
@click.argument("shell", type=click.Choice(SHELLS))
@options.implemented_by("completion")
def command() -> None:
    """Print what lets your shell complete our commands.

    It completes commands and options, of `monitor` and of `whyidle`.
    """

"""Options of ``monitor export`` that mean nothing alone, or that cannot be."""

from __future__ import annotations

import os
import pwd
import re
from typing import Final

import click
from click.core import ParameterSource

from whyidle.monitor.core.errors import NotPermitted, UsageProblem
from whyidle.monitor.processes.process import user_of
from whyidle.monitor.processes.procfs import ProcFs

# What one scrape has no use for, by the name of its parameter.
_NOT_ONCE: Final = {
    "port": "--port", "address": "--address", "web_config": "--web-config", "attach": "--attach",
    "users": "--user", "backfill": "--backfill", "labels": "--label",
}  # fmt: skip
# As Prometheus has it; two lines before it are for its own.
_LABEL: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)


def check_once() -> None:
    """Refuse with --once what was typed and would do nothing."""
    typed = click.get_current_context()
    for name, option in _NOT_ONCE.items():
        # A variable of the environment is for whoever serves.
        if typed.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageProblem(
                f"{option} does nothing with --once, which prints one scrape and ends.",
                f"Leave out one of the two: monitor export --once    Or: monitor export {option} X",
            )


def users_to_record(attach: str, names: tuple[str, ...]) -> frozenset[str]:
    """Return whose jobs are recorded; none: everybody's."""
    if names and attach == "none":
        raise UsageProblem(
            "--user says whose jobs --attach records, and without it none are.",
            f"Say which jobs, too: monitor export --attach gpu --user {names[0]}",
        )
    is_root, me = os.geteuid() == 0, user_of(ProcFs(), os.getpid())
    found = [_user(name) for name in names]
    for name in found:
        if not is_root and name != me:
            raise NotPermitted(
                f"Only root may record the jobs of {name}.",
                f'As root: sudo "$(command -v monitor)" export --attach {attach} --user {name}',
            )
    return frozenset(found if found or is_root else [me])


def _user(text: str) -> str:
    """Return the name of a user; a number without one is a user of a container."""
    try:
        found = pwd.getpwuid(int(text)) if text.isdecimal() else pwd.getpwnam(text)
    except (KeyError, ValueError, OverflowError):
        if text.isdecimal():
            return text
        raise UsageProblem(
            f"There is no user '{text}' on this machine.",
            "See whose jobs there are with: monitor ps    One without a name goes by its number.",
        ) from None
    return found.pw_name


def labels_to_add(backfill: str | None, given: tuple[str, ...]) -> dict[str, str]:
    """Return the labels that a server adds to what it scrapes."""
    pairs = {}
    for each in given:
        label, _, value = each.partition("=")
        if not value or not _LABEL.fullmatch(label):
            raise UsageProblem(
                f"'{each}' is no label.", "Give its name and value: --label cluster=a"
            )
        pairs[label] = value
    if given and backfill is None:
        raise UsageProblem(
            "--label is for what --backfill writes: to a scrape the server itself adds labels.",
            f"Say where to: monitor export --backfill http://prometheus:9090 --label {given[0]}",
        )
    return pairs

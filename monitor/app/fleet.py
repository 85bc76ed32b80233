"""``monitor fleet init``: the files that a Prometheus server and its hosts need."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource

from whyidle.monitor.app import fleet_hosts
from whyidle.monitor.core.errors import StorageProblem, UsageProblem
from whyidle.monitor.export.fleet_files import CONFIG, TARGETS, address, files
from whyidle.monitor.export.host_files import SCRIPTS, SERVICE
from whyidle.monitor.fleet import grafana
from whyidle.monitor.render.console import say
from whyidle.monitor.render.escape import printable

_EXAMPLE: Final = "Name a folder of your own: monitor fleet init ~/whyidle-fleet"
_AGAIN: Final = "Remove it and type this again, or change it by hand."
# What decides of a file, by the name of its parameter, and what is to do where the file was there.
_OWN: Final = {
    TARGETS: (
        {"targets": "--target"},
        "Add hosts to its list: a running Prometheus reads it again.",
    ),
    CONFIG: ({"managers": "--alertmanager", "kubernetes": "--kubernetes"}, _AGAIN),
    SERVICE: ({"listens": "--address", "program": "--exec"}, _AGAIN),
}


def init(
    *,
    folder: str,
    targets: tuple[str, ...],
    managers: tuple[str, ...],
    kubernetes: bool,
    listens: str,
    program: str | None,
) -> None:
    """Write what is not there yet."""
    if not folder:
        # A variable of a script that is not set; "" would be the folder that one is in.
        raise UsageProblem("No folder is named.", _EXAMPLE)
    place = Path(folder)
    _check("--target", targets, "node2:9400")
    _check("--alertmanager", managers, "alerts:9093")
    hosts = targets or (() if kubernetes else ("localhost",))
    exporter = fleet_hosts.exporter(hosts, listens, program)
    wanted = files(hosts, managers, kubernetes=kubernetes, exporter=exporter) | grafana.files()
    done, other = _written(place, wanted)
    config = shlex.quote(str(place / CONFIG))
    done.append(f"Check them: promtool check config {config}")
    done.append(f"Start it:   prometheus --config.file={config} --web.enable-remote-write-receiver")
    for line in done:
        click.echo(printable(line))
    _say_what_stays(place, other)
    if SERVICE not in other:
        fleet_hosts.say_what_is_to_do(place, exporter, hosts, program is not None)


def _written(place: Path, wanted: Mapping[str, str]) -> tuple[list[str], set[str]]:
    """Write each file that is not there; return what was done, and which differ from ours."""
    done: list[str] = []
    other: set[str] = set()
    try:
        place.mkdir(parents=True, exist_ok=True)
        for name, text in wanted.items():
            path = place / name
            is_new = not path.exists()
            if is_new:
                path.parent.mkdir(exist_ok=True, parents=True)
                path.write_text(text)
                if name in SCRIPTS:
                    path.chmod(0o755)
            elif path.read_bytes() != text.encode():
                other.add(name)
            done.append(f"{'wrote' if is_new else 'kept '}  {path}")
    except OSError as error:
        raise StorageProblem(
            f"{error.filename or place} cannot be written: {error.strerror}.",
            _EXAMPLE,
        ) from None
    return done, other


def _check(option: str, hosts: tuple[str, ...], other: str) -> None:
    for host in hosts:
        if address(host) is None:
            raise UsageProblem(
                f"'{host}' is no host that Prometheus can reach.",
                f"Name it alone, or with a port: {option} node1 {option} {other} {option} [::1]",
            )


def _say_what_stays(place: Path, other: set[str]) -> None:
    """Say what was asked for, or is newer, and is not in a file that was there."""
    typed = click.get_current_context()
    for name, (options, next_step) in _OWN.items():
        asked = [
            option
            for parameter, option in options.items()
            if typed.get_parameter_source(parameter) is ParameterSource.COMMANDLINE
        ]
        if asked and name in other:
            what = f"{place / name} was there and stays: {' and '.join(asked)} changed nothing."
            say(what, next_step)
    # Hosts and servers are a person's own.
    rest = sorted(other - _OWN.keys())
    if rest:
        say(
            f"Not as this version writes them: {', '.join(rest)}.",
            "To write them again, remove them and type this again.",
        )

"""``monitor fleet init``: the files that a Prometheus server and its hosts need."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from whyidle.monitor.core.errors import StorageProblem, UsageProblem
from whyidle.monitor.export.fleet_files import CONFIG, TARGETS, address, files
from whyidle.monitor.export.host_files import SCRIPTS
from whyidle.monitor.fleet import grafana
from whyidle.monitor.render.console import say
from whyidle.monitor.render.escape import printable


def init(
    *, folder: str, targets: tuple[str, ...], managers: tuple[str, ...], kubernetes: bool
) -> None:
    """Write what is not there yet."""
    place = Path(folder)
    _check("--target", targets, "node2:9400")
    _check("--alertmanager", managers, "alerts:9093")
    hosts = targets or (() if kubernetes else ("localhost",))
    wanted = files(hosts, managers, kubernetes=kubernetes) | grafana.files()
    done, other = _written(place, wanted)
    done.append(f"Check them: promtool check config {place / CONFIG}")
    started = f"prometheus --config.file={place / CONFIG} --web.enable-remote-write-receiver"
    done.append(f"Start it:   {started}")
    for line in done:
        click.echo(printable(line))
    for_config = {"--alertmanager": bool(managers), "--kubernetes": kubernetes}
    _say_what_stays(place, other, bool(targets), [x for x, has in for_config.items() if has])


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
                path.write_text(text)
                if name in SCRIPTS:
                    path.chmod(0o755)
            elif path.read_bytes() != text.encode():
                other.add(name)
            done.append(f"{'wrote' if is_new else 'kept '}  {path}")
    except OSError as error:
        raise StorageProblem(
            f"{error.filename or place} cannot be written: {error.strerror}.",
            "Name a folder of your own: monitor fleet init ~/whyidle-fleet",
        ) from None
    return done, other


def _check(option: str, hosts: tuple[str, ...], other: str) -> None:
    for host in hosts:
        if address(host) is None:
            raise UsageProblem(
                f"'{host}' is no host that Prometheus can reach.",
                f"Name it alone, or with a port: {option} node1 {option} {other} {option} [::1]",
            )


def _say_what_stays(place: Path, other: set[str], targets: bool, config: list[str]) -> None:
    """Say what was asked for, or is newer, and is not in a file that was there."""
    if targets and TARGETS in other:
        say(
            f"{place / TARGETS} was there and stays: --target changed nothing.",
            "Add hosts to its list: a running Prometheus reads it anew.",
        )
    if config and CONFIG in other:
        say(
            f"{place / CONFIG} was there and stays: {' and '.join(config)} changed nothing.",
            "Remove it and type this again, or change it by hand.",
        )
    rest = sorted(other - {TARGETS, CONFIG})
    if rest:
        say(
            f"Not as this version writes them: {', '.join(rest)}.",
            "To have them anew, remove them and type this again.",
        )

"""What the options of ``monitor fleet init`` make of the exporter of each host, and leave to do."""

from __future__ import annotations

import re
import shlex
import socket
import sys
from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from whyidle.monitor.core.defaults import EXPORT_PORT
from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.export.fleet_files import address
from whyidle.monitor.export.host_files import ANY, SERVICE, Exporter
from whyidle.monitor.render.console import say

# systemd takes no quotes in the path of a program.
_PATH: Final = re.compile(r"""/[^"'\\\x00-\x1f\x7f]+""")
_MOST_NAMES: Final = 3


def exporter(targets: Sequence[str], listens: str, program: str | None) -> Exporter:
    """Return what each host starts; the port is that of all targets, where they have one."""
    try:
        at = ip_address(listens)
    except ValueError:
        raise UsageProblem(
            f"'{listens}' is no address that a host can listen on.",
            f"Each address that a host has: --address {ANY}",
        ) from None
    far = list(_far(targets))
    if not at.is_loopback and not at.is_unspecified and len(far) > 1:
        raise UsageProblem(
            f"{listens} is the address of one host, and {len(far)} are named.",
            f"Each address that a host has: --address {ANY}",
        )
    if program is not None and not _PATH.fullmatch(program):
        raise UsageProblem(
            f"--exec {shlex.quote(program)} is no whole path that systemd starts.",
            "On a host `command -v monitor` says it: --exec /opt/whyidle/bin/monitor",
        )
    ports = {port for _, port in map(_parts, targets)}
    port = ports.pop() if len(ports) == 1 else EXPORT_PORT
    found = Exporter(address=str(at), port=port)
    return found if program is None else Exporter(program, str(at), port)


def say_what_is_to_do(folder: Path, made: Exporter, targets: Sequence[str], named: bool) -> None:
    """Say why hosts cannot be scraped as it is; ``named``: --exec says where monitor is there."""
    far = list(_far(targets))
    lacking = []
    if far and ip_address(made.address).is_loopback:
        say(f"{SERVICE} listens on {made.address} only: no server can scrape {_some(far)}.")
        lacking.append(f"--address {ANY}")
    others = [] if named else [each for each in far if not _is_here(_parts(each)[0])]
    if others:
        where = f"{SERVICE} starts {made.program}, a path of this machine"
        say(f"{where}: {_some(others)} may have it elsewhere (`command -v monitor` there says it).")
        lacking.append("--exec /PATH/OF/monitor")
    if lacking:
        again = shlex.join(["monitor", *sys.argv[1:]])
        unit = shlex.quote(str(folder / SERVICE))
        say(f"For these hosts: rm {unit} && {again} {' '.join(lacking)}")
    elsewhere = [each for each in targets if _parts(each)[1] != made.port]
    if elsewhere:
        say(
            f"{SERVICE} listens on port {made.port}, and these are asked at another:"
            f" {_some(elsewhere)}.",
            "Add it to the ExecStart of each of them: --port N",
        )


def _parts(target: str) -> tuple[str, int]:
    host, _, port = (address(target) or "").rpartition(":")
    return host.strip("[]"), int(port)


def _far(targets: Sequence[str]) -> Iterator[str]:
    """Yield the targets that a loopback address does not serve."""
    for each in targets:
        host = _parts(each)[0]
        try:
            near = ip_address(host).is_loopback
        except ValueError:
            near = host == "localhost"
        if not near:
            yield each


def _is_here(host: str) -> bool:
    return host in {socket.gethostname(), socket.getfqdn()}


def _some(targets: Sequence[str]) -> str:
    more = len(targets) - _MOST_NAMES
    return ", ".join(targets[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")

"""``monitor dashboard``: what was recorded, and what runs, as a web page."""

from __future__ import annotations

import ipaddress

from whyidle.monitor.app.dashboard_process import become, check_installed
from whyidle.monitor.app.xprof import has_screen
from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.render.console import say

# Once more than by accident.
_MEANT = 2


def run(
    *,
    run: str | None,
    port: int | None,
    no_token: int,
    base_path: str,
    allow_host: tuple[str, ...],
    address: str,
    no_browser: bool,
    sample: bool,
    allow_actions: bool,
) -> None:
    """Serve the pages until Ctrl-C."""
    check_installed()
    _check_reach(address, no_token)
    if allow_actions and no_token:
        raise UsageProblem(
            "--allow-actions needs the token: anybody who opens the page could touch your job.",
            "Leave out --no-token.",
        )
    chosen = ["--address", address, "--base-path", base_path]
    chosen += [] if port is None else ["--port", str(port)]
    chosen += [] if run is None else [f"--run={run}"]
    chosen += [f"--allow-host={name}" for name in allow_host]
    chosen += ["--no-token"] if no_token else []
    chosen += ["--sample"] if sample else []
    chosen += ["--allow-actions"] if allow_actions else []
    chosen += ["--browser"] if not no_browser and has_screen() else []
    become(chosen)


def _check_reach(address: str, no_token: int) -> None:
    """Say what it means that others can reach it; open to all of them it is only if meant so."""
    if _is_loopback(address):
        if no_token:
            say("Everybody on this machine can open the dashboard.")
        return
    if 0 < no_token < _MEANT:
        raise UsageProblem(
            f"Without a token, everybody who reaches {address} sees your jobs.",
            "Leave out --no-token; or, if you mean it, say --no-token twice.",
        )
    say(
        "http is plain: who listens on the way reads along, the link too.",
        "Safer: leave out --address, and ssh -L 8765:127.0.0.1:8765 HOST",
    )


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        # The server that listens there says what is wrong with it.
        return True

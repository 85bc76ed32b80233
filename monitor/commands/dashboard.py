"""``monitor dashboard``: what was recorded, and what runs, as a web page."""

from __future__ import annotations

import ipaddress

import click

from whyidle.monitor.commands import _options as options
from whyidle.monitor.commands._output import say
from whyidle.monitor.core.errors import UsageProblem

_LOOPBACK = "127.0.0.1"
# Once more than by accident.
_MEANT = 2


@click.command()
@click.argument("run", required=False, callback=options.text)
@click.option("--port", type=click.IntRange(1, 65535), metavar="N",
              help="Where it listens (default: 8765 if that is free, else any).")  # fmt: skip
@click.option("--no-token", count=True, help="Let in everybody who can reach it.")
@click.option("--base-path", default="", metavar="/PATH", callback=options.text,
              help="Behind a reverse proxy: where it stands there.")  # fmt: skip
@click.option("--allow-host", multiple=True, metavar="NAME",
              help="Behind a reverse proxy: its name; may be repeated.")  # fmt: skip
@click.option("--address", default=_LOOPBACK, show_default=True, metavar="A",
              help="Another address of this machine to listen on.")  # fmt: skip
@click.option("--no-browser", is_flag=True, help="Only print the link.")
@click.option("--sample", is_flag=True, help="Show the runs that come with the program.")
def command(
    *,
    run: str | None,
    port: int | None,
    no_token: int,
    base_path: str,
    allow_host: tuple[str, ...],
    address: str,
    no_browser: bool,
    sample: bool,
) -> None:
    """Show recordings as a web page: is the GPU busy, where does the time go, what to change.

    It opens RUN (its number, its label, or `last`); every other one can be chosen there. What runs
    is shown live. The page is for whoever has the link that is printed, on this machine; Ctrl-C
    ends it. From another machine, by ssh: ssh -L 8765:127.0.0.1:8765 HOST, then open the link.
    """
    from whyidle.monitor.app import dashboard
    from whyidle.monitor.app.xprof import has_screen

    dashboard.check_installed()
    _check_reach(address, no_token)
    chosen = ["--address", address, "--base-path", base_path]
    chosen += [] if port is None else ["--port", str(port)]
    chosen += [] if run is None else [f"--run={run}"]
    chosen += [f"--allow-host={name}" for name in allow_host]
    chosen += ["--no-token"] if no_token else []
    chosen += ["--sample"] if sample else []
    chosen += ["--browser"] if not no_browser and has_screen() else []
    dashboard.become(chosen)


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
        # Whoever listens there will say what is wrong with it.
        return True

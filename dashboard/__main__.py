"""``python -m whyidle.dashboard``: what ``monitor dashboard`` runs, in a process of its own."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

from whyidle.dashboard import endpoint as places
from whyidle.dashboard import sample, settings, trying
from whyidle.monitor.core.errors import Exit, Problem
from whyidle.monitor.core.interrupts import ended_by_signals
from whyidle.monitor.core.paths import database
from whyidle.monitor.render.console import open_what_is_closed, say
from whyidle.monitor.store import Reader, UnknownRun
from whyidle.monitor.store.records import LAST

# The user's own token: the environment is private, while other users can read a command line.
VARIABLE: Final = "WHYIDLE_DASHBOARD_TOKEN"


def main() -> NoReturn:
    """Serve as the options say; every failure becomes a message and an exit code."""
    open_what_is_closed()
    try:
        with ended_by_signals():
            _serve(_options().parse_args())
        code: int | str | None = Exit.OK
    except Problem as problem:
        say(problem.what, problem.next_step)
        code = problem.code
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        code = Exit.INTERRUPTED
    trying.stop_all()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    # A page that is still being drawn holds a thread; do not wait for it.
    os._exit(code if isinstance(code, int) else Exit.OK)


def _options() -> argparse.ArgumentParser:
    ask = argparse.ArgumentParser(prog="monitor dashboard", allow_abbrev=False)
    ask.add_argument("--port", type=int)
    ask.add_argument("--address", default=places.LOOPBACK)
    ask.add_argument("--base-path", default="")
    ask.add_argument("--allow-host", action="append", default=[])
    ask.add_argument("--store", type=Path)
    ask.add_argument("--run")
    ask.add_argument("--sample", action="store_true")
    ask.add_argument("--no-token", action="store_true")
    ask.add_argument("--allow-actions", action="store_true")
    ask.add_argument("--browser", action="store_true")
    return ask


def _serve(chosen: argparse.Namespace) -> None:
    own = os.environ.pop(VARIABLE, None)
    token = places.new_token() if own is None else places.check_token(own)
    wanted = places.Endpoint(
        port=0,
        address=places.address(chosen.address),
        token=None if chosen.no_token else token,
        ticket=None if chosen.no_token else places.new_token(),
        allowed=frozenset(places.name(each) for each in chosen.allow_host),
        base=places.base(chosen.base_path),
    )
    with _store(chosen) as store, places.listen(wanted.address, chosen.port) as bound:
        run = checked(store, chosen.run, is_sample=chosen.sample)
        settings.use(
            settings.Settings(
                store=store,
                run=run,
                base=wanted.base,
                is_sample=chosen.sample,
                # Whoever can open it without a token may look, and no more.
                allow_actions=chosen.allow_actions and wanted.token is not None,
            )
        )
        # Load Streamlit only once everything else is in order.
        from whyidle.dashboard import serve  # noqa: PLC0415

        endpoint = places.at(wanted, bound)
        by = serve.serve(endpoint, bound, lambda: _announce(endpoint, browser=chosen.browser))
    if by is not None:
        signal.raise_signal(by)


@contextlib.contextmanager
def _store(chosen: argparse.Namespace) -> Iterator[Path]:
    if chosen.sample:
        with sample.copied() as path:
            yield path
    else:
        yield chosen.store or database()


def checked(store: Path, run: str | None, *, is_sample: bool = False) -> str:
    """Return the run to show first; a named one must exist."""
    if run is None and not is_sample:
        return LAST
    with Reader.open(store) as reader:
        try:
            return str(reader.find(run or sample.FIRST).id)
        except UnknownRun as problem:
            if not is_sample:
                raise
            # Other commands do not list the runs of the sample.
            known = ", ".join(str(each.id) for each in reader.runs())
            what = f"{problem.what} The sample has the runs {known}."
            raise UnknownRun(what, "See all of them: monitor dashboard --sample") from None


def _announce(endpoint: places.Endpoint, *, browser: bool) -> None:
    """Print the link, now that the server answers."""
    with contextlib.suppress(OSError):
        print(f"The dashboard, until Ctrl-C: {endpoint.link}", flush=True)  # noqa: T201
    if browser:
        # Some browsers return only once they are closed.
        threading.Thread(
            target=webbrowser.open, args=(endpoint.link_for_once,), daemon=True
        ).start()


if __name__ == "__main__":
    main()

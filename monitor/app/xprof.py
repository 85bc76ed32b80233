"""Traces in other programs: XProf runs as a child of ours, for as long as somebody looks."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

from whyidle.monitor.core.errors import Problem, StorageProblem, UsageProblem
from whyidle.monitor.core.installed import to_install
from whyidle.monitor.core.interrupts import ended_by_signals
from whyidle.monitor.render.escape import printable

if TYPE_CHECKING:
    # It imports numpy, and `attach` imports us.
    from whyidle.monitor.traces.opening import Source

HOST: Final = "127.0.0.1"
# The plugin's own route: the runs that it shows.
RUNS: Final = "/data/plugin/profile/runs"
# XProf reads protobuf messages, and those end here.
LONGEST: Final = 2 << 30
STARTS_WITHIN: Final = 120.0
_ENDS_WITHIN: Final = 5.0
_BETWEEN: Final = 0.1
_PIECE: Final = 4 << 20
_PR_SET_PDEATHSIG: Final = 1
_GZIP: Final = b"\x1f\x8b"
_NO_NAME = re.compile(r"[^\w.-]+|^\.+")


def xprof(source: Source, port: int | None, opened: Callable[[str], None]) -> NoReturn:
    """Show an XPlane file in XProf, print the link, and stay until we are ended."""
    if find_spec("tensorboard") is None or find_spec("xprof") is None:
        raise UsageProblem("XProf is not installed in this Python.", f"Type: {to_install('xprof')}")
    port = _free_port(port)
    with ended_by_signals(), _folder() as folder:
        run = _lay_out(source, folder / "logs")
        with _server(folder, port) as server:
            _wait_until_listed(server, port, run, folder)
            opened(f"http://{HOST}:{port}/#profile")
            server.wait()
            raise Problem(f"XProf ended by itself: {_last_words(folder)}")


def browse(link: str) -> None:
    """Open a link where there is a screen to show it; a browser of text would take the terminal."""
    if has_screen():
        import webbrowser  # noqa: PLC0415  seldom needed

        webbrowser.open(link)


def has_screen() -> bool:
    """Tell whether somebody sits before us, with a screen to show pages on."""
    screen = sys.platform == "darwin" or {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ)
    return bool(screen) and sys.stdout.isatty()


def _free_port(wanted: int | None) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted or 0))
        except OSError as error:
            what = f"XProf cannot listen on port {wanted}: {error.strerror}."
            raise UsageProblem(what, "Leave out --port: a free one is found.") from None
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Return a folder that only we can read, for as long as it is needed."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="whyidle-xprof-", ignore_cleanup_errors=True)
    except OSError as error:
        raise _no_room(error) from None
    with folder as path:
        yield Path(path)


def _no_room(error: OSError) -> StorageProblem:
    return StorageProblem(
        f"The trace cannot be laid out for XProf: {error.strerror}.",
        "Choose another folder: TMPDIR=/path monitor trace view FILE",
    )


def _lay_out(source: Source, logs: Path) -> str:
    """Put the file where TensorBoard looks for it: plugins/profile/RUN/HOST.xplane.pb."""
    stem = source.path.name.removesuffix(".gz").removesuffix(".pb").removesuffix(".xplane")
    parent = source.path.absolute().parent
    # Frameworks write in this layout too; then the run has its name already.
    run = _name(parent.name if parent.parent.name == "profile" else stem)
    if source.size > LONGEST:
        raise _too_long()
    try:
        folder = logs / "plugins" / "profile" / run
        folder.mkdir(parents=True)
        place = folder / f"{_name(stem)}.xplane.pb"
        if source.compressed:
            _decompress(source, place)
        else:
            # XProf keeps its own files beside the trace: they must not land beside the user's.
            place.symlink_to(source.path.resolve())
    except OSError as error:
        raise _no_room(error) from None
    return run


def _name(text: str) -> str:
    return _NO_NAME.sub("_", printable(text))[:80] or "trace"


def _decompress(source: Source, place: Path) -> None:
    with source.open() as stream, place.open("wb") as out:
        while piece := stream.read(_PIECE):
            out.write(piece)
            if stream.position > LONGEST:
                raise _too_long()
        if stream.damage:
            raise UsageProblem(
                f"XProf needs the whole file, and of this one {stream.damage}.",
                "For Perfetto: monitor trace view FILE --perfetto OUT.json.gz",
            )


def _too_long() -> UsageProblem:
    return UsageProblem(
        f"XProf opens no file of more than {LONGEST >> 30} GiB.",
        "For Perfetto: monitor trace view FILE --perfetto OUT.json.gz",
    )


@contextlib.contextmanager
def _server(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run TensorBoard; it goes when we go, on Linux even if we are killed.

    Then the folder stays: nothing is left to delete it.
    """
    options = ["--logdir", str(folder / "logs"), "--host", HOST, "--port", str(port)]
    # Without the fast loader it is one process, and ends with it.
    command = [sys.executable, "-m", "tensorboard.main", "--load_fast=false", *options]
    # It leaves a note about itself in the folder for such things: that must go, too.
    environment = {**os.environ, "TMPDIR": str(folder)}
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(  # noqa: S603  our own Python
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            preexec_fn=ends_with_us(),  # noqa: PLW1509  no threads here
        )
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def ends_with_us() -> Callable[[], None] | None:
    """Return what a child of ours does first, so that the kernel ends it when we are gone."""
    if sys.platform != "linux":
        return None
    # Loaded here: between fork and exec as little as possible.
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            # We were killed before it was asked for.
            os._exit(1)

    return ask


def _wait_until_listed(server: subprocess.Popen[bytes], port: int, run: str, folder: Path) -> None:
    """Wait until XProf answers and shows the run."""
    until = time.monotonic() + STARTS_WITHIN
    while run not in _runs(port):
        if server.poll() is not None:
            raise Problem(f"TensorBoard did not start: {_last_words(folder)}")
        if time.monotonic() > until:
            raise Problem(f"XProf shows nothing after {STARTS_WITHIN:.0f} s: {_last_words(folder)}")
        time.sleep(_BETWEEN)


def _runs(port: int) -> list[str]:
    """Return the runs that XProf lists; none while it does not answer."""
    # Seldom needed, and each `attach` imports us.
    import urllib.error  # noqa: PLC0415
    import urllib.request  # noqa: PLC0415

    # A proxy must not be asked for what is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{HOST}:{port}{RUNS}", timeout=5) as answer:
            body: bytes = answer.read()
        # It answers in gzip, whether asked to or not.
        plain = zlib.decompress(body, wbits=31) if body.startswith(_GZIP) else body
        return msgspec.json.decode(plain, type=list[str])
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise Problem(
                "TensorBoard runs, but without XProf.", f"Type: {to_install('xprof')}"
            ) from None
        return []
    except (OSError, zlib.error, msgspec.DecodeError):
        return []


def _last_words(folder: Path) -> str:
    lines = (folder / "log").read_text(errors="replace").split("\n")
    return printable(next((line for line in reversed(lines) if line.strip()), "it said nothing"))

"""The web page: a program of its own that stands on us, so that we start it and never import it."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Final, NoReturn, Self

from whyidle.monitor.app.xprof import ends_with_us
from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.core.installed import to_install
from whyidle.monitor.render.escape import printable

# Older ones have no charts that keep their zoom.
OLDEST: Final = (1, 67)
# Nothing is imported from the folder that somebody happens to be in.
_PROGRAM: Final = (sys.executable, "-P", "-m", "whyidle.dashboard")
_ENDS_WITHIN: Final = 5.0
_LINE: Final = 4096


def check_installed() -> None:
    """Raise a ``Problem`` where the page cannot be shown for want of packages."""
    for package in ("streamlit", "plotly", "psutil", "uvicorn"):
        try:
            found = version(package)
        except PackageNotFoundError:
            what = f"The dashboard needs {package}, which this Python does not have."
            raise UsageProblem(what, f"Type: {to_install('dashboard')}") from None
        if package == "streamlit" and _numbers(found) < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            raise UsageProblem(
                f"The dashboard needs Streamlit {oldest}, not {found}.",
                f"Type: {to_install('dashboard')}",
            )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


def become(options: list[str]) -> NoReturn:
    """Let the page's program take our place: signals and the exit code are its own."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(_PROGRAM[0], [*_PROGRAM, *options])  # noqa: S606  our own Python, no shell


class Beside:
    """The page as a child of ours: it ends with us, on Linux even if we are killed."""

    def __init__(self, options: list[str]) -> None:
        # What it has to say stays out of a terminal that a recording draws on.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  for as long as it runs
        self._child = subprocess.Popen(  # noqa: S603  our own Python
            [*_PROGRAM, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            # Ctrl-C is for us: what we do about it comes first.
            start_new_session=True,
            preexec_fn=ends_with_us(),  # noqa: PLW1509  no threads yet
        )
        self._said = b""
        self._link: str | None = None
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def news(self) -> str | None:
        """Return what there is to say, each thing once: the link, or that there is none."""
        if self._link is None and (link := self._linked()):
            self._link = link
            return f"The dashboard: {link}"
        if not self._is_over and self._child.poll() is not None:
            self._is_over = True
            return f"The dashboard has ended; the recording goes on. {self._last_words()}"
        return None

    def stay(self) -> str | None:
        """Return the link where somebody can still open it; ``None``: nothing answers there."""
        self.news()
        return self._link if self._child.poll() is None else None

    def wait(self) -> None:
        """Wait until it ends by itself."""
        self._child.wait()

    def end(self) -> None:
        """End it."""
        self._child.terminate()
        try:
            self._child.wait(_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        if self._child.stdout is not None:
            self._child.stdout.close()
        self._log.close()

    def _linked(self) -> str | None:
        """Return the link once it stands in the first line; it does so when somebody answers."""
        if self._child.stdout is None:
            return None
        handle = self._child.stdout.fileno()
        os.set_blocking(handle, False)
        with contextlib.suppress(BlockingIOError):
            self._said += os.read(handle, _LINE)
        line, is_whole, _ = self._said.partition(b"\n")
        return line.decode(errors="replace").split()[-1] if is_whole and line.strip() else None

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()
        said = [line.strip().removeprefix("monitor: ") for line in lines if line.strip()]
        return printable(" ".join(said[-2:])) or "It said nothing."

"""A trace for ui.perfetto.dev, made in a separate process: a trace may be large."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from whyidle.monitor.app.files import LEVEL
from whyidle.monitor.app.xprof import ends_with_us

_SECONDS_MOST: Final = 600


def packed(path: Path) -> bytes:
    """Return the file for Perfetto; the process ends with us, and leaves nothing behind."""
    # A file without a name needs no clean-up.
    with tempfile.TemporaryFile() as out:
        subprocess.run(  # noqa: S603  our own Python
            [sys.executable, "-m", __name__, str(path)],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,
            timeout=_SECONDS_MOST,
            # Safe beside other threads: it makes one system call, and takes no lock.
            preexec_fn=ends_with_us(),
        )
        out.seek(0)
        return out.read()


def _main(path: Path) -> None:
    # Only this process needs these imports.
    from whyidle.monitor.traces import perfetto  # noqa: PLC0415
    from whyidle.monitor.traces.analysis import analyse  # noqa: PLC0415

    analysis = analyse(path)
    with (
        gzip.GzipFile("", "wb", LEVEL, sys.stdout.buffer, 0) as out,
        io.TextIOWrapper(out, "utf-8") as text,
    ):
        perfetto.write(text, analysis)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))

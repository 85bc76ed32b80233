"""A trace for ui.perfetto.dev, made by a process of its own: a trace may be large."""

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
    """Return the file for Perfetto; however we end, the process does too, and leaves nothing."""
    # A file without a name: nobody has to remove it.
    with tempfile.TemporaryFile() as out:
        subprocess.run(  # noqa: S603  our own Python
            [sys.executable, "-m", __name__, str(path)],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,
            timeout=_SECONDS_MOST,
            # There are other threads: it only asks the kernel, and takes no lock of theirs.
            preexec_fn=ends_with_us(),
        )
        out.seek(0)
        return out.read()


def _main(path: Path) -> None:
    # Of that process alone: the page needs none of it.
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

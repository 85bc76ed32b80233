"""What goes to Perfetto is made beside the page: it ends with the page, and leaves nothing."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.dashboard import timelines
from tests.tracing.conftest import until
from whyidle.dashboard.views.perfetto import packed
from whyidle.monitor.store.identity import start_ticks
from whyidle.monitor.traces.opening import identify

# In place of our Python: it would never end.
ENDLESS = "#!/bin/sh\necho $$ > {0}.part && mv {0}.part {0}\nexec sleep 600\n"
PAGE = (
    "import sys; from pathlib import Path; from whyidle.dashboard.views.perfetto import packed;"
    "sys.executable = sys.argv[1]; packed(Path('train.json'))"
)


def test_it_has_the_lane_that_says_why(tmp_path: Path) -> None:
    found = packed(timelines.write(tmp_path / "train.json"))
    names = {each["name"] for each in json.loads(gzip.decompress(found))["traceEvents"]}
    assert "idle: input: data loader" in names
    (tmp_path / "again.json.gz").write_bytes(found)
    assert identify(tmp_path / "again.json.gz")


def test_a_page_that_is_killed_takes_it_along(tmp_path: Path) -> None:
    pid_file, program, room = tmp_path / "pid", tmp_path / "endless", tmp_path / "room"
    program.write_text(ENDLESS.format(pid_file))
    program.chmod(0o700)
    room.mkdir()
    page = subprocess.Popen(
        [sys.executable, "-c", PAGE, program], env={**os.environ, "TMPDIR": str(room)}
    )
    try:
        pid = int(until(lambda: pid_file.read_text() if pid_file.exists() else None))
        assert start_ticks(pid) is not None
    finally:
        page.kill()
        page.wait()
    until(lambda: start_ticks(pid) is None or None)
    assert list(room.iterdir()) == []

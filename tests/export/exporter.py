"""The exporter as a process, fed by the fake NVML library; and what a page of it says."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.conftest import command

_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


def samples(page: str) -> list[Sample]:
    """Read a page strictly: each line is a comment or one sample."""
    found = []
    for line in page.splitlines():
        if line.startswith(("# HELP ", "# TYPE ")):
            continue
        match = _LINE.fullmatch(line)
        assert match, line
        found.append(Sample(match[1], dict(_LABEL.findall(match[2] or "")), float(match[3])))
    return found


def values(page: str, name: str, **labels: str) -> list[float]:
    """Return the values of a name's series that have these labels."""
    return [
        each.value
        for each in samples(page)
        if each.name == name and labels.items() <= each.labels.items()
    ]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Exporter:
    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port

    def scrape(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as page:
            assert page.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            return str(page.read().decode())

    def until(self, is_there: Callable[[str], object], seconds: float = 20.0) -> str:
        """Scrape until a page has what is waited for."""
        end = time.monotonic() + seconds
        while True:
            page = self.scrape()
            if is_there(page):
                return page
            assert time.monotonic() < end, page
            time.sleep(0.1)


@contextmanager
def exporter(env: dict[str, str], state: Path, *options: str) -> Iterator[Exporter]:
    """Start one and end it as a person does; it must end cleanly."""
    port = free_port()
    with subprocess.Popen(
        command("export", "--port", port, *options),
        env={**os.environ, "WHYIDLE_STATE_DIR": str(state), **env},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        try:
            assert f":{port}/metrics" in said, said
            yield Exporter(process, port)
        except BaseException:
            process.kill()
            raise
        process.terminate()
        process.communicate(timeout=20)
        assert process.returncode == 0

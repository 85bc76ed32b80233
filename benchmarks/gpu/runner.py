"""One check after the other, each in a process of its own: a crash or a hang costs that one alone.

A check is made of parts. Each is ok, failed with what was seen, or left out with the reason, and is
written as soon as it is done, with its files: a run that is cut keeps what it has done.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import figures
from whyidle.monitor.core.errors import NoGpu
from whyidle.monitor.sources.gpus import find_gpus
from whyidle.monitor.sources.nvml import Nvml, text

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    *("nvidia-ml-py", "torch", "jax", "jaxlib", "numpy", "psutil", "msgspec", "click"),
    *("jax-cuda13-plugin", "jax-cuda12-plugin", "triton", "grpcio"),
}
REPORT, PARTS, LOG = "report.json", "parts.json", "log.txt"
NO_TIME, CUT = "no time was left for it", "cut off while it ran"
# A check is asked to end, then made to.
TO_END, PATIENCE, LONGEST = 20.0, 120.0, 400


class Claim(NamedTuple):
    """A sentence of the notes; whether it holds, ``None`` if that is open; and what was seen."""

    claim: str
    holds: bool | None
    seen: object


class Failed(Exception):  # noqa: N818  an answer
    """What was looked at is not as it must be; the text says what was seen."""


class LeftOut(Exception):  # noqa: N818  an answer
    """It cannot be looked at here; the text says why."""


@dataclass
class Result:
    """What a check came to, or one part of it, as the report has it."""

    name: str
    verdict: str = "ok"
    why: str | None = None
    seconds: float = 0.0
    # Of a part: its figures, and its files in the folder of its check.
    figures: dict[str, Any] = field(default_factory=dict)
    files: list[dict[str, Any]] = field(default_factory=list)
    # Of a check.
    parts: list[Result] = field(default_factory=list)

    def __str__(self) -> str:
        why = f" ({self.why})" if self.why else ""
        return f"{self.verdict:<9}{self.name}{why}, {self.seconds:g} s"


@dataclass
class Check:
    """One check in its own process: its folder, its time, and its parts so far."""

    # What is kept of it, and what goes away.
    folder: Path
    work: Path
    # Of the monotonic clock.
    until: float
    # Whether a GPU is there, and whether a first look is enough.
    gpu: bool
    quick: bool = False
    # The parts of it that are asked for; empty: all that it has.
    wanted: Sequence[str] = ()
    parts: list[Result] = field(default_factory=list)

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self.until - time.monotonic()

    def do(self, name: str, work: Callable[..., None], *more: object, needs: float = 0.0) -> Result:
        """Look at one thing by ``work(check, part, *more)``; what goes wrong costs it alone."""
        part, began = Result(name), time.monotonic()
        if self.wanted and name not in self.wanted:
            return part
        self.parts.append(part)
        try:
            if self.left <= needs:
                raise LeftOut(NO_TIME)  # noqa: TRY301  like any other reason
            work(self, part, *more)
        except (Failed, LeftOut) as answer:
            part.verdict = "failed" if isinstance(answer, Failed) else "left out"
            part.why = str(answer)
        except Exception as error:  # noqa: BLE001  it is reported, and the next one goes on
            traceback.print_exc()
            part.verdict, part.why = "failed", one_line(f"{type(error).__name__}: {error}")
        except BaseException:
            part.verdict, part.why = "failed", CUT
            raise
        finally:
            part.seconds = round(time.monotonic() - began, 1)
            write_json(self.folder / PARTS, [asdict(each) for each in self.parts])
            print(f"  {part}", flush=True)
        return part

    def keep(self, part: Result, name: str, content: bytes) -> None:
        """Write a file that belongs to a part."""
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        part.files.append({"path": name, "bytes": len(content), "sha256": digest})

    def see_device(self, device: str) -> None:
        """Fail where a job ran on the CPU though there is a GPU."""
        if self.gpu and device == "cpu":
            raise Failed("the job ran on the CPU: the framework does not see the GPU")


def run(check: Result, folder: Path, until: float, command: Sequence[str]) -> None:
    """Run the program of one check, which works in this folder, until then at most."""
    began = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if until - began < 1:
        check.verdict, check.why = "left out", NO_TIME
        return
    print(f"{check.name}: {until - began:.0f} s at most", flush=True)
    code, none = None, subprocess.DEVNULL
    with (
        (folder / LOG).open("wb") as log,
        subprocess.Popen(command, stdin=none, stderr=log, start_new_session=True) as child,
    ):
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = child.wait(until - began)
        finally:
            # Nothing that it started is left.
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(TO_END)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            _judge(check, code, parts_of(folder))
            check.seconds = round(time.monotonic() - began, 1)
            print(f"{check}\n", flush=True)


def parts_of(folder: Path) -> list[Result]:
    """Return the parts of a check that are done."""
    path = folder / PARTS
    return [Result(**part) for part in json.loads(path.read_text())] if path.exists() else []


def _judge(check: Result, code: int | None, parts: list[Result]) -> None:
    """Say what a check came to: the worst of its parts."""
    ended = CUT if code is None else f"it ended with code {code}" if code or not parts else None
    whys = filter(None, dict.fromkeys([ended, *(part.why for part in parts)]))
    check.parts, check.why = parts, "; ".join(whys) or None
    verdicts = {part.verdict for part in parts} | ({"failed"} if ended else set())
    check.verdict = next(each for each in ("failed", "ok", "left out") if each in verdicts)


def write_json(path: Path, document: object) -> None:
    """Write a document whole or not at all."""
    half = path.with_name(f".{path.name}")
    half.write_text(json.dumps(document, indent=1) + "\n")
    half.rename(path)


def one_line(said: str) -> str:
    """Return the end of what a program said."""
    return " ".join(said.split())[-LONGEST:]


def need(module: str) -> None:
    """Leave it out where there is no such module."""
    if importlib.util.find_spec(module) is None:
        raise LeftOut(f"{module} is not installed here")


def answer(
    what: str, command: Sequence[str], timeout: float = PATIENCE, **options: Any
) -> tuple[dict[str, Any], str]:
    """Run a program; return the JSON of its last line, and its stderr; fail where it fails."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=timeout, **options
    )
    print(done.stdout, done.stderr, file=sys.stderr)
    if done.returncode:
        raise Failed(f"{what} ended with code {done.returncode}: {one_line(done.stderr)}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found, done.stderr


def monitor(*words: str, **options: Any) -> tuple[dict[str, Any], str]:
    """Run a command of the monitor; return its JSON, and what it said besides."""
    command = [sys.executable, "-P", "-m", "whyidle.monitor", *words]
    return answer(f"monitor {words[0]}", command, **options)


# The machine -------------------------------------------------------------------------------------
def prepare(work: Path, wheels: Path | None) -> None:
    """Put the checkout, and wheels that came along, on the import path, of what we start too."""
    site = work / "site"
    for wheel in wheels.glob("*.whl") if wheels else ():
        shutil.unpack_archive(wheel, site, "zip")
    known = [str(ROOT), str(site)]
    sys.path[:0] = known
    os.environ["PYTHONPATH"] = os.pathsep.join([*known, os.environ.get("PYTHONPATH", "")])


def facts() -> dict[str, Any]:
    """Return what a reader must know, naming no person; without a GPU its model is ``None``."""
    nvml, found = Nvml(), dict.fromkeys(("model", "driver", "nvml", "cuda"))
    with contextlib.suppress(NoGpu):
        nvml.open()
        found = {
            "model": find_gpus(nvml)[0].facts.name,
            "driver": text(nvml.get("nvmlSystemGetDriverVersion")),
            "nvml": text(nvml.get("nvmlSystemGetNVMLVersion")),
            "cuda": nvml.get("nvmlSystemGetCudaDriverVersion"),
        }
    return {
        **figures.machine(),
        **found,
        "date": datetime.now(UTC).isoformat(),
        # The library of the tests, which plays a tape.
        "fake": "WHYIDLE_NVML_TAPE" in os.environ,
        "packages": {
            each.name: each.version for each in metadata.distributions() if each.name in PACKAGES
        },
        # Its number alone: what follows names who built it.
        "kernel": f"{platform.system()} {platform.release().partition('-')[0]}",
        "cores": len(os.sched_getaffinity(0)),
    }

"""The client: asks the recorder of a run one question; failures become sentences.

Others may be able to write to the store's folder, and the recorder's pid may be another process by
now: so check that the socket is the recorder's own, and the recorder that of the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from whyidle.monitor.control import place
from whyidle.monitor.control.asked import Asked, State
from whyidle.monitor.core.errors import NotPermitted, Problem, TargetGone, UsageProblem
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.store import Reader, Run
from whyidle.monitor.store.labels import new_label

__all__ = ["Asked", "State", "ask_trace", "set_label", "state"]

PATIENCE_SECONDS: Final = 2.0
BETWEEN: Final = 0.02
_MOST_ANSWER: Final = 4 * place.MOST_BYTES


@dataclass(frozen=True, slots=True)
class _Question:
    """One question, and what to type if the recorder cannot be asked."""

    words: Mapping[str, Any]
    instead: Callable[[Run], str]
    # The same if the recording has ended.
    after: Callable[[Run], str]


def ask_trace(store: Path, run: int, seconds: float | None = None) -> Asked:
    """Have the recorder of a run take a trace as soon as it can."""
    words = {"do": "trace"} if seconds is None else {"do": "trace", "seconds": seconds}
    return _asked(_ask(store, run, _Question(words, _by_hand, _anew)))


def state(store: Path, run: int) -> Asked:
    """Return the progress of the last requested trace."""
    return _asked(_ask(store, run, _Question({"do": "state"}, _look, _look)))


def set_label(store: Path, run: int, label: str) -> str:
    """Label a running recording; return the label as stored, empty for none."""
    wanted = new_label(label) or ""
    command = f"monitor runs {run} --label {shlex.quote(wanted)}"
    words = {"do": "label", "label": wanted}
    first = f"End it first: monitor stop {run} && {command}"
    answer = _ask(store, run, _Question(words, lambda _: first, lambda _: f"Type: {command}"))
    kept = answer.get("label")
    return kept if isinstance(kept, str) else ""


def _by_hand(run: Run) -> str:
    return f"Take one by hand: monitor trace {run.target_pid}"


def _anew(_: Run) -> str:
    return "Watch a job that runs: monitor attach PID"


def _look(run: Run) -> str:
    return f"See what it kept: monitor runs {run.id}"


# Inside ------------------------------------------------------------------------------------------
def _ask(store: Path, run: int, question: _Question) -> Mapping[str, Any]:
    with Reader.open(store) as reader:
        found = reader.run(run)
    if found is None:
        raise UsageProblem(f"There is no recording {run}.", "List them: monitor runs")
    if not found.is_recording:
        raise _over(found, question)
    until = time.monotonic() + PATIENCE_SECONDS
    try:
        with _line_to(store, found, question, until) as line:
            answer = _exchange(line, question.words, until)
    except PermissionError:
        raise _others(found) from None
    except TimeoutError:
        raise _silent(found) from None
    except OSError as error:
        raise _deaf(store, found, error.strerror or str(error), question) from None
    if answer.get("ok") is not True:
        what, step = answer.get("what"), answer.get("next_step")
        raise Problem(
            what if isinstance(what, str) else f"The recorder of run {run} did not do it.",
            step if isinstance(step, str) else "",
        )
    return answer


@contextlib.contextmanager
def _line_to(store: Path, run: Run, question: _Question, until: float) -> Iterator[socket.socket]:
    folder = place.open_folder(store)
    try:
        handle, owner = place.look(folder, run.id)
    finally:
        os.close(folder)
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _connect(line, f"/proc/self/fd/{handle}", until)
        peer = place.peer_of(line)
        if peer.pid != run.recorder_pid or peer.uid != owner or not _is_trusted(peer.uid):
            what = f"The socket of run {run.id} belongs to another process than its recorder."
            raise NotPermitted(f"{what} It was asked nothing.", question.instead(run))
        yield line
    finally:
        line.close()
        os.close(handle)


def _connect(line: socket.socket, path: str, until: float) -> None:
    """Connect; retry for a while if many clients are waiting."""
    line.setblocking(False)
    while True:
        try:
            line.connect(path)
        except BlockingIOError:
            if time.monotonic() > until:
                raise TimeoutError from None
            time.sleep(BETWEEN)
        else:
            return


def _is_trusted(uid: int) -> bool:
    # Root may ask another user's recorder: all that it gets is a sentence.
    return uid in {0, os.geteuid()} or os.geteuid() == 0


def _exchange(line: socket.socket, question: Mapping[str, Any], until: float) -> Mapping[str, Any]:
    line.sendall(json.dumps(question).encode() + b"\n", socket.MSG_NOSIGNAL)
    heard = b""
    while b"\n" not in heard and len(heard) < _MOST_ANSWER:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        line.settimeout(left)
        part = line.recv(_MOST_ANSWER)
        if not part:
            raise ConnectionResetError(0, "it hung up")
        heard += part
    try:
        answer = json.loads(heard.partition(b"\n")[0])
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise ConnectionError(0, "its answer is none")
    return answer


def _asked(answer: Mapping[str, Any]) -> Asked:
    found = Asked.from_json(answer.get("trace"))
    if found is None:
        raise Problem(
            "The recorder answered in words of another version.",
            "Start the recording again with this version.",
        )
    return found


# Why the recorder cannot be asked ----------------------------------------------------------------
def _over(run: Run, question: _Question) -> Problem:
    gone = "its recorder is gone, or cannot be seen from here"
    why = f"it has ended ({run.end_reason})" if run.end_reason else gone
    return TargetGone(f"Run {run.id} does not record: {why}.", question.after(run))


def _others(run: Run) -> Problem:
    who = f"pid {run.recorder_pid}"
    return NotPermitted(
        f"The recorder of run {run.id} ({who}) belongs to another user.",
        "Ask as the user who records, or as root.",
    )


def _silent(run: Run) -> Problem:
    pid = run.recorder_pid
    stat = None if pid is None else ProcFs().stat(pid)
    what = f"The recorder of run {run.id} (pid {pid})"
    if stat is not None and stat.is_stopped:
        return Problem(f"{what} is stopped.", f"Let it go on: kill -CONT {pid}")
    return Problem(
        f"{what} did not answer within {PATIENCE_SECONDS:g} s: it is busy.",
        "Try again in a moment.",
    )


def _deaf(store: Path, run: Run, why: str, question: _Question) -> Problem:
    with Reader.open(store) as reader:
        now = reader.run(run.id)
    if now is None or not now.is_recording:
        return _over(now or run, question)
    return Problem(
        f"The recorder of run {run.id} cannot be asked ({why}): it may be of an older version.",
        question.instead(run),
    )

"""The recorder's end: no client and no request holds anybody up, and the next is answered."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.control.conftest import Recorder, descriptors
from whyidle.monitor.control import place
from whyidle.monitor.control.asked import LONGEST, Asked, State
from whyidle.monitor.control.place import MOST_BYTES
from whyidle.monitor.control.server import MOST_CLIENTS


def connected(recorder: Recorder) -> socket.socket:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # A server that does not answer fails one test, and does not hang the whole run.
    line.settimeout(20.0)
    line.connect(str(recorder.socket))
    return line


def said(line: socket.socket) -> bytes:
    """Return all that the server says; it hangs up on a client that still has more to send."""
    heard = b""
    with line, contextlib.suppress(ConnectionResetError):
        while part := line.recv(65536):
            heard += part
    return heard


def asked(recorder: Recorder, text: bytes = b'{"do":"state"}\n') -> dict[str, Any]:
    line = connected(recorder)
    line.sendall(text)
    for _ in range(3):
        recorder.server.serve()
    (answer,) = said(line).splitlines()
    found: dict[str, Any] = json.loads(answer)
    return found


def test_a_question_is_answered_in_a_line_and_the_line_is_over(recorder: Recorder) -> None:
    answer = asked(recorder)
    assert answer["ok"] is True
    assert Asked.from_json(answer["trace"]) == recorder.outcome
    assert recorder.asked == [{"do": "state"}]


def test_a_question_may_come_in_pieces(recorder: Recorder) -> None:
    line = connected(recorder)
    for piece in (b'{"do":', b'"state"}', b"\n"):
        line.sendall(piece)
        recorder.server.serve()
    assert json.loads(said(line))["ok"] is True


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"\n", "no JSON"),
        (b"\xff\xfe\n", "no JSON"),
        (b"[1]\n", "no JSON object"),
        (b"null\n", "no JSON object"),
        (b'{"do":\n', "no JSON"),
        (b"[" * 4000 + b"\n", "no JSON"),
        (b'{"do":"run","command":"rm"}\n', "not done"),
        (b'{"do":"break"}\n', "ZeroDivisionError"),
        (b"x" * (MOST_BYTES + 1), f"more than {MOST_BYTES} bytes"),
        (b"x" * 20 * MOST_BYTES, f"more than {MOST_BYTES} bytes"),
    ],
)
def test_rubbish_gets_a_sentence_and_the_next_an_answer(
    recorder: Recorder, text: bytes, why: str
) -> None:
    answer = asked(recorder, text)
    assert answer["ok"] is False
    assert why in answer["what"]
    assert asked(recorder)["ok"] is True


def test_who_is_silent_holds_up_nobody_and_has_to_go(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = connected(recorder)
    recorder.server.serve()
    assert asked(recorder)["ok"] is True
    client = next(iter(recorder.server._clients.values()))
    client.until = 0.0
    recorder.server.serve()
    assert said(silent) == b""
    assert recorder.server._clients == {}


def test_who_goes_in_the_middle_of_a_word_leaves_nothing(recorder: Recorder) -> None:
    line = connected(recorder)
    line.sendall(b'{"do"')
    recorder.server.serve()
    line.close()
    recorder.server.serve()
    assert recorder.server._clients == {}
    assert recorder.asked == []


def test_who_does_not_wait_for_the_answer_is_no_failure(recorder: Recorder) -> None:
    line = connected(recorder)
    line.sendall(b'{"do":"state"}\n')
    line.close()
    recorder.server.serve()
    assert asked(recorder)["ok"] is True


def test_a_hundred_silent_clients_take_few_descriptors_and_keep_nobody_out(
    recorder: Recorder,
) -> None:
    before = descriptors()
    lines = []
    for _ in range(100):
        lines.append(connected(recorder))
        recorder.server.serve()
    theirs = descriptors() - before - len(lines)
    assert theirs <= MOST_CLIENTS
    assert asked(recorder)["ok"] is True
    for line in lines:
        line.close()


def test_an_answer_with_the_longest_sentences_fits_into_a_line(recorder: Recorder) -> None:
    recorder.outcome = Asked(State.REFUSED, "\U0001f600" * 5000, "\U0001f600" * 5000)
    line = connected(recorder)
    line.sendall(b'{"do":"state"}\n')
    recorder.server.serve()
    answer = said(line)
    assert len(answer) <= MOST_BYTES
    assert len(json.loads(answer)["trace"]["what"]) == LONGEST


@pytest.fixture
def open_to_all(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """A recorder whose folder somebody has opened to everybody, after all."""
    if os.geteuid() != 0:
        pytest.skip("to become another user needs root")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = Recorder(folder)
        for path in (folder, folder / place.FOLDER):
            path.chmod(0o755)
        found.socket.chmod(0o777)
        yield found
        found.close()


def test_another_user_is_hung_up_on_unheard(open_to_all: Recorder) -> None:
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setresuid(65534, 65534, 65534)
            line = connected(open_to_all)
            try:
                line.sendall(b'{"do":"state"}\n')
                code = 0 if said(line) == b"" else 2
            except (BrokenPipeError, ConnectionResetError):
                # It was quicker.
                code = 0
        finally:
            os._exit(code)
    status = None
    while status is None:
        open_to_all.server.serve()
        found, code = os.waitpid(child, os.WNOHANG)
        status = code if found else None
    assert os.waitstatus_to_exitcode(status) == 0
    assert open_to_all.asked == []
    assert asked(open_to_all)["ok"] is True


def test_a_defect_of_ours_costs_those_who_ask_now_and_nobody_else(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError

    before = descriptors()
    line = connected(recorder)
    monkeypatch.setattr(place, "peer_of", broken)
    recorder.server.serve()
    monkeypatch.undo()
    assert said(line) == b""
    assert descriptors() == before
    assert asked(recorder)["ok"] is True


def test_a_server_that_cannot_accept_goes_on(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def accept(self) -> None:
            raise OSError(24, "Too many open files")

        def fileno(self) -> int:
            return real.fileno()

    line = connected(recorder)
    line.sendall(b'{"do":"state"}\n')
    real = recorder.server._line
    monkeypatch.setattr(recorder.server, "_line", Full())
    recorder.server.serve()
    monkeypatch.undo()
    recorder.server.serve()
    assert json.loads(said(line))["ok"] is True

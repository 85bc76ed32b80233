"""Who may read the metrics, and how: TLS, passwords, clients that behave badly."""

from __future__ import annotations

import base64
import contextlib
import http.client
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from whyidle.monitor.core.errors import NotPermitted, Problem, UsageProblem
from whyidle.monitor.export.exposition import Family, page
from whyidle.monitor.export.server import MOST_AT_A_TIME, Server
from whyidle.monitor.export.web_config import WebConfig, read

PAGE = b"a_metric 1\n"


@pytest.fixture
def config(tmp_path: Path) -> WebConfig:
    return WebConfig()


@pytest.fixture
def server(config: WebConfig) -> Iterator[Server]:
    found = Server("127.0.0.1", 0, lambda: PAGE, config)
    found.start()
    yield found
    found.close()


def ask(server: Server, path: str = "/metrics", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_only_the_page_is_served(server: Server) -> None:
    assert ask(server) == (200, PAGE)
    assert ask(server, "/metrics?a=b") == (200, PAGE)
    assert ask(server, "/")[0] == 200
    assert ask(server, "/../etc/passwd")[0] == 404


def test_a_page_that_fails_ends_no_server(config: WebConfig) -> None:
    def fails() -> bytes:
        raise ValueError

    broken = Server("127.0.0.1", 0, fails, config)
    broken.start()
    assert ask(broken)[0] == ask(broken)[0] == 500
    broken.close()


def test_clients_that_say_nothing_keep_nobody_out_for_long(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = [
        socket.create_connection(("127.0.0.1", server.server_port)) for _ in range(MOST_AT_A_TIME)
    ]
    threading.Event().wait(0.2)
    with pytest.raises((http.client.HTTPException, OSError)):
        ask(server)
    for each in silent:
        each.close()
    threading.Event().wait(0.2)
    assert ask(server) == (200, PAGE)


def test_clients_that_say_little_are_cut_off(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whyidle.monitor.export.server.SECONDS", 1.0)
    address = ("127.0.0.1", server.server_port)
    slow = [socket.create_connection(address) for _ in range(MOST_AT_A_TIME)]
    end = time.monotonic() + 10
    served = False
    while not served and time.monotonic() < end:
        for each in slow:
            with contextlib.suppress(OSError):
                each.send(b"G")
        threading.Event().wait(0.2)
        with contextlib.suppress(http.client.HTTPException, OSError):
            served = ask(server) == (200, PAGE)
    for each in slow:
        each.close()
    assert served


def test_a_port_that_is_taken_says_what_to_type(server: Server, config: WebConfig) -> None:
    port = server.server_port
    with pytest.raises(UsageProblem) as raised:
        Server("127.0.0.1", port, lambda: PAGE, config)
    assert f"Port {port} is taken" in raised.value.what
    assert f"--port {port + 1}" in raised.value.next_step


def test_an_address_of_another_machine_is_refused(config: WebConfig) -> None:
    with pytest.raises((UsageProblem, NotPermitted), match="cannot listen"):
        Server("192.0.2.1", 0, lambda: PAGE, config)


def test_passwords_are_asked_for(tmp_path: Path) -> None:
    bcrypt = pytest.importorskip("bcrypt")
    stored = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    file = tmp_path / "web.yml"
    file.write_text(f"# who may read\nbasic_auth_users:\n  ada: {stored}\n")
    found = read(file)
    assert found.tls is None
    assert not found.lets_in("ada", "wrong")
    assert not found.lets_in("bob", "secret")
    for _ in range(2):
        assert found.lets_in("ada", "secret")
    assert not found.lets_in("ada", "s" * 1000)
    server = Server("127.0.0.1", 0, lambda: PAGE, found)
    server.start()
    assert ask(server)[0] == 401
    assert ask(server, Authorization=basic("ada", "wrong"))[0] == 401
    for said in ("Basic %%%", "Basic \xe4", "Basic", basic("a\0b", "c\0d")):
        assert ask(server, Authorization=said)[0] == 401
    assert ask(server, Authorization=basic("ada", "secret")) == (200, PAGE)
    server.close()


def test_tls_by_the_files_that_it_names(tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl makes a certificate")
    made = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj",
            "/CN=localhost", "-keyout", "web.key", "-out", "web.crt"]  # fmt: skip
    subprocess.run(made, cwd=tmp_path, check=True, capture_output=True)
    file = tmp_path / "web.yml"
    file.write_text('tls_server_config:\n  cert_file: "web.crt"  # ours\n  key_file: web.key\n')
    server = Server("127.0.0.1", 0, lambda: PAGE, read(file))
    server.start()
    assert server.url.startswith("https://")
    # Somebody who speaks no TLS is let go, and nobody waits for him.
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as plain:
        plain.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        trusting = ssl.create_default_context(cafile=str(tmp_path / "web.crt"))
        trusting.check_hostname = False
        connection = http.client.HTTPSConnection(
            "127.0.0.1", server.server_port, context=trusting, timeout=10
        )
        connection.request("GET", "/metrics")
        assert connection.getresponse().read() == PAGE
        connection.close()
    server.close()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("basic_auth_users:\n  ada: secret\n", "the password of 'ada' is no bcrypt hash"),
        (f"basic_auth_users:\n  ada: $2b$99${'.' * 53}\n", "the password of 'ada' is no bcrypt"),
        ("tls_server_config:\n  cert_file: a\n", "lacks key_file"),
        ("tls_server_config:\n  cert_file: a\n  key_file: b\n", "cannot be used"),
        ("tls_server_config:\n  client_auth_type: X\n", "line 2: 'client_auth_type' is not"),
        ("http_server_config:\n  http2: true\n", "line 1: 'http_server_config' is not"),
        ("  ada: x\n", "line 1: 'ada: x' is not understood"),
        ("tls_server_config: {a: b}\n", "line 1"),
        ("- list\n", "line 1"),
    ],
)
def test_what_is_wrong_in_the_file_is_said(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "web.yml"
    file.write_text(text)
    with pytest.raises(UsageProblem) as raised:
        read(file)
    assert says in raised.value.what
    assert raised.value.next_step
    assert raised.value.next_step.isprintable()


def test_no_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="cannot be read"):
        read(tmp_path / "none.yml")


def test_labels_may_hold_anything() -> None:
    family = Family("a", "gauge", "It says\nmore \\ here.")
    family.add(1.5, {"x": 'a"b\\c\nd'})
    family.add(float("nan"), {})
    family.add(None, {})
    text = page([family, Family("empty", "gauge", "None.")]).decode()
    assert text == (
        '# HELP a It says\\nmore \\\\ here.\n# TYPE a gauge\na{x="a\\"b\\\\c\\nd"} 1.5\n'
    )


def test_bytes_that_are_no_text_are_no_escape_that_a_parser_refuses() -> None:
    family = Family("a", "gauge", "It.")
    family.add(1.0, {"x": b"j\xff".decode(errors="surrogateescape")})
    assert page([family]).endswith(b'a{x="j?"} 1\n')

"""Where the dashboard listens, what it says of itself, and whose settings it uses."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect

from tests.commands.test_trace_view import listeners
from tests.dashboard.asking import ask, cookie
from tests.dashboard.conftest import TOKEN, Served, serving
from tests.dashboard.stores import make
from whyidle.dashboard import endpoint as places
from whyidle.dashboard.endpoint import Endpoint
from whyidle.dashboard.index_page import headers
from whyidle.monitor.core.errors import UsageProblem

LOOPBACK = {"0100007F"}
HOSTILE = """
[server]
address = "0.0.0.0"
port = 1
baseUrlPath = "theirs"
enableCORS = false
enableXsrfProtection = false
enableStaticServing = true
allowedHosts = ["*"]
trustedUserHeaders = "nonsense"
[browser]
gatherUsageStats = true
serverAddress = "evil.example"
[client]
allowedOrigins = ["https://evil.example"]
showErrorDetails = "full"
[global]
developmentMode = true
[theme]
base = "http://127.0.0.1:9/evil.toml"
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("serve") / "whyidle.db"
    make(path, seconds=60).end()
    return path


@pytest.fixture(scope="module")
def served(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A dashboard of a person whose own Streamlit is open to everybody."""
    home = tmp_path_factory.mktemp("home")
    (home / ".streamlit").mkdir()
    (home / ".streamlit" / "config.toml").write_text(HOSTILE)
    (home / ".streamlit" / "secrets.toml").write_text('[auth]\ncookie_secret = "known"\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.chdir(home)
        patch.setenv("STREAMLIT_SERVER_ADDRESS", "0.0.0.0")
        patch.setenv("STREAMLIT_BROWSER_GATHER_USAGE_STATS", "true")
        patch.setenv("STREAMLIT_SERVER_ENABLE_CORS", "false")
        with serving(store) as running:
            yield running


def new_session(served: Served) -> Any:
    """Return what Streamlit sends a browser that has just connected."""
    headers = {"Cookie": cookie(served.port)}
    with connect(
        f"ws://127.0.0.1:{served.port}/_stcore/stream",
        additional_headers=headers,
        proxy=None,
        max_size=None,
    ) as line:
        begin = BackMsg()
        begin.rerun_script.query_string = ""
        line.send(begin.SerializeToString())
        while True:
            message = ForwardMsg()
            message.ParseFromString(line.recv(timeout=30))
            if message.WhichOneof("type") == "new_session":
                return message.new_session


def test_nothing_is_sent_to_the_makers_of_streamlit(served: Served) -> None:
    session = new_session(served)
    assert session.config.gather_usage_stats is False
    # This shows that pages get messages at all, and that our settings are in them.
    assert session.custom_theme.base == 0
    assert session.initialize.is_hello is False


def test_settings_of_the_users_own_do_not_count(served: Served) -> None:
    assert listeners(served.port) == LOOPBACK
    allowed = cookie(served.port)
    answer = json.loads(ask(served.port, "/_stcore/host-config", Cookie=allowed).body)
    assert answer["allowedOrigins"] == []
    page = ask(served.port, "/", Cookie=allowed)
    assert b"<div id=" in page.body
    assert "access-control-allow-origin" not in page.headers


def test_behind_a_proxy_everything_stands_below_its_path(store: Path) -> None:
    name, base = "proxy.example", "/gpu1/whyidle"
    with serving(store, "--base-path", base, "--allow-host", name) as running:
        port = running.port
        allowed = cookie(port, base)
        said = ask(port, f"{base}/now?token={TOKEN}&run=1")
        assert said.headers["location"] == "./now?run=1"
        assert f"Path={base}" in said.headers["set-cookie"]
        page = ask(port, f"{base}/", Cookie=allowed)
        scripts = re.findall(r'src="\.(/static/js/[^"]+)"', page.body.decode())
        assert scripts
        for path in (*scripts, "/whyidle/plotly.min.js", "/_stcore/health"):
            assert ask(port, f"{base}{path}", Cookie=allowed).status == 200, path
            assert ask(port, f"{base}{path}").status == 401
        stream = f"{base}/_stcore/stream"
        # A proxy may pass its own name on, or ours.
        for host in (name, f"127.0.0.1:{port}"):
            sent = {"Cookie": allowed, "Origin": f"https://{name}"}
            assert ask(port, stream, websocket=True, hosts=(host,), **sent).status == 101
        sent["Origin"] = "https://evil.example"
        assert ask(port, stream, websocket=True, hosts=(name,), **sent).status == 403


def test_an_address_of_no_page_says_which_there_are(served: Served) -> None:
    allowed = {"Cookie": cookie(served.port), "Accept": "text/html"}
    found = ask(served.port, "/nosuch", **allowed)
    assert found.status == 404
    text = found.body.decode()
    assert "No such page" in text
    assert re.findall(r'href="(/[a-z]*)">', text)[:2] == ["/now", "/code"]
    assert ask(served.port, "/timeline", **allowed).status == 200
    # What Streamlit serves itself goes on to be served.
    for path in ("/_stcore/health", "/favicon.png"):
        assert ask(served.port, path, **allowed).status == 200, path
    assert ask(served.port, "/nosuch").status == 401


def test_the_mark_stands_in_the_tab(served: Served) -> None:
    page = ask(served.port, "/", Cookie=cookie(served.port)).body.decode()
    (icon,) = re.findall(r'<link rel="(?:shortcut )?icon"[^>]*>', page)
    assert "data:image/svg+xml;base64," in icon


def test_without_a_token_names_and_pages_are_looked_at_all_the_same(store: Path) -> None:
    with serving(store, "--no-token") as running:
        port = running.port
        assert ask(port, "/").status == 200
        assert ask(port, "/?token=x").status == 200
        assert ask(port, "/", hosts=("evil.example",)).status == 403
        stream = "/_stcore/stream"
        assert ask(port, stream, websocket=True).status == 101
        assert ask(port, stream, websocket=True, Origin="http://evil.example").status == 403
        assert ask(port, stream, websocket=True, hosts=("evil.example",)).status == 403


def test_a_token_that_is_easily_guessed_is_refused(store: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "whyidle.dashboard", "--store", str(store)],
        env={**os.environ, "WHYIDLE_DASHBOARD_TOKEN": "abc"},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "too easily guessed" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_token_is_another_and_long() -> None:
    tokens = {places.new_token() for _ in range(100)}
    assert len(tokens) == 100
    # Six bits a letter: more than 128 bits.
    assert min(map(len, tokens)) * 6 >= 128


def test_the_link_names_the_port_the_path_and_the_token() -> None:
    assert Endpoint(port=80).link == "http://127.0.0.1:80/"
    endpoint = Endpoint(port=8765, address="::1", token="t", ticket="o", base="a/b")
    assert endpoint.link == "http://[::1]:8765/a/b/?token=t"
    assert endpoint.link_for_once == "http://[::1]:8765/a/b/?token=o"
    assert socket.gethostname() in Endpoint(port=1, address="0.0.0.0").link


def test_on_every_address_it_answers_to_the_names_of_this_machine_alone() -> None:
    names = Endpoint(port=1, address="0.0.0.0").names
    assert {"127.0.0.1", "localhost", socket.gethostname().lower()} <= names
    assert not {"0.0.0.0", "*", "", "evil.example"} & names


def test_a_port_that_is_taken_is_said_and_without_a_wish_another_is_found() -> None:
    with places.listen("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageProblem, match=f"port {port}") as refused:
            places.listen("127.0.0.1", port)
        assert "--port" in refused.value.next_step
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(places, "PORT", port)
            with places.listen("127.0.0.1", None) as other:
                assert other.getsockname()[1] not in {0, port}


@pytest.mark.parametrize("text", ["gpu1", "gpu1.example.org", "GPU1.", "192.0.2.7", "::1"])
def test_names_and_addresses_are_names(text: str) -> None:
    assert places.name(text) == text.lower().rstrip(".")


@pytest.mark.parametrize("text", ["", "*", "http://gpu1", "gpu1:80", "a b", "é", "a/b"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(UsageProblem, match="not a host name"):
        places.name(text)


def test_a_path_to_stand_under_is_plain_words() -> None:
    assert places.base("/gpu1/whyidle/") == "gpu1/whyidle"
    assert places.base("") == places.base("/") == ""
    for text in ("/a//b", "/a?b", "/a\nb", "/a b", "/é"):
        with pytest.raises(UsageProblem, match="not a valid path"):
            places.base(text)


def test_only_scripts_that_streamlit_put_into_its_page_run_in_it() -> None:
    page = "<script>\n a = 1\n</script><script src='x.js'></script>"
    policy = headers(page)[b"content-security-policy"].decode()
    # As `openssl dgst -sha256` and a browser reckon it.
    assert policy.count("'sha256-") == 1
    assert headers(page) != headers(page.replace("1", "2"))

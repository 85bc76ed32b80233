"""Nobody gets in without the token, under a strange name, or from somebody else's page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

from tests.dashboard.asking import ask, cookie, host_of
from tests.dashboard.conftest import TOKEN, Served, serving
from tests.dashboard.stores import make
from whyidle.dashboard import access
from whyidle.dashboard.access import Access
from whyidle.dashboard.endpoint import Endpoint

STREAM = "/_stcore/stream"
PATHS = [
    "/",
    "/now",
    "/favicon.png",
    "/index.html",
    "/static/",
    "/media/",
    "/media/x.png",
    "/component/x/index.html",
    "/auth/login",
    "/oauth2callback",
    "/whyidle/plotly.min.js",
    "/app/static/x",
    "/_stcore/health",
    "/_stcore/script-health-check",
    "/_stcore/host-config",
    "/_stcore/metrics",
    "/_stcore/bidi-components/whyidle_live_plotly/x.js",
    "/_stcore/upload_file/a/b",
    "/_stcore/agent/openapi.json",
    STREAM,
    "//",
    "/../../etc/passwd",
    "/%2e%2e/%2e%2e/etc/passwd",
    "/now?token=",
    "/now?token=wrong",
    f"/now?token={TOKEN}x",
    f"/now?token={TOKEN[:-1]}",
    f"/now?TOKEN={TOKEN}",
]
STRANGERS = [
    ("evil.example",),
    ("127.0.0.1.evil.example",),
    ("localhost.evil.example",),
    ("127.0.0.1@evil.example",),
    ("evil.example@127.0.0.1",),
    ("127.0.0.1/evil.example",),
    ("127.0.0.1 evil.example",),
    ("[::1].evil.example",),
    ("0.0.0.0",),
    ("192.0.2.1",),
    ("",),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("access") / "whyidle.db"
    make(path, seconds=60).end()
    return path


@pytest.fixture(scope="module")
def served(store: Path) -> Iterator[Served]:
    with serving(store) as running:
        yield running


@pytest.fixture(scope="module")
def allowed(served: Served) -> str:
    return cookie(served.port)


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_there_is_nothing(served: Served, path: str) -> None:
    answer = ask(served.port, path)
    assert answer.status == 401
    assert answer.body == access.NOT_OPENED.encode()
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_no_way_of_asking_gets_round_the_token(served: Served, method: str) -> None:
    assert ask(served.port, "/_stcore/health", method=method).status == 401


def test_a_websocket_needs_the_cookie(served: Served, allowed: str) -> None:
    name = allowed.partition("=")[0]
    assert ask(served.port, STREAM, websocket=True).status == 403
    assert ask(served.port, STREAM, websocket=True, Cookie=f"{name}=wrong").status == 403
    # Also with the token in hand: the cookie alone says that a browser was let in.
    assert ask(served.port, f"{STREAM}?token={TOKEN}", websocket=True).status == 403
    assert ask(served.port, STREAM, websocket=True, Cookie=allowed).status == 101
    # A page whose address still has the token hands it on: it is neither needed nor in the way.
    address = f"{STREAM}?token={TOKEN}"
    assert ask(served.port, address, websocket=True, Cookie=allowed).status == 101


@pytest.mark.parametrize("hosts", STRANGERS)
def test_under_a_strange_name_nobody_gets_in(
    served: Served, allowed: str, hosts: tuple[str, ...]
) -> None:
    for extra in ({}, {"X_Forwarded_Host": "127.0.0.1"}, {"Forwarded": "host=127.0.0.1"}):
        page = ask(served.port, f"/?token={TOKEN}", hosts=hosts, Cookie=allowed, **extra)
        # What is no name at all, the server itself does not understand.
        assert page.status in {403, 400}
        assert "set-cookie" not in page.headers
        line = ask(served.port, STREAM, websocket=True, hosts=hosts, Cookie=allowed, **extra)
        assert line.status in {403, 400}


def test_two_names_or_none_are_refused(served: Served, allowed: str) -> None:
    for hosts in ((), ("127.0.0.1", "evil.example"), ("evil.example", "127.0.0.1")):
        assert ask(served.port, "/", hosts=hosts, Cookie=allowed).status in {400, 403}
        line = ask(served.port, STREAM, websocket=True, hosts=hosts, Cookie=allowed)
        assert line.status in {400, 403}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LocalHost.", "[::1]"])
def test_under_each_name_of_its_own_it_answers(served: Served, allowed: str, host: str) -> None:
    for name in (host, f"{host}:{served.port}"):
        assert ask(served.port, "/", hosts=(name,), Cookie=allowed).status == 200


def test_a_name_in_the_request_line_is_none_of_ours(served: Served, allowed: str) -> None:
    for target in ("http://evil.example/", f"http://127.0.0.1:{served.port}/", "evil.example:80"):
        assert ask(served.port, target, Cookie=allowed).status == 400
        assert ask(served.port, target).status in {400, 401}


def test_a_forwarded_name_leads_nowhere(served: Served) -> None:
    answer = ask(served.port, f"/now?token={TOKEN}", X_Forwarded_Host="evil.example")
    assert answer.status == 303
    assert "evil" not in str(answer.headers)


def test_another_page_cannot_use_the_cookie(served: Served, allowed: str) -> None:
    ours = (f"http://127.0.0.1:{served.port}", None)
    others = (
        "http://evil.example",
        "http://127.0.0.1",
        f"http://127.0.0.1:{served.port + 1}",
        f"http://localhost:{served.port}",
        "null",
        "file://",
        "http://[",
    )
    for origin in (*ours, *others):
        extra = {} if origin is None else {"Origin": origin}
        is_ours = origin in ours
        line = ask(served.port, STREAM, websocket=True, Cookie=allowed, **extra)
        assert line.status == (101 if is_ours else 403), origin
        page = ask(served.port, "/_stcore/host-config", Cookie=allowed, **extra)
        assert page.status == (200 if is_ours else 403), origin
        assert "access-control-allow-origin" not in page.headers


def test_the_token_goes_out_of_the_address_and_the_rest_stays(served: Served) -> None:
    answer = ask(served.port, f"/now?run=2&a=1&token={TOKEN}&a=%26+%3D&b=")
    assert answer.status == 303
    assert answer.headers["location"] == "./now?run=2&a=1&a=%26+%3D&b="
    assert ask(served.port, f"/?token={TOKEN}").headers["location"] == "./"


def test_a_browser_that_is_let_in_already_also_loses_the_token_from_its_address(
    served: Served, allowed: str
) -> None:
    answer = ask(served.port, f"/now?token={TOKEN}&run=2", Cookie=allowed)
    assert (answer.status, answer.headers["location"]) == (303, "./now?run=2")


@pytest.mark.parametrize(
    "path",
    [
        "//evil.example/x",
        "///evil.example",
        "/\\evil.example",
        "/\\\\evil.example/..",
        "/%5c%5cevil.example",
        "/%2f%2fevil.example",
        "/x/%2f%2fevil.example",
        "/x//evil.example",
        "/http:%2f%2fevil.example",
        "/javascript:alert(1)",
        "/x%0d%0aX-Evil:%201",
        "/x?next=http://evil.example&y=1",
    ],
)
def test_the_way_in_leads_to_no_other_machine(served: Served, path: str) -> None:
    answer = ask(served.port, f"{path}{'&' if '?' in path else '?'}token={TOKEN}")
    assert answer.status in {303, 400}
    assert "x-evil" not in answer.headers
    where = answer.headers.get("location", "")
    page = f"http://127.0.0.1:{served.port}{path}"
    assert host_of(urljoin(page, where)) == f"127.0.0.1:{served.port}"
    assert not where.startswith(("/", "\\", "http", "javascript"))


def test_the_cookie_is_for_browsers_alone_and_holds_no_token(served: Served) -> None:
    said = ask(served.port, f"/?token={TOKEN}").headers["set-cookie"]
    assert {"httponly", "samesite=lax", "path=/"} <= {p.strip().lower() for p in said.split(";")}
    assert TOKEN not in said
    behind_tls = ask(served.port, f"/?token={TOKEN}", X_Forwarded_Proto="https")
    assert "secure" in behind_tls.headers["set-cookie"].lower()


def test_cookies_of_other_programs_do_not_lock_us_out(served: Served, allowed: str) -> None:
    for others in ('a={"b": "c;d"}', 'theme="x', "=; ;;", "session@x[1]=é"):
        for both in (f"{others}; {allowed}", f"{allowed}; {others}"):
            assert ask(served.port, "/_stcore/health", Cookie=both).status == 200


def test_it_takes_nothing(served: Served, allowed: str) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        for path in ("/", "/_stcore/upload_file/a/b", "/_stcore/health"):
            answer = ask(served.port, path, method=method, Cookie=allowed, Content_Length="0")
            assert answer.status == 405


def test_no_folder_is_listed_and_no_file_read(served: Served, allowed: str) -> None:
    page = b'<div id="root">'
    for path in ("/static", "/static/", "/static/js/", "/media/", "/app/static/", "/component/"):
        answer = ask(served.port, path, Cookie=allowed)
        assert answer.status in {301, 400, 404} or page in answer.body
    for path in ("/../serve.py", "/static/../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd"):
        answer = ask(served.port, path, Cookie=allowed)
        assert answer.status in {400, 404} or page in answer.body


def test_the_health_of_the_server_is_a_word(served: Served, allowed: str) -> None:
    assert ask(served.port, "/_stcore/health", Cookie=allowed).body == b"ok"


def test_every_answer_keeps_the_browser_here(served: Served, allowed: str) -> None:
    for answer in (
        ask(served.port, "/", Cookie=allowed),
        ask(served.port, "/whyidle/plotly.min.js", Cookie=allowed),
        ask(served.port, "/"),
        ask(served.port, f"/?token={TOKEN}"),
    ):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "connect-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert "http" not in policy
        scripts = next(p for p in policy.split(";") if p.strip().startswith("script-src"))
        assert "unsafe" not in scripts
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_pages_of_the_makers_of_streamlit_steer_nothing(served: Served, allowed: str) -> None:
    answer = json.loads(ask(served.port, "/_stcore/host-config", Cookie=allowed).body)
    assert answer["allowedOrigins"] == []
    assert answer["metricsUrl"] == ""


def scope(path: str = "/", query: str = "", cookie: str = "") -> dict[str, Any]:
    headers = [(b"host", b"127.0.0.1"), (b"cookie", cookie.encode())]
    return {
        "type": "http", "method": "GET", "scheme": "http", "path": path, "headers": headers,
        "query_string": query.encode(),
    }  # fmt: skip


def answered(guard: Access, asked: dict[str, Any]) -> tuple[int, dict[bytes, bytes]]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    asyncio.run(guard(asked, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"])


def guarded(**endpoint: Any) -> Access:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    return Access(app, endpoint=Endpoint(port=1, **endpoint), headers={})


def test_of_two_names_that_differ_none_counts() -> None:
    asked = scope(query=f"token={'t' * 20}")
    asked["headers"].append((b"Host", b"evil.example"))
    assert answered(guarded(token="t" * 20), asked)[0] == 403


def test_a_ticket_opens_once() -> None:
    guard = guarded(token="t" * 20, ticket="o" * 20)
    status, headers = answered(guard, scope(query=f"token={'o' * 20}"))
    assert status == 303
    pass_ = headers[b"set-cookie"].decode().partition(";")[0]
    assert answered(guard, scope(cookie=pass_))[0] == 200
    assert answered(guard, scope(query=f"token={'o' * 20}"))[0] == 401
    assert answered(guard, scope(query=f"token={'t' * 20}"))[0] == 303


def test_two_dashboards_keep_their_cookies_apart() -> None:
    names = set()
    for token in ("a" * 20, "b" * 20):
        _, headers = answered(guarded(token=token), scope(query=f"token={token}"))
        names.add(headers[b"set-cookie"].partition(b"=")[0])
    assert len(names) == 2


def test_how_long_a_wrong_token_takes_reveals_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def same(one: bytes, other: bytes) -> bool:
        compared.append(other)
        return one == other

    monkeypatch.setattr(access.hmac, "compare_digest", same)
    guard = guarded(token="t" * 20)
    assert answered(guard, scope(query="token=tx"))[0] == 401
    assert b"t" * 20 in compared
    name = guard._cookie
    compared.clear()
    assert answered(guard, scope(cookie=f"{name}=x"))[0] == 401
    assert guard._pass.encode() in compared

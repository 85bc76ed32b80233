"""One client for what answers PromQL over HTTP: Prometheus, VictoriaMetrics and their like.

A server may be down, slow, wrong, or know half: each query ends by its deadline with rows, or with
a ``Problem`` that says why there are none. What is odd about rows that did come stands beside them.
"""

from __future__ import annotations

import base64
import http.client
import json
import math
import os
import re
import shlex
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from whyidle.monitor.core.errors import NotPermitted, Problem, TargetGone, UsageProblem
from whyidle.monitor.core.http_client import TooLong, connected, reason, whole

URL: Final = "WHYIDLE_PROM_URL"
# The environment is private, while other users can read a command line.
TOKEN, USER, PASSWORD = "WHYIDLE_PROM_TOKEN", "WHYIDLE_PROM_USER", "WHYIDLE_PROM_PASSWORD"
EXAMPLE: Final = f"For instance: export {URL}=http://127.0.0.1:9090"
# From the first byte that is sent to the last that is read.
SECONDS: Final = 15.0
# The queries ask for sums and for the worst few; a longer answer is none of theirs.
LONGEST_BYTES: Final = 16 << 20
LONGEST_WORDS: Final = 300
# In a regular expression.
_MEANS_MORE: Final = re.compile(r"[\\.+*?()|\[\]{}^$]")


@dataclass(frozen=True, slots=True)
class Row:
    """One series of an answer: its labels, and its values by the server's time in seconds."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]

    @property
    def value(self) -> float:
        """The newest value."""
        return self.points[-1][1]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query found, and what the server or we have to say of it."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prometheus:
    """Where it is, and how it lets us in."""

    host: str
    port: int
    path: str = ""
    is_tls: bool = False
    credentials: str | None = field(default=None, repr=False)
    seconds: float = SECONDS

    @classmethod
    def here(cls, url: str | None = None, seconds: float = SECONDS) -> Prometheus:
        """Return the one that is named, here or in the environment; raises a ``Problem``."""
        url = url or os.environ.get(URL, "").strip()
        if not url:
            raise UsageProblem("No Prometheus server is named.", EXAMPLE)
        try:
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            parts, port = urlsplit(""), 0
        if parts.username is not None:
            raise UsageProblem(
                "The address of the Prometheus server has a user in it, and others would see it.",
                f"Leave it out, and: export {USER}=... {PASSWORD}=...",
            )
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
            raise UsageProblem(f"'{url[:LONGEST_WORDS]}' is no address of a server.", EXAMPLE)
        path = parts.path.rstrip("/").removesuffix("/api/v1")
        return cls(parts.hostname, port, path, parts.scheme == "https", _credentials(), seconds)

    @property
    def url(self) -> str:
        """Its address, without anything that is secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.is_tls else ''}://{host}:{self.port}{self.path}"

    def now(self, query: str) -> Answer:
        """Ask for the values of now, by the server's own clock."""
        return self._ask("query", {"query": query})

    def over(self, query: str, start: float, end: float, step: float) -> Answer:
        """Ask for the values between two moments of the server's clock."""
        asked = {"query": query, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        return self._ask("query_range", asked)

    def _ask(self, what: str, form: Mapping[str, str]) -> Answer:
        # The server gives up when we do.
        form = {**form, "timeout": f"{self.seconds:g}s"}
        try:
            status, kind, body = self._fetched(f"{self.path}/api/v1/{what}", urlencode(form))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._no_answer(error) from None
        return _read(self, status, kind, body)

    def _fetched(self, path: str, form: str) -> tuple[int, str, bytes]:
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        if self.credentials is not None:
            headers["Authorization"] = self.credentials
        with connected(self.host, self.port, self.seconds, is_tls=self.is_tls) as connection:
            connection.request("POST", path, form, headers)
            response = connection.getresponse()
            where = response.headers.get("Location", "")
            kind = where if response.status // 100 == 3 else response.headers.get_content_type()
            return response.status, kind, whole(response, LONGEST_BYTES)

    def _no_answer(self, error: Exception) -> Problem:
        asked = shlex.quote(f"{self.url}/api/v1/query?query=up")
        see = f"Is it running? Try: curl {asked}"
        if isinstance(error, TimeoutError):
            what = f"{self.url} has not answered within {self.seconds:g} s."
            return TargetGone(what, "Ask for less: --since 1h")
        if isinstance(error, TooLong):
            what = f"{self.url} answers with more than {LONGEST_BYTES >> 20} MiB."
            return TargetGone(what, "Ask for less: --since 1h")
        if isinstance(error, http.client.IncompleteRead):
            return TargetGone(f"{self.url} broke off in the middle of an answer.", see)
        if isinstance(error, ssl.SSLCertVerificationError):
            return TargetGone(
                f"The certificate of {self.url} is not trusted: {error.verify_message}.",
                "Name the authority that signed it: export SSL_CERT_FILE=ca.pem",
            )
        return TargetGone(f"{self.url} does not answer: {reason(error)}.", see)


def _credentials() -> str | None:
    token, user = os.environ.get(TOKEN, ""), os.environ.get(USER, "")
    found = None
    if token:
        found = f"Bearer {token}"
    elif user:
        both = f"{user}:{os.environ.get(PASSWORD, '')}".encode()
        found = f"Basic {base64.b64encode(both).decode()}"
    if found is not None and not (found.isascii() and found.isprintable()):
        raise UsageProblem(f"{TOKEN} has a letter that no token has.", "Is a line break in it?")
    return found


def _read(server: Prometheus, status: int, kind: str, body: bytes) -> Answer:
    if status in {401, 403}:
        raise NotPermitted(
            f"{server.url} does not let us in ({status}).",
            f"export {TOKEN}=..., or {USER}=... and {PASSWORD}=...",
        )
    if status // 100 == 3:
        raise UsageProblem(
            f"{server.url} sends us on to '{kind[:LONGEST_WORDS]}'.", f"Name that: export {URL}=..."
        )
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or "status" not in found:
        raise TargetGone(
            f"What {server.url} says is no answer of Prometheus: {status}, {kind}.",
            f"Is the path right? {EXAMPLE}; of a VictoriaMetrics cluster it ends with"
            " /select/0/prometheus",
        )
    if found["status"] != "success":
        said = str(found.get("error") or "no reason is given")[:LONGEST_WORDS]
        raise TargetGone(f"{server.url} answers with an error: {said}.", "Its log says more.")
    return _rows(found)


def _rows(found: Mapping[str, Any]) -> Answer:
    data = found.get("data")
    result = data.get("result") if isinstance(data, dict) else None
    if isinstance(data, dict) and data.get("resultType") == "scalar":
        result = [{"metric": {}, "value": result}]
    warnings = found.get("warnings")
    notes = [str(each)[:LONGEST_WORDS] for each in warnings] if isinstance(warnings, list) else []
    if found.get("isPartial"):
        notes.append("the answer is partial: some storage nodes did not answer")
    if not isinstance(result, list):
        return Answer((), (*notes, "the answer has no result"))
    rows, damaged = [], 0
    for each in result:
        try:
            row = _row(each)
        except (KeyError, TypeError, ValueError, AttributeError):
            damaged += 1
        else:
            # A value may be no number: 0 of 0.
            rows += [row] if row.points else []
    if damaged:
        notes.append(f"{damaged} of {len(result)} series could not be read")
    return Answer(tuple(rows), tuple(notes))


def _row(each: Mapping[str, Any]) -> Row:
    labels = {str(name): str(value) for name, value in each["metric"].items()}
    values = each["values"] if "values" in each else [each["value"]]
    points = tuple((float(at), float(number)) for at, number in values)
    return Row(labels, tuple(x for x in points if math.isfinite(x[0]) and math.isfinite(x[1])))


def selector(**wanted: Iterable[str]) -> str:
    """Return a selector of the series whose labels have one of these values each."""
    pairs = []
    for label, values in wanted.items():
        either = "|".join(_MEANS_MORE.sub(r"\\\g<0>", value) for value in values)
        pairs.append(f"{label}=~{json.dumps(either, ensure_ascii=False)}")
    return f"{{{', '.join(pairs)}}}"

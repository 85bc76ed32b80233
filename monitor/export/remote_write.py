"""Prometheus' remote write, version 1.0, which VictoriaMetrics takes, too.

The field numbers are those of prompb/remote.proto and prompb/types.proto in prometheus/prometheus.
"""

from __future__ import annotations

import base64
import http.client
import struct
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from importlib import import_module
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from whyidle.monitor.core.errors import Problem, UsageProblem
from whyidle.monitor.core.installed import to_install
from whyidle.monitor.core.protobuf import FIXED64, written

PATH: Final = "/api/v1/write"
SECONDS: Final = 30.0
_TIMESERIES = 1
_LABELS, _SAMPLES = 1, 2
_NAME, _VALUE = 1, 2
_TIMESTAMP = 2
_REFUSED: Final = range(400, 500)
_ELSEWHERE: Final = range(300, 400)
_LONGEST_SAID: Final = 500

# A series: its labels in order, its name among them.
Series = tuple[tuple[str, str], ...]


class _Stays(urllib.request.HTTPRedirectHandler):
    """Goes nowhere else: our password is for one host, and a redirect has written nothing."""

    def redirect_request(self, *_: object) -> None:
        """Follow none."""


_OPENER: Final = urllib.request.build_opener(_Stays)


class Refused(Problem):
    """The server does not want it, now or later."""

    def __init__(self, status: int, what: str) -> None:
        super().__init__(what, _mend(status))
        # Others it may want.
        self.is_of_samples = status == HTTPStatus.BAD_REQUEST


class Sender:
    """Sends samples to one server; a user and password may stand in the URL."""

    def __init__(self, url: str) -> None:
        parts = web_address(url)
        if parts is None:
            raise UsageProblem(
                f"'{url.rpartition('@')[2]}' is no URL to write to.",
                "Give one: --backfill http://prometheus:9090",
            )
        path = parts.path if parts.path.strip("/") else PATH
        place = parts.netloc.rpartition("@")[2]
        self._url = parts._replace(netloc=place, path=path).geturl()
        self.url = shown(self._url)
        self._headers = {
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "snappy",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
            "User-Agent": "whyidle",
        }
        if parts.username is not None:
            said = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(said.encode()).decode()}"
        self._snappy = _snappy()

    def send(self, samples: Mapping[Series, Iterable[tuple[int, float]]]) -> None:
        """Send them; raises ``Refused``, or a ``Problem`` where it may work later."""
        body = bytes(self._snappy.compress_raw(encoded(samples)))
        request = urllib.request.Request(self._url, body, self._headers, method="POST")  # noqa: S310
        try:
            with _OPENER.open(request, timeout=SECONDS) as answer:
                # No more: it may go on for ever.
                answer.read(_LONGEST_SAID)
        except urllib.error.HTTPError as error:
            with error:
                if error.code in _ELSEWHERE:
                    raise Refused(error.code, self._sent_on(error)) from None
                said = " ".join(error.read(_LONGEST_SAID).decode(errors="replace").split())
            what = f"{self.url} answers {error.code}: {said or error.reason}"
            if error.code in _REFUSED and error.code != HTTPStatus.TOO_MANY_REQUESTS:
                raise Refused(error.code, what) from None
            raise Problem(what) from None
        except http.client.HTTPException as error:
            raise Problem(f"{self.url} does not answer in HTTP: {error!r}.") from None
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", None) or error
            raise Problem(f"{self.url} does not answer: {why}.") from None

    def _sent_on(self, error: urllib.error.HTTPError) -> str:
        where = " ".join(error.headers.get("Location", "").split())[:_LONGEST_SAID]
        return f"{self.url} sends us on to '{where}', and wrote nothing."


def web_address(url: str) -> SplitResult | None:
    """Return the parts of a URL by which a server can be reached; of any other None."""
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        # A bracket that is not closed, a port that is no number.
        return None
    return parts if is_one else None


def shown(url: str) -> str:
    """Return a URL as messages have it: a user has a password, and a query may hold a key."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=place, query="", fragment="").geturl()


def encoded(samples: Mapping[Series, Iterable[tuple[int, float]]]) -> bytes:
    """Return a WriteRequest."""
    return b"".join(
        written(_TIMESERIES, b"".join((
            *(written(_LABELS, written(_NAME, name.encode()) + written(_VALUE, value.encode()))
              for name, value in series),
            *(written(_SAMPLES, _double(value) + written(_TIMESTAMP, ms)) for ms, value in points),
        )))
        for series, points in samples.items()
    )  # fmt: skip


def _double(value: float) -> bytes:
    # The first field of a sample.
    return bytes((1 << 3 | FIXED64,)) + struct.pack("<d", value)


def _mend(code: int) -> str:
    if code in _ELSEWHERE:
        return "Give the URL that takes what is written: --backfill URL"
    return {
        400: "Prometheus takes what is older than an hour only with"
             " storage.tsdb.out_of_order_time_window, as `monitor fleet init` writes it.",
        401: "Put user and password into the URL: https://user:password@host",
        404: "Start Prometheus with --web.enable-remote-write-receiver, or give the whole URL.",
    }.get(code, "")  # fmt: skip


def _snappy() -> Any:
    try:
        return import_module("cramjam").snappy
    except ImportError:
        raise UsageProblem(
            "--backfill needs the library cramjam, which is not installed.",
            f"Install it: {to_install('export')}",
        ) from None

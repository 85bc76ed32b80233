"""PyTorch's debug server: the flight recorders of all ranks of a job, asked over HTTP.

``torch.distributed.debug.start_debug_server()`` starts it in rank 0, which asks the others. Two of
its pages have each rank's recorder as JSON, the same that a dump has. Of a job that stands still
another has the stacks, as ``faulthandler`` prints them: that takes Python's lock for a moment. The
other pages are left alone: one begins a profile in each rank.
"""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlsplit

from whyidle.monitor.core.errors import TargetGone, UsageProblem
from whyidle.monitor.core.http_client import TooLong, connected, reason, whole
from whyidle.monitor.sources.flight_recorder import MOST_FILES, Dump, Frame, NoDump, of_bytes

PORT: Final = 25_999
EXAMPLE: Final = f"For instance: monitor diagnose http://127.0.0.1:{PORT}"
_IS_IT_ON: Final = (
    "Is it on, and is this rank 0's host? Each rank calls"
    " torch.distributed.debug.start_debug_server()."
)
# NCCL's has its open collectives alone; the other has the last 2,000 of gloo and the rest.
PAGES: Final = ("/fr_trace_nccl_json", "/fr_trace_json")
STACKS: Final = "/stacks"
# A host that drops what it gets is given up soon; the server itself waits a minute for its ranks.
CONNECTS_S: Final = 5.0
SECONDS: Final = 75.0
# 2,000 collectives are 2 MB on its page.
MOST_BYTES: Final = 512 << 20
LONGEST_WORDS: Final = 200
MOST_LINES: Final = 100
_RANK: Final = re.compile(rb"<h2>Rank (\d{1,6}): [^<]{0,1000}</h2>")
_SAID: Final = re.compile(rb"<pre>(.*)</pre>", re.DOTALL)
_FRAME: Final = re.compile(r' *File "([^"]{1,1000})", line (\d{1,7}) in (.{1,200})')
_FAILED: Final = b"Failed to fetch"
# What a rank's own server has.
_HANDLERS: Final = "/handler/"
_OF_A_RANK: Final = b'"fr_trace_json"'


@dataclass(frozen=True, slots=True)
class Server:
    """Where it is, and for how long we wait."""

    host: str
    port: int
    seconds: float = SECONDS

    @classmethod
    def named(cls, url: str) -> Server:
        """Return the one that is named; raises a ``Problem``."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        if parts.scheme != "http" or not host or not host.isprintable() or port == 0:
            raise UsageProblem(f"'{url[:LONGEST_WORDS]}' is no address of a server.", EXAMPLE)
        return cls(host, port or PORT)

    @property
    def url(self) -> str:
        """Its address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def ask(self) -> Asked:
        """Return what it says of each rank; raises a ``Problem``."""
        # A rank that is stopped keeps the server waiting for a minute, for each page.
        with ThreadPoolExecutor(len(PAGES)) as both:
            *first, found = both.map(self._page, PAGES)
        for each in (*first, found):
            if any(dump.entries for dump in each.dumps):
                return each
        if not found.dumps:
            rank, why = next(iter(found.silent.items()))
            raise TargetGone(
                f"None of the {len(found.silent)} ranks of {self.url} says what it waits for."
                f" Rank {rank}: {why}.",
                "See where they are from outside: monitor attach PID",
            )
        raise TargetGone(
            f"The {len(found.dumps)} ranks of {self.url} have kept no collective.",
            "Is the recorder on? From PyTorch 2.13 on it is; before: TORCH_FR_BUFFER_SIZE=2000",
        )

    def with_stacks(self, dumps: Sequence[Dump]) -> list[Dump]:
        """Return the same with the line that each main thread is at, as far as that is said."""
        status, _, body = self._fetched(STACKS)
        stacks = dict(_ranks(body)) if status == http.HTTPStatus.OK else {}
        return [replace(each, stack=_stack(stacks.get(each.rank, b""))) for each in dumps]

    def _page(self, page: str) -> Asked:
        status, kind, body = self._fetched(page)
        found = _read(body) if status == http.HTTPStatus.OK else None
        if found is not None:
            return found
        if _OF_A_RANK in self._fetched(_HANDLERS)[2][: 1 << 16]:
            raise UsageProblem(
                f"{self.url} is the server of one rank, and knows no other.",
                f"Name that of rank 0's host: monitor diagnose http://HOST:{PORT}",
            )
        raise TargetGone(
            f"What {self.url} answers is no page of PyTorch's debug server: {status}, {kind}.",
            _IS_IT_ON,
        )

    def _fetched(self, page: str) -> tuple[int, str, bytes]:
        try:
            with connected(self.host, self.port, self.seconds, connects=CONNECTS_S) as connection:
                connection.request("GET", page)
                # Without a length it keeps the line for itself.
                with connection.getresponse() as response:
                    body = whole(response, MOST_BYTES)
                    return response.status, response.headers.get_content_type(), body
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._no_answer(error) from None

    def _no_answer(self, error: Exception) -> TargetGone:
        if isinstance(error, TooLong):
            what = f"{self.url} answers with more than {MOST_BYTES >> 20} MiB."
            return TargetGone(what, "Gather the ranks' dumps instead: monitor diagnose DUMPS")
        if isinstance(error, TimeoutError):
            return TargetGone(f"{self.url} has not answered in time.", _IS_IT_ON)
        why = reason(error)[:LONGEST_WORDS]
        return TargetGone(f"{self.url} does not answer: {why}.", _IS_IT_ON)


@dataclass(frozen=True, slots=True)
class Asked:
    """The ranks that answered, and why the others did not."""

    dumps: tuple[Dump, ...]
    silent: Mapping[int, str]


def _read(body: bytes) -> Asked | None:
    """Return what a page says; ``None``: it is another page."""
    now = time.time_ns()
    dumps: dict[int, Dump] = {}
    silent: dict[int, str] = {}
    for rank, text in _ranks(body):
        try:
            dumps[rank] = _dump(text, rank, now)
        except NoDump as why:
            silent[rank] = str(why)
    return Asked(tuple(dumps.values()), silent) if dumps or silent else None


def _ranks(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield what a page has of each rank."""
    _, *parts = _RANK.split(body, MOST_FILES)
    yield from zip(map(int, parts[::2]), parts[1::2], strict=True)


def _dump(text: bytes, rank: int, now: int) -> Dump:
    found = _SAID.search(text)
    said = found[1].strip() if found else b""
    if found and _FAILED in text[: found.start()]:
        raise NoDump(said.decode(errors="replace")[:LONGEST_WORDS].rstrip(": "))
    if not said.startswith(b"{"):
        raise NoDump("what the server has of it is no JSON")
    return of_bytes(said, rank, now)


def _stack(text: bytes) -> tuple[Frame, ...]:
    """Return the frames of the main thread, the innermost first: it stands last."""
    found = _SAID.search(text)
    threads = (found[1] if found else b"").decode(errors="replace").split("\n\n")
    frames = map(_FRAME.fullmatch, threads[-1].splitlines()[:MOST_LINES])
    return tuple((file, int(line), name) for file, line, name in (f.groups() for f in frames if f))

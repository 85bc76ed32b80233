"""What nobody scraped: kept in SQLite from when a server no longer comes, until it is sent.

Each page has the time at which it was seen, and is deleted only once a server has taken it: what is
sent twice, after a crash, is the same values at the same times.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Final, NamedTuple

from whyidle.monitor.core.errors import StorageProblem
from whyidle.monitor.export.collector import BACKFILL, UNSCRAPED, Collector
from whyidle.monitor.export.exposition import Family, valid
from whyidle.monitor.export.remote_write import Refused, Sender, Series

FILE: Final = "unscraped.db"
# As often as a server scrapes by what `monitor fleet init` writes.
EVERY_SECONDS: Final = 15.0
# A server is missed when it has left out this many scrapes in a row; at first it may take a while.
MISSED_SCRAPES: Final = 2.5
SHORTEST_GRACE: Final = 45.0
LONGEST_GRACE: Final = 600.0
# Five minutes of scrapes: a new name is ours soon, and one that somebody says now and then never.
LATEST_NAMES: Final = 20
# Half a day less than what `monitor fleet init` lets a server take.
KEEP_MS: Final = int(6.5 * 24 * 3600 * 1000)
MOST_BYTES: Final = 256 << 20
# Unpacked, a kilobyte is a hundred samples: it should not take the exporter's memory thrice.
PAGES_AT_ONCE, BYTES_AT_ONCE = 16, 128 << 10
# Between tries that fail; and after a server has said that it never wants it.
FIRST_PAUSE, LONGEST_PAUSE, REFUSED_PAUSE = 5.0, 300.0, 3600.0
# Slowly: it has waited, and what the server does besides is more urgent.
BETWEEN: Final = 0.2

_TABLES: Final = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS page (ms INTEGER PRIMARY KEY, content BLOB);
CREATE TABLE IF NOT EXISTS instance (one INTEGER PRIMARY KEY, name TEXT);
"""
_TOO_MANY: Final = """
DELETE FROM page WHERE ms IN (SELECT ms FROM (
    SELECT ms, sum(length(content)) OVER (ORDER BY ms DESC) AS bytes FROM page) WHERE bytes > ?)
"""


class Kept(NamedTuple):
    """One page, packed, and when it was seen."""

    ms: int
    content: bytes


class Scrapes:
    """When a server came last, how often it comes, and by which name it calls us."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()
        self._every = 0.0
        self.last_ms = 0
        self._names: deque[str] = deque(maxlen=LATEST_NAMES)

    def note(self, host: str) -> None:
        """Take in that a server came."""
        now = self._clock()
        if self.last_ms:
            self._every = now - self._last
        self._last, self.last_ms = now, time.time_ns() // 1_000_000
        if name := valid(host):
            self._names.append(name)

    @property
    def instance(self) -> str:
        """The name that was said most often of late: whoever may look can say a wrong one."""
        names = tuple(self._names)
        return max(names, key=names.count, default="")

    @property
    def is_missed(self) -> bool:
        """Tell whether it should have come by now."""
        grace = min(max(SHORTEST_GRACE, MISSED_SCRAPES * self._every), LONGEST_GRACE)
        return self._clock() - self._last > grace


class Unscraped:
    """The file; every failure raises a ``StorageProblem``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(path, timeout=10, check_same_thread=False)
            path.chmod(0o600)
            self._file.executescript(_TABLES)
        except (sqlite3.Error, OSError) as error:
            raise self._problem(error) from None

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def add(self, pages: Sequence[Kept]) -> None:
        """Keep pages; the oldest go where there are too many."""
        with self._transaction() as file:
            file.executemany("INSERT OR IGNORE INTO page VALUES (?, ?)", pages)
            file.execute(_TOO_MANY, (MOST_BYTES,))

    def expire(self, now_ms: int) -> None:
        """Forget what no server would take any more."""
        with self._transaction() as file:
            file.execute("DELETE FROM page WHERE ms < ?", (now_ms - KEEP_MS,))

    def oldest(self, after_ms: int = 0) -> list[Kept]:
        """Return the oldest pages after a moment, as many as one request may have."""
        with self._transaction() as file:
            query = "SELECT ms, content FROM page WHERE ms > ? ORDER BY ms LIMIT ?"
            pages = [Kept(*row) for row in file.execute(query, (after_ms, PAGES_AT_ONCE))]
        bytes_before = accumulate((len(each.content) for each in pages), initial=0)
        fits = takewhile(
            lambda pair: pair[1] < BYTES_AT_ONCE, zip(pages, bytes_before, strict=False)
        )
        return [page for page, _ in fits]

    def drop(self, pages: Iterable[Kept]) -> None:
        """Forget pages that a server has."""
        with self._transaction() as file:
            file.executemany("DELETE FROM page WHERE ms = ?", [(each.ms,) for each in pages])

    def instance(self, now: str) -> str:
        """Return the name by which a server calls us, now or before; keeps a new one."""
        with self._transaction() as file:
            if now:
                file.execute("INSERT OR REPLACE INTO instance VALUES (1, ?)", (now,))
            row = file.execute("SELECT name FROM instance").fetchone()
            return row[0] if row else ""

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._lock, self._file:
                yield self._file
        except sqlite3.Error as error:
            raise self._problem(error) from None

    def _problem(self, error: Exception) -> StorageProblem:
        return StorageProblem(
            f"What is not scraped cannot be kept in {self._path}: {error}.",
            "Name a folder with room: export WHYIDLE_STATE_DIR=/var/lib/whyidle",
        )


class Backfill:
    """Keeps a page now and then while no server comes, and sends what is kept."""

    def __init__(
        self,
        collector: Collector,
        families: Callable[[], Iterable[Family]],
        sender: Sender,
        store: Unscraped,
        labels: Callable[[str], dict[str, str]],
    ) -> None:
        self.scrapes = Scrapes()
        self._collector = collector
        self._families = families
        self._sender = sender
        self._store = store
        # The labels that a server adds to what it scrapes, by the name it calls us.
        self._labels = labels
        # Until it is known whether somebody comes.
        self._recent: deque[Kept] = deque(maxlen=int(LONGEST_GRACE / EVERY_SECONDS) + 2)
        self._pause = FIRST_PAUSE
        self._has_sent = False
        # What was refused up to here waits until all others are sent.
        self._over_ms = 0
        self._closing = threading.Event()

    def start(self) -> None:
        """Keep and send from now on, until closed."""
        for name, step in (("whyidle-keep", self._keep), ("whyidle-send", self._send)):
            threading.Thread(target=step, name=name, daemon=True).start()

    def close(self) -> None:
        """End; what is kept stays."""
        self._closing.set()

    def keep(self) -> None:
        """Look whether a server came, and keep this moment where none did."""
        self._recent.append(Kept(time.time_ns() // 1_000_000, packed(self._families())))
        while self._recent and self._recent[0].ms <= self.scrapes.last_ms:
            self._recent.popleft()
        if self._recent and self.scrapes.is_missed:
            self._store.add(tuple(self._recent))
            self._recent.clear()

    def send(self) -> bool:
        """Send the oldest pages; return whether there were any."""
        self._store.expire(time.time_ns() // 1_000_000)
        pages = self._store.oldest(self._over_ms)
        instance = self._store.instance(self.scrapes.instance)
        # Once without any, too: a URL that is wrong is said before it is needed.
        if pages or not self._has_sent:
            self._sender.send(together(pages, self._labels(instance)))
            self._has_sent = True
            self._store.drop(pages)
        return bool(pages)

    def _keep(self) -> None:
        while not self._closing.wait(EVERY_SECONDS):
            self._collector.attempt(UNSCRAPED, self.keep)

    def _send(self) -> None:
        pause = 0.0
        while not self._closing.wait(pause):
            pause = self.next_pause()

    def next_pause(self) -> float:
        """Send once, and return for how long to wait then. Never raises."""
        try:
            more = self.send()
        except Exception as error:  # noqa: BLE001  said, and tried anew
            self._collector.caught(BACKFILL, error)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
            if not isinstance(error, Refused):
                return self._pause
            refused = self._store.oldest(self._over_ms)
            if not error.is_of_samples or not refused:
                return REFUSED_PAUSE
            # Perhaps these are too old for it, and newer ones are not.
            self._over_ms = refused[-1].ms
            return BETWEEN
        self._pause = FIRST_PAUSE
        if self._over_ms and not more:
            self._over_ms = 0
            return REFUSED_PAUSE
        if not self._over_ms:
            self._collector.caught(BACKFILL, None)
        return BETWEEN if more else EVERY_SECONDS


def packed(families: Iterable[Family]) -> bytes:
    """Return each sample, its name, labels and value, in few bytes."""
    samples = [
        (family.name + suffix, {key: valid(text) for key, text in labels.items() if text}, value)
        for family in families
        for suffix, labels, value in family.samples
    ]
    return zlib.compress(json.dumps(samples).encode())


def together(
    pages: Iterable[Kept], labels: Mapping[str, str]
) -> dict[Series, list[tuple[int, float]]]:
    """Return the samples of each series in order of time, with more labels on each."""
    found: dict[Series, list[tuple[int, float]]] = {}
    for kept in pages:
        for name, own, value in _unpacked(kept.content):
            series = tuple(sorted({**own, **labels, "__name__": name}.items()))
            found.setdefault(series, []).append((kept.ms, value))
    return found


def _unpacked(content: bytes) -> list[tuple[str, dict[str, str], float]]:
    try:
        found: list[tuple[str, dict[str, str], float]] = json.loads(zlib.decompress(content))
    except (zlib.error, ValueError):
        # A damaged page is lost; the others are not.
        return []
    return found

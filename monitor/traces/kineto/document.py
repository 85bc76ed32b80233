"""A file of any length as lists of events: cut between two events, decoded, forgotten.

Nothing counts brackets. Text is cut at a comma between two closing and opening braces; whether that
comma really stands between two events shows when the decoder reads the text before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from whyidle.monitor.traces.kineto.cuts import Fault, boundaries, fault_of, middle
from whyidle.monitor.traces.kineto.header import Header, read_header
from whyidle.monitor.traces.kineto.repair import escape_quotes, looks_unfinished, repair

# Longer than any event, header or tail worth reading.
MOST_EVENT: Final = 16 << 20
MOST_HEADER: Final = 16 << 20
MOST_TAIL: Final = 1 << 20
# How many damaged places are skipped.
MOST_DAMAGED: Final = 500

_CLOSE: Final = ord("]")
_EVENTS_KEY: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
# A key of this name may stand further inside the header.
_MOST_KEYS: Final = 8
_BLANK: Final = b" \t\r\n\0"
_BOM: Final = b"\xef\xbb\xbf"

Piece = bytearray | memoryview


class NoEventsError(Exception):
    """The text has no list of trace events."""


class DamageError(Exception):
    """There are so many damaged places that reading on is pointless."""


class Document:
    """Takes a file block by block; hands each list of events, as JSON text, to ``take``.

    ``take`` decodes the text and raises, as msgspec does, before it keeps anything of it.
    """

    def __init__(self, take: Callable[[Piece], None]) -> None:
        self._take = take
        self._rest = b""
        self._patience = 0  # how much text must be there before it is looked at again
        self._begun = self._bare = self._ended = False
        self._tail = b""
        self.header = Header()
        self.header_lost = False
        self.cut_off = False
        self.tail_lost = False
        self.damaged = self.escaped = 0

    def feed(self, block: bytes) -> None:
        """Take the next bytes of the file."""
        if self._ended:
            self._tail += block[: MOST_TAIL + 1 - len(self._tail)]
            return
        text = bytearray(self._rest)
        text += block
        if not self._begun:
            text = bytearray(self._begin(bytes(text), last=False))
        self._rest = self._take_most(text) if self._begun else bytes(text)

    def finish(self) -> None:
        """Take what remains when the file has ended."""
        if not self._begun:
            self._rest = self._begin(self._rest, last=True)
        if not self._ended:
            self._take_last(bytearray(self._rest))
        self._read_tail()

    # ------------------------------------------------------------------ before the events

    def _begin(self, text: bytes, *, last: bool) -> bytes:
        """Return the text from the bracket that opens the events on, once it has come."""
        start = text.removeprefix(_BOM).lstrip(_BLANK)
        if start[:1] == b"[":
            self._begun = self._bare = True
            return start
        last = last or len(start) > MOST_HEADER
        keys = [match.end() - 1 for match in _EVENTS_KEY.finditer(start)]
        for at in keys[:_MOST_KEYS]:
            if self._read_header(start[:at]):
                return start[at:]
        if last and not keys:
            raise NoEventsError
        if last:
            self._begun = self.header_lost = True
            return start[keys[0] :]
        return text

    def _read_header(self, text: bytes) -> bool:
        # The key is that of the outermost object if an object ends where its value would stand.
        header = read_header(text + b"null}")
        if header is None:
            return False
        self.header, self._begun = header, True
        return True

    # ------------------------------------------------------------------ the events

    def _take_most(self, text: bytearray) -> bytes:
        """Take all events but the last, which may not be all there; return what is left."""
        if len(text) < self._patience:
            return bytes(text)
        self._patience = 0
        cuts = boundaries(text)
        for cut in cuts:
            fault = self._try(text, cut)
            if fault is None:
                return b"[" + text[cut + 1 :]
            if fault.kind == "ended":
                return self._end(bytes(text[self._close(text, fault.at) :]))
            if fault.kind == "damaged":
                break
        else:
            if len(text) <= MOST_EVENT and (not cuts or not looks_unfinished(text)):
                # A long event: to look again for each block would take the square of the time.
                self._patience = 2 * len(text)
                return bytes(text)
        return self._pass_over(text, cuts[0] if cuts else len(text))

    def _take_last(self, text: bytearray) -> None:
        """Take the events of a file's last text: it ends the list, unless it is cut off."""
        fault = self._fault(text)
        if fault is None:
            self._ended = True
            return
        if fault.kind == "ended":
            self._end(bytes(text[self._close(text, fault.at) :]))
            return
        self.cut_off = fault.kind == "unfinished"
        text = text.rstrip(_BLANK).rstrip(b",") + b","
        if text.strip() == b"[,":
            return
        cuts = boundaries(text)
        for cut in (len(text) - 1, *cuts):
            fault = self._try(text, cut)
            if fault is None:
                return
            if fault.kind == "damaged":
                break
        # The beginning of a single event is what is cut off, and no damage.
        if cuts or not self.cut_off:
            self._pass_over(text, len(text) - 1)

    def _close(self, text: bytearray, at: int) -> int:
        """Take the events of a list that ends before this place; return where it does."""
        for before in (at - 1, at):
            bracket = text.rfind(b"]", 0, before)
            if bracket > 0 and self._fault(memoryview(text)[: bracket + 1]) is None:
                return bracket + 1
        self._count_damage()
        return at

    def _end(self, tail: bytes) -> bytes:
        self._ended, self._tail = True, tail[: MOST_TAIL + 1]
        return b""

    def _try(self, text: bytearray, cut: int) -> Fault | None:
        """Take the events before a comma, as if the list ended there."""
        before, text[cut] = text[cut], _CLOSE
        fault = self._fault(memoryview(text)[: cut + 1])
        text[cut] = before
        if fault and fault.kind == "damaged" and fault.at >= cut:
            return Fault("unfinished", cut)
        return fault

    def _fault(self, piece: Piece) -> Fault | None:
        try:
            self._take(piece)
        except (UnicodeDecodeError, RecursionError):
            return Fault("damaged", 0)
        except msgspec.DecodeError as error:
            return fault_of(str(error), len(piece))
        return None

    # ------------------------------------------------------------------ damage

    def _pass_over(self, text: bytearray, end: int) -> bytes:
        """Take what can be read up to ``end``, leave out what cannot; return what is left."""
        escaped, number = escape_quotes(bytes(text[1:end]))
        self.escaped += number
        mended, rest = repair(escaped), bytes(text[end + 1 :])
        tail = self._salvage(mended, 0, len(mended))
        return b"[" + rest if tail is None else self._end(mended[tail:] + b"," + rest)

    def _salvage(self, text: bytes, start: int, end: int) -> int | None:
        """Halve a list of events until what cannot be read stands alone.

        Returns where the text goes on behind the list, if it ends within.
        """
        piece = bytearray(b"[%b]" % text[start:end])
        fault = self._fault(piece)
        if fault is None:
            return None
        if fault.kind == "ended":
            return start + self._close(piece, fault.at) - 1
        cut = middle(text, start, end)
        if cut < 0:
            self._count_damage()
            return None
        found = self._salvage(text, start, cut)
        return self._salvage(text, cut + 1, end) if found is None else found

    def _count_damage(self) -> None:
        self.damaged += 1
        if self.damaged > MOST_DAMAGED:
            raise DamageError

    # ------------------------------------------------------------------ after the events

    def _read_tail(self) -> None:
        """Read the keys that follow the events: newer files have their base time there."""
        tail = self._tail.strip(_BLANK + b",")
        if not self._ended or (self._bare and not tail):
            return
        header = None
        if len(self._tail) <= MOST_TAIL:
            header = read_header(b"{" + tail)
        if header is None:
            self.tail_lost = True
            return
        self.header.update(header)

"""The web configuration file that exporters share: TLS, and users with passwords.

Of YAML it takes what such a file needs: names, below them names with a value each.
"""

from __future__ import annotations

import hmac
import re
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Final

from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.core.installed import to_install

_TLS, _USERS = "tls_server_config", "basic_auth_users"
_CERT, _KEY = "cert_file", "key_file"
_KNOWN: Final[Mapping[str, frozenset[str] | None]] = {_TLS: frozenset({_CERT, _KEY}), _USERS: None}
# An error is one line, whatever is in it.
_EXAMPLE: Final = (
    f"It has '{_TLS}:', below that, indented, '{_CERT}: server.crt' and '{_KEY}: server.key';"
    f" and '{_USERS}:', below that 'alice: $2y$10$...'; each on a line of its own."
)
# The kind, the cost as a power of two, salt and hash.
_HASH: Final = re.compile(r"\$2[aby]\$(?:0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}")
# Compared with when there is no such user, so that the time of an answer names no users.
_NOBODY: Final = "$2b$10$" + "." * 53
MOST_KEPT: Final = 100

Check = Callable[[bytes, bytes], bool]


@dataclass(slots=True)
class WebConfig:
    """What a file asks for; without one nothing."""

    tls: ssl.SSLContext | None = None
    users: Mapping[str, str] = field(default_factory=dict)
    _check: Check | None = None
    # What was right before: bcrypt takes a tenth of a second, and a server asks every few.
    _kept: set[bytes] = field(default_factory=set)
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)

    def lets_in(self, user: str, password: str) -> bool:
        """Tell whether this is a user's password."""
        if not self.users:
            return True
        if self._check is None:
            return False
        stored = self.users.get(user, _NOBODY)
        said = sha256("\0".join((user, password, stored)).encode("utf-8", "replace")).digest()
        if any(hmac.compare_digest(said, kept) for kept in tuple(self._kept)):
            return True
        with self._one_at_a_time:
            # bcrypt knows no more than 72 bytes.
            is_right = self._check(password.encode("utf-8", "replace")[:72], stored.encode())
        if is_right and user in self.users:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept.add(said)
            return True
        return False


def read(path: Path) -> WebConfig:
    """Return what a file says; raises a sentence for whatever cannot be done."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageProblem(
            f"The web configuration {path} cannot be read: {why}.", _EXAMPLE
        ) from None
    parts = _parsed(text, path)
    users = parts.get(_USERS, {})
    for user, stored in users.items():
        if not _HASH.fullmatch(stored):
            raise UsageProblem(
                f"In {path} the password of '{user}' is no bcrypt hash.",
                f"Make one with: htpasswd -nBC 10 {user}",
            )
    return WebConfig(_tls(parts.get(_TLS), path), users, _bcrypt() if users else None)


def _parsed(text: str, path: Path) -> dict[str, dict[str, str]]:
    parts: dict[str, dict[str, str]] = {}
    part = ""
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.split(" #", 1)[0].rstrip()
        if not bare.strip() or bare.lstrip().startswith("#") or bare.strip() == "---":
            continue
        name, colon, value = (word.strip().strip("\"'") for word in bare.partition(":"))
        is_inner = line[0] in " \t"
        where = f"{path}, line {number}"
        if not colon or is_inner == (not value) or (is_inner and not part):
            raise UsageProblem(f"{where}: '{bare.strip()}' is not understood.", _EXAMPLE)
        if not is_inner:
            part = name
            parts[name] = {}
        allowed = _KNOWN.get(part, frozenset())
        if part not in _KNOWN or (is_inner and allowed is not None and name not in allowed):
            what = f"{where}: '{name}' is not something that this exporter does."
            raise UsageProblem(what, f"Leave it out. {_EXAMPLE}")
        if is_inner:
            parts[part][name] = value
    return parts


def _tls(wanted: Mapping[str, str] | None, path: Path) -> ssl.SSLContext | None:
    if wanted is None:
        return None
    if missing := [name for name in (_CERT, _KEY) if name not in wanted]:
        raise UsageProblem(f"In {path} {_TLS} lacks {' and '.join(missing)}.", _EXAMPLE)
    cert, key = (path.parent / wanted[name] for name in (_CERT, _KEY))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key, password="")
    except (OSError, ssl.SSLError) as error:
        raise UsageProblem(
            f"The certificate {cert} with the key {key} cannot be used: {error}.",
            f"Try them: openssl x509 -in {cert} -noout -dates",
        ) from None
    return context


def _bcrypt() -> Check:
    try:
        check: Check = import_module("bcrypt").checkpw
    except ImportError:
        raise UsageProblem(
            "Passwords need the library bcrypt, which is not installed.",
            f"Install it: {to_install('export')}",
        ) from None
    return check

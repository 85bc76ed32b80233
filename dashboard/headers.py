"""What every answer tells the browser: talk to nobody else, and let nobody else look in."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final

# Streamlit's page has styles and a font in it, and gets the script of a component as a blob.
_POLICY: Final = {
    "default-src": "'none'",
    "script-src": "'self' blob:",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "font-src": "'self' data:",
    "connect-src": "'self'",
    "manifest-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
_OTHERS: Final = {
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_INLINE = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def headers(page: str) -> dict[bytes, bytes]:
    """Return them. Of scripts inside a page only those run that Streamlit has put into its own."""
    known = "".join(f" {_hash(script)}" for script in _INLINE.findall(page))
    policy = {**_POLICY, "script-src": _POLICY["script-src"] + known}
    told = "; ".join(f"{what} {where}" for what, where in policy.items())
    every = {"content-security-policy": told, **_OTHERS}
    return {name.encode(): value.encode() for name, value in every.items()}


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"

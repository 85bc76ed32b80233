"""Streamlit's index page as we serve it, and the security headers of every response."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from streamlit import file_util

from whyidle.dashboard import theme

# The path of Plotly's script on our server; nothing is fetched from elsewhere.
PLOTLY: Final = "whyidle/plotly.min.js"

# Streamlit's page has inline styles and a font, and loads component scripts as blobs.
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

_HEAD: Final = "<head>"
_END: Final = "</head>"
_TITLE: Final = "<title>Streamlit</title>"
_ICON: Final = '<link rel="shortcut icon" href="./favicon.png" />'


def page(base: str) -> str:
    """Return the HTML page that hosts all of ours."""
    plain = (Path(file_util.get_static_dir()) / "index.html").read_text(encoding="utf-8")
    root = json.dumps(f"/{base}/" if base else "/")
    # Otherwise a page first asks below its own address, which logs a console error.
    script = f"window.__streamlit = {{BACKEND_BASE_URL: new URL({root}, location.href).href}}"
    found = plain.replace(_HEAD, f"{_HEAD}<script>{script}</script>", 1)
    # The script is large: load it while the page waits for the server.
    early = f'<script async src="{html.escape(json.loads(root))}{PLOTLY}"></script>'
    found = found.replace(_END, f"{early}{_END}", 1)
    mark = base64.b64encode(theme.MARK.encode()).decode()
    icon = f'<link rel="icon" type="image/svg+xml" href="data:image/svg+xml;base64,{mark}">'
    return found.replace(_TITLE, "<title>whyidle</title>").replace(_ICON, icon, 1)


def nowhere(base: str, pages: Mapping[str, str]) -> str:
    """Return what is said at an address of no page; ``pages``: the titles of those there are."""
    root = f"/{base}/" if base else "/"
    links = "".join(
        f'<li><a href="{html.escape(root + path)}">{html.escape(title)}</a></li>'
        for path, title in pages.items()
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>No such page · whyidle</title>
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<style>body{{font:16px/1.5 sans-serif;max-width:36rem;margin:15vh auto;padding:0 1rem}}
svg{{width:2rem;height:2rem}}</style></head>
<body>{theme.MARK}<h1>No such page</h1><p>The dashboard has these:</p><ul>{links}</ul></body></html>
"""


def headers(page: str) -> dict[bytes, bytes]:
    """Return the headers. Only the inline scripts of Streamlit's own page may run."""
    known = "".join(f" {_hash(script)}" for script in _INLINE.findall(page))
    policy = {**_POLICY, "script-src": _POLICY["script-src"] + known}
    joined = "; ".join(f"{what} {where}" for what, where in policy.items())
    every = {"content-security-policy": joined, **_OTHERS}
    return {name.encode(): value.encode() for name, value in every.items()}


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"

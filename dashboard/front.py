"""Streamlit's own page, as we serve it: told where its server is, and what will be needed."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Final

from streamlit import file_util

# Where our server has Plotly's own file; nothing is fetched from elsewhere.
PLOTLY: Final = "whyidle/plotly.min.js"

_HEAD: Final = "<head>"
_END: Final = "</head>"
_TITLE: Final = "<title>Streamlit</title>"


def page(base: str) -> str:
    """Return the page from which all of ours are drawn."""
    plain = (Path(file_util.get_static_dir()) / "index.html").read_text(encoding="utf-8")
    root = json.dumps(f"/{base}/" if base else "/")
    # Without it a page asks below its own address first, which its console calls an error.
    told = f"window.__streamlit = {{BACKEND_BASE_URL: new URL({root}, location.href).href}}"
    found = plain.replace(_HEAD, f"{_HEAD}<script>{told}</script>", 1)
    # It is large, and read while the page waits for the server: the first chart need not wait.
    early = f'<script async src="{html.escape(json.loads(root))}{PLOTLY}"></script>'
    found = found.replace(_END, f"{early}{_END}", 1)
    return found.replace(_TITLE, "<title>whyidle</title>")

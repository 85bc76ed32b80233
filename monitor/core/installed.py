"""How whyidle was installed, and what to type to have one of its extras, too.

An index knows it only once it is published: an installation from a folder, a wheel or a repository
needs another line. Every message that names an extra asks here.
"""

from __future__ import annotations

import shlex
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

NAME: Final = "whyidle"


def to_install(extra: str) -> str:
    """Return the command that installs an extra from where whyidle itself came."""
    # Where uvx or pipx runs it, there is no pip, and another Python's would install it elsewhere.
    has_pip = find_spec("pip") is not None
    pip = "pip install" if has_pip else f"uv pip install --python {shlex.quote(sys.executable)}"
    return f"{pip} {_requirement(extra)}"


def _requirement(extra: str) -> str:
    origin = _origin()
    url = str(origin.get("url", ""))
    folder = unquote(urlsplit(url).path)
    named = f"{NAME}[{extra}]"
    if url.startswith("file:") and not Path(folder).exists():
        # A folder in which it was only built.
        return shlex.quote(named)
    match origin:
        case {"dir_info": {"editable": True}}:
            return f"-e {shlex.quote(f'{folder}[{extra}]')}"
        case {"dir_info": _}:
            return shlex.quote(f"{folder}[{extra}]")
        case {"vcs_info": {"vcs": vcs, "commit_id": commit}}:
            return shlex.quote(f"{named} @ {vcs}+{url}@{commit}")
        case {"archive_info": _}:
            return shlex.quote(f"{named} @ {url}")
        case _:
            return shlex.quote(named)


def _origin() -> dict[str, Any]:
    """Return what pip noted of where it came from (PEP 610); nothing: from an index."""
    try:
        noted = metadata.distribution(NAME).read_text("direct_url.json")
        return msgspec.json.decode(noted or "{}", type=dict[str, Any])
    except (metadata.PackageNotFoundError, OSError, msgspec.DecodeError):
        return {}

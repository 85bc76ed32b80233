"""Pages drawn without a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streamlit.testing.v1 import AppTest

from tests.dashboard.apps import SECONDS, _script
from whyidle.dashboard import settings


def drawn(
    page: str, store: Path, run: str = "last", *, is_sample: bool = False, **query: str
) -> AppTest:
    """Draw a page of a store, as a link with these choices opens it."""
    settings.use(settings.Settings(store=store, run=run, is_sample=is_sample))
    app = AppTest.from_function(_script, args=(page,), default_timeout=SECONDS)
    for name, value in query.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    return app


def text(app: AppTest) -> str:
    """Return all that stands on the page: our markup as it is, code and words."""
    return "\n".join(_texts(app.main))


def _texts(block: Any) -> Iterator[str]:
    for child in block.children.values():
        if hasattr(child, "children"):
            yield str(getattr(child, "label", ""))
            yield from _texts(child)
        else:
            yield str(getattr(child.proto, "body", "") or getattr(child, "value", ""))

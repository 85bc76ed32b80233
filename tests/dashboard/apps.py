"""A page as Streamlit runs it, without a browser: what it says, and that nothing of it fails."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamlit.testing.v1 import AppTest

from whyidle.dashboard import settings

SECONDS = 30.0
MARKUP = re.compile(r"<style>.*?</style>|<[^>]+>", re.DOTALL)


def _script(name: str) -> None:
    # It runs as a script of its own, which knows nothing of this file.
    import streamlit as st  # noqa: PLC0415

    from whyidle.dashboard import frame  # noqa: PLC0415
    from whyidle.dashboard.pages import PAGES  # noqa: PLC0415

    shown = frame.chosen(st.container())
    if shown is not None:
        frame.page(PAGES[name][1], shown)


@dataclass
class App:
    """One page over one store."""

    test: AppTest

    def again(self) -> App:
        """Run the page once more, as when it is redrawn."""
        self.test.run()
        return self

    @property
    def words(self) -> str:
        """All that it says, without markup."""
        assert not self.test.exception, self.test.exception[0].message
        written = "\n".join([self.markup, *self._titles()])
        return html.unescape(" ".join(MARKUP.sub(" ", written).split()))

    @property
    def markup(self) -> str:
        """All that it says, as the browser gets it."""
        written = [each.proto.body for each in self.test.get("html")]
        return "\n".join([*written, *(b["html"] for b in self._blocks() if "html" in b)])

    @property
    def charts(self) -> list[str]:
        """The names of its charts."""
        return [block["name"] for block in self._blocks() if "figure" in block]

    def _titles(self) -> Iterator[str]:
        """Yield what charts over one axis say above each of them."""
        for block in self._blocks():
            layout = block.get("figure", {}).get("layout", {})
            yield from (each["text"] for each in layout.get("annotations", ()))

    def _blocks(self) -> Iterator[dict[str, Any]]:
        for each in self.test.get("bidi_component"):
            yield from _flat(json.loads(each.proto.json or "{}").get("blocks", ()))


def _flat(blocks: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for block in blocks:
        yield block
        for column in block.get("columns", ()):
            yield from _flat(column)


def app(store: Path, page: str = "now", *, is_sample: bool = False, **query: str) -> App:
    """Open a page by its link."""
    settings.use(settings.Settings(store=store, is_sample=is_sample))
    test = AppTest.from_function(_script, args=(page,), default_timeout=SECONDS)
    for name, value in query.items():
        test.query_params[name] = value
    test.run()
    return App(test)

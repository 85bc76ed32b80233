"""The page that Streamlit runs: the frame, and in it the page that was asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from whyidle.dashboard import frame, parts
from whyidle.dashboard.pages import PAGES

NAME = "whyidle"


def _show(draw: Callable[[frame.Shown], None], title: str) -> None:
    st.set_page_config(page_title=f"{title} · {NAME}", layout="wide")
    parts.write(parts.STYLE)
    frame.show(draw)


def main() -> None:
    """Draw the page that the address names."""
    pages = [
        st.Page(partial(_show, draw, title), title=title, url_path=path, default=i == 0)
        for i, (path, (title, draw)) in enumerate(PAGES.items())
    ]
    st.navigation(pages, position="top").run()


main()

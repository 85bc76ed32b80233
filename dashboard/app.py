"""The page that Streamlit runs: the frame, and in it the page that was asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from whyidle.dashboard import frame, markup, run_picker, widgets
from whyidle.dashboard.pages import PAGES

NAME = "whyidle"


def main() -> None:
    """Draw the choices that all pages share, and the page that the address names."""
    shown: frame.Shown | None = None

    def draw_it(draw: Callable[[frame.Shown], None]) -> None:
        if shown is not None:
            frame.page(draw, shown)

    pages = [
        st.Page(partial(draw_it, draw), title=title, url_path=path, default=i == 0)
        for i, (path, (title, draw)) in enumerate(PAGES.items())
    ]
    page = st.navigation(pages, position="hidden")
    st.set_page_config(page_title=f"{page.title} · {NAME}", layout="wide")
    widgets.write(markup.STYLE)
    # Outside of the page: so the choices, and their part of the address, stay from page to page.
    with st.container(horizontal=True, key="pages"):
        ways = [st.empty() for _ in pages]
    shown = frame.chosen()
    # What is bound to a choice goes along by itself.
    run = None if shown is None else {run_picker.NAME: str(shown.run.id)}
    for way, each in zip(ways, pages, strict=True):
        way.page_link(each, query_params=run)
    page.run()


main()

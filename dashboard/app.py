"""The script that Streamlit runs: the frame, and inside it the requested page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from whyidle.dashboard import frame, markup, run_picker, widgets
from whyidle.dashboard.pages import PAGES, fleet
from whyidle.dashboard.views.fleet import is_configured

NAME = "whyidle"


def main() -> None:
    """Draw the controls that all pages share, and the page in the address."""
    shown: frame.PageState | None = None

    def draw_it(draw: Callable[[frame.PageState], None]) -> None:
        if shown is not None:
            frame.page(draw, shown)

    pages = [
        st.Page(partial(draw_it, draw), title=title, url_path=path, default=i == 0)
        for i, (path, (title, draw)) in enumerate(PAGES.items())
    ]
    if is_configured():
        alone = partial(frame.alone, fleet.page)
        pages.append(st.Page(alone, title=fleet.TITLE, url_path=fleet.PATH))
    page = st.navigation(pages, position="hidden")
    st.set_page_config(page_title=f"{page.title} · {NAME}", layout="wide")
    widgets.write(markup.STYLE)
    top = st.container(key="top")
    # Outside the page, so that the controls and their query parameters persist across pages.
    with st.container(horizontal=True, key="pages"):
        links = [st.empty() for _ in pages]
    # A fleet is of no run.
    shown = frame.chosen(top) if page.url_path != fleet.PATH else None
    # Parameters that are bound to a control are passed on automatically.
    run = None if shown is None else {run_picker.NAME: str(shown.run.id)}
    for link, each in zip(links, pages, strict=True):
        link.page_link(each, query_params=run)
    page.run()


main()

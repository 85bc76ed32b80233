"""The script that Streamlit runs: the frame, and inside it the requested page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from whyidle.dashboard import frame, markup, run_picker, widgets
from whyidle.dashboard.blocks import Html
from whyidle.dashboard.pages import PAGES, home, of_no_run

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
    others = of_no_run()
    pages += [
        st.Page(partial(frame.alone, draw), title=title, url_path=path)
        for path, (title, draw) in others.items()
    ]
    page = st.navigation(pages, position="hidden")
    st.set_page_config(page_title=f"{page.title} · {NAME}", layout="wide")
    widgets.write(markup.STYLE)
    top = st.container(key="top")
    # Outside the page, so that the controls and their query parameters persist across pages.
    with st.container(horizontal=True, key="pages"):
        links = [st.empty() for _ in pages]
    shown = frame.chosen(top) if page.url_path not in others else None
    if shown is None:
        with top:
            widgets.board("brand", [Html(markup.brand())])
    # Parameters that are bound to a control are passed on automatically.
    run = None if shown is None else {run_picker.NAME: str(shown.run.id)}
    for link, each in zip(links, pages, strict=True):
        link.page_link(each, query_params=run)
    page.run()
    if shown is None and page.url_path not in others:
        # Nothing is recorded, or the run is gone: what there is instead.
        frame.alone(home.page)


main()

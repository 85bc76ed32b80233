"""What pages are made of, drawn one after the other. ``board`` draws many pieces as one."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from whyidle.dashboard import live_plotly, markup, settings, theme
from whyidle.dashboard.blocks import Block, Chart
from whyidle.dashboard.figures.base import Figure
from whyidle.monitor.core.contracts.trace import AccountJson


def write(html: str) -> None:
    """Write our own markup; any other text in it went through ``safe``."""
    if html:
        st.html(html)


def board(key: str, blocks: Sequence[Block]) -> None:
    """Draw many pieces as one element, since each element costs at each refresh."""
    live_plotly.board(blocks, key, base=settings.current().base)


def chart(figure: Figure, key: str, height: int = theme.CHART_HEIGHT) -> None:
    """Draw one live chart."""
    board(key, [Chart(key, figure, height)])


def title(words: str, note: str = "") -> None:
    """Write the title of a chart."""
    write(markup.title(words, note))


def note(words: str) -> None:
    """Write a small, dim line."""
    write(markup.note(words))


def budget(words: str, who: str, account: AccountJson) -> None:
    """Write an account as a bar."""
    write(markup.budget(words, who, account))


def unknown(what: str, why: str, then: str = "") -> None:
    """Show what is unknown, why, and what to do about it."""
    write(markup.unknown(what, why, then))

"""Pieces of pages as markup. Text from a job must go through ``safe``."""

from __future__ import annotations

import html
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlencode

from whyidle.dashboard import settings, theme
from whyidle.dashboard.figures.account import LEAST_SHARE, LEAST_WRITTEN
from whyidle.monitor.core.contracts.trace import AccountJson
from whyidle.monitor.core.slices import LOOKS, Slice
from whyidle.monitor.render import numbers
from whyidle.monitor.render.escape import printable

STYLE: Final = """
<style>
.stApp [data-testid="stMainBlockContainer"] { padding-top: 4.2rem; max-width: 1500px; }
.stApp [data-testid="stMainBlockContainer"] [data-testid="stVerticalBlock"] { gap: 0.6rem; }
/* A page that refreshes all the time needs no sign of it, and no fading, which would make
   the browser repaint everything at each frame. */
[data-testid="stStatusWidget"] { display: none; }
.stApp [data-stale] { opacity: 1 !important; transition: none !important; }
.w-head { font-size: 0.82rem; opacity: 0.72; margin: 0 0 2px 0; letter-spacing: 0.01em; }
.w-title { font-size: 0.95rem; font-weight: 600; margin: 0 0 1px 0; }
.w-note { font-size: 0.82rem; opacity: 0.72; margin: 0; overflow-wrap: anywhere; }
.w-big { font-size: 1.6rem; font-weight: 600; line-height: 1.2;
  font-variant-numeric: tabular-nums; }
.w-tiles { display: grid; gap: 14px 24px;
  grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); }
.w-sub { font-size: 0.82rem; opacity: 0.7; overflow-wrap: anywhere; }
.w-unknown { font-size: 0.95rem; opacity: 0.75;
  border: 1px dashed color-mix(in srgb, currentColor 35%, transparent);
  border-radius: 6px; padding: 14px 16px; }
.w-verdict { font-size: 1.2rem; margin: 0 0 4px 0; }
.w-chip { display: inline-block; border-radius: 4px; padding: 0 7px; font-size: 0.82rem;
  font-weight: 600; color: #fff; margin-right: 8px; vertical-align: 1px; }
.w-mono { font-family: var(--st-code-font, monospace); font-size: 0.82rem; }
.w-part { font-size: 1.2rem; font-weight: 600; margin: 14px 0 2px 0; padding: 0; }
.w-grid { border-collapse: collapse; width: 100%; font-size: 0.82rem;
  font-variant-numeric: tabular-nums; }
.w-grid td, .w-grid th { text-align: left;
  border-bottom: 1px solid color-mix(in srgb, currentColor 18%, transparent);
  padding: 3px 12px 3px 0; font-weight: 400; vertical-align: top; overflow-wrap: anywhere; }
.w-grid th { font-size: 0.82rem; opacity: 0.7; overflow-wrap: normal; }
.w-grid .n { text-align: right; white-space: nowrap; }
.w-hours { display: flex; height: 11px; margin-top: 4px; }
.w-hours i { display: block; height: 100%; }
.w-link { white-space: nowrap; color: inherit !important; }
.w-grid .w-when { white-space: nowrap; opacity: 0.7; width: 1%; padding-right: 18px; }
.w-key { font-size: 0.82rem; margin-right: 14px; white-space: nowrap; }
.w-key i { display: inline-block; width: 18px; height: 3px; margin-right: 6px;
  vertical-align: 3px; }
.w-key .w-square { height: 11px; width: 11px; vertical-align: -1px; }
.w-budget { display: flex; height: 46px; margin: 6px 0 8px 0; overflow: hidden;
  border-radius: 3px; }
.w-budget i { font-style: normal; font-size: 0.82rem; min-width: 0;
  display: flex; align-items: center; justify-content: center; }
.w-budget span { overflow: hidden; white-space: nowrap; text-overflow: ellipsis;
  padding: 0 6px; }
.w-board, .w-cell, .w-stack { display: flex; flex-direction: column; gap: 0.6rem; min-width: 0; }
.w-board > :empty:not([data-whyidle]), .w-cell > :empty:not([data-whyidle]) { display: none; }
.w-columns { display: grid; gap: 0.6rem 1rem; }
@media (max-width: 640px) { .w-columns { grid-template-columns: minmax(0, 1fr) !important; } }
.w-alarm { font-size: 0.82rem; font-weight: 600; border-left: 3px solid;
  padding: 2px 8px; margin: 0 0 6px 0; }
.w-top { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 14px; }
.w-brand { font-weight: 700; letter-spacing: 0.01em; color: inherit !important;
  text-decoration: none !important; margin-right: 6px; }
.w-brand svg { height: 1em; width: 1em; vertical-align: -0.12em; margin-right: 6px; }
.w-job { font-size: 0.95rem; overflow-wrap: anywhere; }
.w-state { font-size: 0.82rem; border: 1px solid; border-radius: 9px; padding: 0 8px;
  opacity: 0.8; }
.w-live::before { content: "● "; }
.w-health { font-size: 0.82rem; position: relative; margin-left: auto; }
.w-health summary { cursor: pointer; list-style: none; }
.w-lamp { display: inline-block; width: 9px; height: 9px; border-radius: 50%; margin-right: 6px; }
.w-well { background: color-mix(in srgb, currentColor 45%, transparent); }
.w-amber { background: #D98200; box-shadow: 0 0 0 3px #D9820044; }
.w-panel { position: absolute; right: 0; top: 1.6rem; z-index: 50; width: min(330px, 86vw);
  padding: 10px 12px; border-radius: 6px; background: var(--st-background-color, Canvas);
  border: 1px solid color-mix(in srgb, currentColor 25%, transparent); }
.w-answer { display: grid; grid-template-columns: minmax(0, 5fr) minmax(230px, 2fr);
  gap: 10px 28px; margin: 4px 0 6px 0; }
.w-cause { font-size: 1.6rem; font-weight: 600; line-height: 1.25; margin: 2px 0 6px 0; }
.w-source { display: block; font-size: 0.95rem; margin-top: 6px; padding: 5px 10px;
  border-radius: 4px;  overflow-x: auto; white-space: pre; color: inherit;
  background: color-mix(in srgb, currentColor 8%, transparent); }
.w-gain { border-left: 3px solid color-mix(in srgb, currentColor 25%, transparent);
  padding-left: 18px; }
.w-gain p { margin: 4px 0 8px 0; }
.w-button { display: inline-block; border: 1px solid; border-radius: 6px; padding: 2px 12px;
  font-weight: 600; }
.w-button a { text-decoration: none !important; }
.w-risk { margin: 2px 0; }
@media (max-width: 640px) { .w-answer { grid-template-columns: minmax(0, 1fr); }
  .w-gain { padding-left: 10px; } .w-health { margin-left: 0; }
  .w-cause { font-size: 1.2rem; } }
.w-row { display: flex; justify-content: space-between; gap: 10px; font-size: 0.82rem;
  font-variant-numeric: tabular-nums; }
.w-row span:first-child { opacity: 0.7; }
</style>
"""


class Markup(str):
    """Markup of ours for a cell; any other text in it went through ``safe``."""

    __slots__ = ()


def safe(text: object) -> str:
    """Return text from a job with control characters and markup escaped."""
    return html.escape(printable(str(text)), quote=True)


def stack(*pieces: str) -> str:
    """Return pieces stacked as one element, since each element of a page costs."""
    inner = "".join(f"<div>{piece}</div>" for piece in pieces if piece)
    return f'<div class="w-stack">{inner}</div>'


def title(words: str, note: str = "") -> str:
    """Return the title of a chart."""
    quiet = f'<p class="w-note">{safe(note)}</p>' if note else ""
    return f'<p class="w-title">{safe(words)}</p>{quiet}'


def heading(words: str) -> str:
    """Return the heading of a section."""
    return f'<h3 class="w-part">{safe(words)}</h3>'


def note(words: str) -> str:
    """Return a small, dim line."""
    return f'<p class="w-note">{safe(words)}</p>'


def unknown(what: str, why: str, then: str = "") -> str:
    """Return a box that says what is unknown, why, and what to do about it."""
    then = f'<br><span class="w-mono">{safe(then)}</span>' if then else ""
    return f'<div class="w-unknown"><b>{safe(what)}</b>: {safe(why)}{then}</div>'


def brand() -> str:
    """Return the name and its mark, which lead home."""
    base = settings.current().base
    where = safe(f"/{base}/runs" if base else "/runs")
    return f'<a class="w-brand" href="{where}" target="_self">{theme.MARK}whyidle</a>'


def facts(name: str, words: str) -> str:
    """Return what something is, and what is known of it below."""
    return f'<div class="w-job"><b>{safe(name)}</b></div><div class="w-sub">{safe(words)}</div>'


def alarm(words: str) -> str:
    """Return a line that must be seen first."""
    return f'<div class="w-alarm" style="border-color:{theme.ALARM}">{safe(words)}</div>'


def chip(severity: str) -> str:
    """Return a severity badge."""
    colour = theme.SEVERITIES.get(severity, theme.GREY)
    return f'<span class="w-chip" style="background:{colour}">{safe(severity)}</span>'


def link(page: str, words: str, **query: object) -> str:
    """Return a link to another page of the dashboard."""
    base = settings.current().base
    where = f"{f'/{base}' if base else ''}/{page}?{urlencode(query)}"
    return f'<a class="w-link" href="{safe(where)}" target="_self">{safe(words)} →</a>'


def outside(url: str, words: str) -> Markup:
    """Return a link to another server, which learns nothing of where it was clicked."""
    return Markup(
        f'<a class="w-link" href="{safe(url)}" target="_blank" rel="noopener noreferrer">'
        f"{safe(words)} ↗</a>"
    )


# A part below this has no room for its name.
LEAST_NAMED: Final = 0.17


class Tile(NamedTuple):
    """One number; if it is unknown, the note says why."""

    name: str
    value: str | None
    note: str = ""


def tiles(shown: Sequence[Tile]) -> str:
    """Return tiles side by side."""
    return f'<div class="w-tiles">{"".join(_tile(each) for each in shown)}</div>'


def _tile(tile: Tile) -> str:
    shown = safe(tile.value) if tile.value is not None else numbers.DASH
    return (
        f'<div><div class="w-head">{safe(tile.name)}</div><div class="w-big">{shown}</div>'
        f'<div class="w-sub">{safe(tile.note)}</div></div>'
    )


def legend(colours: Mapping[str, str]) -> str:
    """Return one legend for several charts."""
    entries = "".join(
        f'<span class="w-key"><i style="background:{colour}"></i>{safe(words)}</span>'
        for words, colour in colours.items()
    )
    return f"<div>{entries}</div>"


class Part(NamedTuple):
    """A part of a bar, by its share of the whole."""

    words: str
    meaning: str
    colour: str
    share: float


def budget(words: str, who: str, account: AccountJson) -> str:
    """Return an account as a bar."""
    total = sum(account["slices"].values())
    shares = {part: account["slices"].get(part, 0) / total for part in Slice} if total else {}
    return bar(words, who, [
        Part(LOOKS[part].words, LOOKS[part].meaning, theme.CAUSES[part], share)
        for part, share in shares.items()
    ])  # fmt: skip


def bar(words: str, who: str, parts: Sequence[Part]) -> str:
    """Return a bar of plain elements, which cost the browser next to nothing.

    A part says its name where it has room; the others follow below.
    """
    shown = [part for part in parts if part.share >= LEAST_SHARE]
    drawn = "".join(
        f'<i style="flex:{part.share:.5f};background:{part.colour};color:{theme.ink(part.colour)}"'
        f' title="{safe(f"{part.words}: {part.share:.1%}; {part.meaning}")}">'
        f"<span>{_inside(part)}</span></i>"
        for part in shown
    )
    keys = "".join(
        f'<span class="w-key"><i class="w-square" style="background:{part.colour}"></i>'
        f"{safe(part.words)} {numbers.show(part.share, 'ratio')}</span>"
        for part in shown
        if part.share < LEAST_NAMED
    )
    return f'{title(words, who)}<div class="w-budget">{drawn}</div><div>{keys}</div>'


def _inside(part: Part) -> str:
    share = numbers.show(part.share, "ratio")
    if part.share >= LEAST_NAMED:
        return f"{safe(part.words)} {share}"
    return share if part.share >= LEAST_WRITTEN else ""


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Return a table; columns in ``right`` hold numbers and are aligned right."""

    def row(cells: Sequence[str], tag: str) -> str:
        shown = (
            f"<{tag}{' class=n' if place in right else ''}>{_cell(cell)}</{tag}>"
            for place, cell in enumerate(cells)
        )
        return f"<tr>{''.join(shown)}</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return f'<table class="w-grid">{row(head, "th")}{body}</table>'


def _cell(cell: str) -> str:
    return cell if isinstance(cell, Markup) else safe(cell)

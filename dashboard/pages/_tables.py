"""Tables, code style, and the colours of better and worse, for the pages Fix and Compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from whyidle.dashboard import theme
from whyidle.dashboard.markup import safe
from whyidle.dashboard.views.comparison import Better, Change
from whyidle.dashboard.views.source import Code
from whyidle.dashboard.widgets import write

# A change is never shown by colour alone.
COLOURS: Final[dict[Better, str]] = {"better": theme.BETTER, "worse": theme.WORSE}
SIGNS: Final[dict[Better, str]] = {"better": "▼ better", "worse": "▲ worse"}
# A longer text in a column of numbers is set as text.
LONGEST: Final = 20
_LINE: Final = "1px solid color-mix(in srgb, currentColor 18%, transparent)"
STYLE: Final = f"""
<style>
.w-cost {{ display: flex; height: 12px; border-radius: 3px; overflow: hidden; margin: 6px 0 3px 0;
  background: color-mix(in srgb, {theme.GREY} 30%, transparent); }}
.w-cost i {{ display: block; height: 100%; }}
.w-table {{ border-collapse: collapse; width: 100%; font-size: 0.86rem;
  font-variant-numeric: tabular-nums; }}
.w-table td, .w-table th {{ border-bottom: {_LINE}; text-align: left;
  padding: 3px 14px 3px 0; vertical-align: top; font-weight: 400; overflow-wrap: break-word; }}
.w-scroll {{ overflow-x: auto; }}
.w-table th {{ font-size: 0.78rem; opacity: 0.7; }}
.w-table .l {{ opacity: 0.7; white-space: nowrap; width: 1%; }}
.w-table .k {{ white-space: nowrap; width: 1%; }}
.w-table .n {{ text-align: right; white-space: nowrap; }}
.w-code {{ font-family: monospace; font-size: 0.82rem; line-height: 1.45;
  overflow-x: auto; border: {_LINE}; border-radius: 6px;
  padding: 8px 0; margin: 0; background: color-mix(in srgb, currentColor 4%, transparent); }}
.w-code div {{ white-space: pre; padding: 0 12px; min-width: max-content; }}
.w-code b {{ font-weight: 400; opacity: 0.5; margin-right: 14px; }}
.w-code .here {{ background: color-mix(in srgb, currentColor 12%, transparent);
  box-shadow: inset 3px 0 0 currentColor; }}
</style>
"""


def table(
    rows: Sequence[Sequence[str]], numbers: Sequence[int] = (), labels: Sequence[int] = ()
) -> None:
    """Write rows of text; some columns hold numbers, some are labels."""
    classes = {**dict.fromkeys(numbers, " class=n"), **dict.fromkeys(labels, " class=l")}
    body = ""
    for row in rows:
        # Long text in a column of numbers is aligned as text.
        kinds = [classes.get(i, "") if len(text) <= LONGEST else "" for i, text in enumerate(row)]
        cells = (f"<td{kind}>{safe(text)}</td>" for kind, text in zip(kinds, row, strict=True))
        body += f"<tr>{''.join(cells)}</tr>"
    framed(body)


def framed(rows: str) -> None:
    """Write the rows of a table, which scrolls sideways if it is too wide."""
    write(f'<div class="w-scroll"><table class="w-table">{rows}</table></div>')


def changes(rows: Sequence[Change], name: str) -> None:
    """Write the figures of both sides, and the change."""
    body = "".join(
        f"<tr><td>{safe(row.name)}</td><td class=n>{safe(row.a)}</td><td class=n>{safe(row.b)}</td>"
        f"<td class=n>{_coloured(row)}</td></tr>"
        for row in rows
    )
    head = (
        f"<tr><th>{safe(name)}</th><th class=n>A</th><th class=n>B</th><th class=n>change</th></tr>"
    )
    framed(head + body)


def _coloured(row: Change) -> str:
    colour = COLOURS.get(row.is_)
    if colour is None:
        return safe(row.change)
    ink = f"color-mix(in srgb,{colour} 70%,currentColor)"
    return f'<span style="color:{ink}">{safe(row.change)} {SIGNS[row.is_]}</span>'


def code(code: Code) -> str:
    """Return code around a line, which stands out, and what speaks against it."""
    rows = []
    for i, text in enumerate(code.lines):
        number = code.first + i
        here = ' class="here"' if number == code.line else ""
        rows.append(f"<div{here}><b>{number:>4}</b>{safe(text.expandtabs())} </div>")
    caveats = "".join(f'<p class="w-note">Caution: {safe(each)}.</p>' for each in code.caveats)
    return f'<div class="w-code">{"".join(rows)}</div>{caveats}'

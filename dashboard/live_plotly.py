"""A chart that keeps its zoom while its data moves: ``Plotly.react`` on an element that stays.

Streamlit's own chart is made anew whenever its figure changes, and forgets what the reader did.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import streamlit as st

# Where our server has Plotly's own file; nothing is fetched from elsewhere.
SCRIPT: Final = "whyidle/plotly.min.js"

_HTML: Final = """
<p class="w-title"></p><p class="w-note"></p><div class="whyidle-chart"></div><p class="w-note"></p>
"""
_JS: Final = """
const loading = {};
function plotly(source) {
  if (window.Plotly) return Promise.resolve(window.Plotly);
  loading[source] ||= new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = source;
    script.onload = () => done(window.Plotly);
    script.onerror = () => failed(new Error("plotly.min.js could not be loaded"));
    document.head.appendChild(script);
  });
  return loading[source];
}

// Charts have the colours of the page: light or dark, whichever it is just now.
function themed(layout, element) {
  const style = getComputedStyle(element);
  const of = (name, other) => style.getPropertyValue(name).trim() || other;
  const text = of("--st-text-color", "#222"), line = of("--st-border-color", "#ddd");
  const back = of("--st-background-color", "#fff");
  const themed = {...layout, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: {color: text, family: of("--st-font", "sans-serif"), size: 12, ...(layout.font || {})},
    hoverlabel: {bgcolor: back, bordercolor: line, font: {color: text}}};
  for (const name of Object.keys(layout)) {
    if (/^[xy]axis\\d*$/.test(name)) {
      themed[name] = {gridcolor: line, linecolor: line, zerolinecolor: line, ...layout[name]};
    }
  }
  return themed;
}

// What the reader zoomed to stays, though the span of the data moves on underneath.
function noteZoom(chart, zoom, change) {
  for (const [name, value] of Object.entries(change)) {
    const [axis, what] = name.split(".");
    if (!/^[xy]axis\\d*$/.test(axis) || !what) continue;
    if (what.startsWith("range")) zoom[axis] = [...chart.layout[axis].range];
    if (what === "autorange" && value) delete zoom[axis];
  }
}

function zoomed(layout, state) {
  // Another span, or another run, is not what was zoomed into.
  if (state.revision !== layout.uirevision) state.zoom = {};
  state.revision = layout.uirevision;
  for (const [axis, range] of Object.entries(state.zoom)) {
    layout[axis] = {...layout[axis], range, autorange: false};
  }
  return layout;
}

function listen(chart, state) {
  chart.on("plotly_relayout", (change) => {
    if (!state.data.asks) { noteZoom(chart, state.zoom, change); return; }
    // It shows as much as there is room for: what the reader zooms to is drawn anew.
    const range = ["xaxis.range[0]", "xaxis.range[1]"].map((name) => change[name]);
    if (range.every((value) => typeof value === "number")) state.tell("zoomed", range);
  });
  chart.on("plotly_doubleclick", () => {
    if (state.data.asks) { state.tell("zoomed", []); return; }
    state.zoom = {};
    draw(chart, state);
  });
  chart.on("plotly_click", (event) => {
    const point = event.points[0];
    state.tell("clicked", {curve: point.curveNumber, x: point.x, y: point.y,
                           data: point.customdata ?? null});
  });
}

async function draw(chart, state) {
  if (state.gone) return;
  try {
    const {figure} = state.data;
    await window.Plotly.react(chart, figure.data, zoomed(themed(figure.layout, chart), state), {
      responsive: true, displaylogo: false, displayModeBar: false, doubleClick: false});
    chart.dataset.drawn = String(Number(chart.dataset.drawn || 0) + 1);
    if (!state.listens) listen(chart, state);
    state.listens = true;
  } catch (error) {
    chart.textContent = error.message;
  }
}

// The figures of one refresh come within moments of each other: all charts are drawn at once, for
// the browser paints the page anew after each.
const TOGETHER_MS = 60;
const charts = window.whyidleCharts ||= {waiting: new Map(), timer: null};
function soon(chart, state) {
  charts.waiting.set(chart, state);
  charts.timer ||= setTimeout(async () => {
    charts.timer = null;
    const waiting = [...charts.waiting];
    charts.waiting.clear();
    try {
      await plotly(state.data.script);
    } catch (error) {
      for (const [each] of waiting) each.textContent = error.message;
      return;
    }
    for (const [each, its] of waiting) draw(each, its);
  }, TOGETHER_MS);
}

// Called for each new figure, and when the theme changes; what is to be once for a chart lies with
// its element.
export default function ({parentElement, data, setTriggerValue}) {
  const chart = parentElement.querySelector(".whyidle-chart");
  chart.style.height = data.height + "px";
  // The words around it come with it: each element of the page costs at each refresh.
  [...parentElement.querySelectorAll("p")].forEach((element, place) => {
    element.textContent = data.words[place] || "";
    element.hidden = !data.words[place];
  });
  chart.dataset.whyidle = data.name;
  const state = chart.whyidle ||= {zoom: {}};
  state.data = data;
  state.tell = setTriggerValue;
  soon(chart, state);
  return () => {
    state.gone = true;
    delete chart.whyidle;
    if (window.Plotly) window.Plotly.purge(chart);
  };
}
"""

_component = st.components.v2.component(
    "whyidle_live_plotly", html=_HTML, js=_JS, isolate_styles=False
)


def chart(  # noqa: PLR0913  what stands around it, by name
    figure: Mapping[str, Any],
    key: str,
    *,
    height: int,
    base: str = "",
    words: Words = ("", "", ""),
    clicked: Callable[[], None] | None = None,
) -> Mapping[str, Any] | None:
    """Draw a figure; the same key is the same chart. Returns the point that was just clicked."""
    data = {**_data(figure, key, height, base), "words": words}
    told = _component(data=data, key=key, on_clicked_change=clicked or _nothing)
    point = told.get("clicked")
    return point if isinstance(point, dict) else None


# Its title, a quiet line below that, and one below the chart; shown as the text that they are.
Words = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the reader did to a chart just now."""

    clicked: Mapping[str, Any] | None = None
    # From where to where on the axis; nothing of both: all that there is.
    zoomed: tuple[float, float] | tuple[()] | None = None


def lens(figure: Mapping[str, Any], key: str, *, height: int, base: str = "") -> Asked:
    """Draw a figure that is drawn anew for what the reader zooms to: whoever calls does that."""
    data = {**_data(figure, key, height, base), "asks": True}
    told = _component(data=data, key=key, on_clicked_change=_nothing, on_zoomed_change=_nothing)
    point, zoomed = told.get("clicked"), told.get("zoomed")
    return Asked(point if isinstance(point, dict) else None, _range(zoomed))


def _range(told: object) -> tuple[float, float] | tuple[()] | None:
    """Return what came from a browser as a range, whatever it is."""
    if told == []:
        return ()
    if not isinstance(told, list) or len(told) != 2:
        return None
    start, end = told
    if not all(isinstance(at, int | float) and math.isfinite(at) for at in told) or end <= start:
        return None
    return float(start), float(end)


def _data(figure: Mapping[str, Any], key: str, height: int, base: str) -> dict[str, Any]:
    script = f"/{base}/{SCRIPT}" if base else f"/{SCRIPT}"
    return {"figure": figure, "height": height, "name": key, "script": script, "words": ()}


def _nothing() -> None:
    """Stand for a reader of clicks: without one there are none."""

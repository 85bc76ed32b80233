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

_HTML: Final = '<div class="whyidle-chart"></div>'
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
function noteZoom(chart, change) {
  const zoom = chart.whyidleZoom ||= {};
  for (const [name, value] of Object.entries(change)) {
    const [axis, what] = name.split(".");
    if (!/^[xy]axis\\d*$/.test(axis) || !what) continue;
    if (what.startsWith("range")) zoom[axis] = [...chart.layout[axis].range];
    if (what === "autorange" && value) delete zoom[axis];
  }
}

function zoomed(layout, chart) {
  for (const [axis, range] of Object.entries(chart.whyidleZoom || {})) {
    layout[axis] = {...layout[axis], range, autorange: false};
  }
  return layout;
}

// A chart that shows as much as there is room for: what the reader zooms to is drawn anew.
function askZoom(chart, change) {
  const range = ["xaxis.range[0]", "xaxis.range[1]"].map((name) => change[name]);
  if (range.every((value) => typeof value === "number")) chart.whyidleTell("zoomed", range);
}

export default function ({parentElement, data, setTriggerValue}) {
  const chart = parentElement.querySelector(".whyidle-chart");
  chart.style.height = data.height + "px";
  chart.dataset.whyidle = data.name;
  let gone = false;
  const draw = () => plotly(data.script).then((Plotly) => {
    if (gone) return;
    const config = {responsive: true, displaylogo: false, displayModeBar: false,
                    doubleClick: false, ...(data.config || {})};
    const layout = zoomed(themed(data.figure.layout, chart), chart);
    return Plotly.react(chart, data.figure.data, layout, config)
      .then(() => {
        chart.dataset.drawn = String(Number(chart.dataset.drawn || 0) + 1);
        if (chart.whyidleListens) return;
        chart.whyidleListens = true;
        chart.on("plotly_relayout", (change) =>
          chart.whyidleAsks ? askZoom(chart, change) : noteZoom(chart, change));
        chart.on("plotly_doubleclick", () => {
          if (chart.whyidleAsks) { chart.whyidleTell("zoomed", []); return; }
          chart.whyidleZoom = {}; chart.whyidleDraw();
        });
        chart.on("plotly_click", (event) => {
          const point = event.points[0];
          chart.whyidleClicked({curve: point.curveNumber, x: point.x, y: point.y,
                                data: point.customdata ?? null});
        });
      });
  }).catch((error) => { chart.textContent = error.message; });
  chart.whyidleClicked = (point) => setTriggerValue("clicked", point);
  chart.whyidleTell = setTriggerValue;
  chart.whyidleAsks = Boolean(data.asks);
  chart.whyidleDraw = draw;
  draw();
  // The reader changes the theme: the colours follow at once.
  const watcher = new MutationObserver(draw);
  const root = document.querySelector(".stApp") || document.body;
  watcher.observe(root, {attributes: true, attributeFilter: ["class", "style"]});
  return () => { gone = true; watcher.disconnect(); };
}
"""

_component = st.components.v2.component(
    "whyidle_live_plotly", html=_HTML, js=_JS, isolate_styles=False
)


def chart(
    figure: Mapping[str, Any],
    key: str,
    *,
    height: int,
    base: str = "",
    clicked: Callable[[], None] | None = None,
) -> Mapping[str, Any] | None:
    """Draw a figure; the same key is the same chart. Returns the point that was just clicked."""
    data = _data(figure, key, height, base)
    told = _component(data=data, key=key, on_clicked_change=clicked or _nothing)
    point = told.get("clicked")
    return point if isinstance(point, dict) else None


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
    prefix = f"/{base}" if base else ""
    return {"figure": figure, "height": height, "name": key, "script": f"{prefix}/{SCRIPT}"}


def _nothing() -> None:
    """Stand for a reader of clicks: without one there are none."""

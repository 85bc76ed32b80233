// The page loads Plotly early; load it again only if that failed.
const loading = {};
function plotly(source) {
  loading[source] ||= loaded().then(() => window.Plotly || added(source));
  return loading[source];
}

function loaded() {
  if (window.Plotly || document.readyState === "complete") return Promise.resolve();
  return new Promise((done) => window.addEventListener("load", done, {once: true}));
}

function added(source) {
  return new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = source;
    script.onload = () => done(window.Plotly);
    script.onerror = () => {
      delete loading[source];
      failed(new Error("plotly.min.js could not be loaded"));
    };
    document.head.appendChild(script);
  });
}

// Charts use the colours of the current theme, light or dark.
function themed(layout, element) {
  const style = getComputedStyle(element);
  const of = (name, other) => style.getPropertyValue(name).trim() || other;
  const text = of("--st-text-color", "#222"), line = of("--st-border-color", "#ddd");
  const back = of("--st-background-color", "#fff");
  const themed = {...layout, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: {color: text, family: of("--st-font", "sans-serif"), size: 12, ...(layout.font || {})},
    hoverlabel: {bgcolor: back, bordercolor: line, font: {color: text}}};
  for (const name of Object.keys(layout)) {
    if (/^[xy]axis\d*$/.test(name)) {
      themed[name] = {gridcolor: line, linecolor: line, zerolinecolor: line, ...layout[name]};
    }
  }
  return themed;
}

// The user's zoom stays while the data moves on underneath.
function noteZoom(chart, zoom, change) {
  for (const [name, value] of Object.entries(change)) {
    const [axis, what] = name.split(".");
    if (!/^[xy]axis\d*$/.test(axis) || !what) continue;
    if (what.startsWith("range")) zoom[axis] = [...chart.layout[axis].range];
    if (what === "autorange" && value) delete zoom[axis];
  }
}

function zoomed(layout, state) {
  // Another time range or run drops the zoom.
  if (state.revision !== layout.uirevision) state.zoom = {};
  state.revision = layout.uirevision;
  for (const [axis, range] of Object.entries(state.zoom)) {
    layout[axis] = {...layout[axis], range, autorange: false};
  }
  return layout;
}

function listen(chart, state) {
  chart.on("plotly_relayout", (change) => {
    if (!state.page.asks) { noteZoom(chart, state.zoom, change); return; }
    // The server draws the zoomed range again, in more detail.
    const range = ["xaxis.range[0]", "xaxis.range[1]"].map((name) => change[name]);
    if (range.every((value) => typeof value === "number")) state.page.tell("zoomed", range);
  });
  chart.on("plotly_doubleclick", () => {
    if (state.page.asks) { state.page.tell("zoomed", []); return; }
    state.zoom = {};
    draw(chart, state);
  });
  chart.on("plotly_click", (event) => {
    if (!state.page.asks) return;
    const point = event.points[0];
    state.page.tell("clicked", {curve: point.curveNumber, x: point.x, y: point.y,
                                data: point.customdata ?? null});
  });
}

async function draw(chart, state) {
  if (state.gone) return;
  try {
    const {data, layout} = state.figure;
    // Remove the message that Plotly could not be loaded.
    if (!state.listens) chart.replaceChildren();
    // Plotly keeps the height that it began with, and draws over what comes below.
    const sized = {...themed(layout, chart), height: state.height};
    await window.Plotly.react(chart, data, zoomed(sized, state), {
      responsive: true, displaylogo: false, displayModeBar: false, doubleClick: false});
    chart.dataset.drawn = String(Number(chart.dataset.drawn || 0) + 1);
    if (!state.listens) listen(chart, state);
    state.listens = true;
  } catch (error) {
    chart.textContent = error.message;
  }
}

// The figures of one refresh arrive close together: draw all charts at once, since the browser
// repaints the page after each.
const TOGETHER_MS = 60;
const charts = window.whyidleCharts ||= {waiting: new Map(), timer: null};
function soon(chart, state) {
  charts.waiting.set(chart, state);
  charts.timer ||= setTimeout(async () => {
    charts.timer = null;
    const waiting = [...charts.waiting];
    charts.waiting.clear();
    try {
      await plotly(state.page.script);
    } catch (error) {
      for (const [each] of waiting) each.textContent = error.message;
      return;
    }
    for (const [each, its] of waiting) draw(each, its);
  }, TOGETHER_MS);
}

// The identity of a block: an element with the same name is kept, and with it the zoom.
function nameOf(block) {
  if (block.columns) return `${block.columns.length} columns`;
  return block.figure ? `chart ${block.name}` : "markup";
}

function made(name) {
  const element = document.createElement("div");
  element.whyidle = {name, zoom: {}};
  return element;
}

function fill(parent, blocks, page) {
  blocks.forEach((block, place) => {
    const name = nameOf(block), there = [...parent.children].slice(place);
    const element = there.find((each) => each.whyidle.name === name) || made(name);
    if (there[0] !== element) parent.insertBefore(element, there[0] || null);
    show(element, block, page);
  });
  for (const element of [...parent.children].slice(blocks.length)) {
    drop(element);
    element.remove();
  }
}

function keyOf(details) {
  return details.dataset.key;
}

function show(element, block, page) {
  const state = element.whyidle;
  if (block.columns) {
    element.className = "w-columns";
    element.style.gridTemplateColumns = `repeat(${block.columns.length}, minmax(0, 1fr))`;
    block.columns.forEach((column, place) => {
      const cell = element.children[place] || element.appendChild(document.createElement("div"));
      cell.className = "w-cell";
      fill(cell, column, page);
    });
  } else if (block.figure) {
    element.style.height = `${block.height}px`;
    element.dataset.whyidle = block.name;
    Object.assign(state, {figure: block.figure, height: block.height, page});
    soon(element, state);
  } else if (state.markup !== block.html) {
    // What the user has opened stays open.
    const opened = new Set([...element.querySelectorAll("details[open]")].map(keyOf));
    element.innerHTML = state.markup = block.html;
    for (const each of element.querySelectorAll("details")) each.open ||= opened.has(keyOf(each));
  }
}

function drop(element) {
  for (const chart of [element, ...element.querySelectorAll("[data-whyidle]")]) {
    if (!chart.dataset.whyidle) continue;
    chart.whyidle.gone = true;
    if (window.Plotly) window.Plotly.purge(chart);
  }
}

// Called for each update, and when the theme changes; the state of a chart is stored on its
// element.
export default function ({parentElement, data, setTriggerValue}) {
  const board = parentElement.querySelector(".w-board");
  const turn = board.whyidleTurn = {};
  fill(board, data.blocks, {script: data.script, asks: data.asks, tell: setTriggerValue});
  return () => {
    // The clean-up of an outdated call may come after the next call.
    if (board.whyidleTurn !== turn) return;
    drop(board);
    board.replaceChildren();
  };
}

"""How the page of a report looks and moves: no file beside it, no network."""

from __future__ import annotations

from typing import Final

ROW: Final = 24

STYLE: Final = """
:root { color-scheme: light dark; --back: #ffffff; --card: #f5f6f8; --ink: #1b1f24;
  --soft: #59616b; --line: #dfe2e6; --mark: #fff3c4; }
@media (prefers-color-scheme: dark) { :root { --back: #101418; --card: #181d23; --ink: #e4e7eb;
  --soft: #9aa4af; --line: #2c333b; --mark: #453a12; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1080px; padding: 24px 20px 48px; background: var(--back);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 22px; line-height: 1.3; margin: 0 0 4px; }
h2 { font-size: 16px; margin: 32px 0 10px; }
h3 { font-size: 15px; margin: 0 0 6px; }
p, ul { margin: 6px 0; }
ul { padding-left: 20px; }
.soft { color: var(--soft); }
code, pre, .mono { font: 13px/1.5 ui-monospace, monospace; }
pre { margin: 8px 0; padding: 8px 10px; background: var(--back); border: 1px solid var(--line);
  border-radius: 4px; overflow-x: auto; white-space: pre; overflow-wrap: normal; }
pre b { display: block; background: var(--mark); font-weight: inherit; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; padding: 3px 10px 3px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; font-weight: normal; }
th { color: var(--soft); }
td.number, th.number { text-align: right; white-space: nowrap; }
.bar { display: flex; height: 30px; border-radius: 4px; overflow: hidden; margin: 8px 0; }
.bar span { padding: 5px 4px; font-size: 12px; text-align: center; overflow: hidden;
  white-space: nowrap; text-overflow: ellipsis; }
.dot { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 7px; }
.card { background: var(--card); border: 1px solid var(--line); border-left: 5px solid var(--side);
  border-radius: 4px; padding: 12px 16px; margin: 12px 0; }
.tag { font-size: 12px; font-weight: 600; letter-spacing: .04em; margin-right: 6px; }
.icicle { position: relative; overflow: hidden; border-radius: 4px; }
.icicle button { position: absolute; height: 23px; margin: 0; padding: 0 5px; border: 0;
  border-right: 1px solid var(--back); font: 12px/23px system-ui, sans-serif; text-align: left;
  white-space: nowrap; overflow: hidden; text-overflow: ellipsis; cursor: pointer; }
.icicle button:focus-visible { outline: 2px solid var(--ink); outline-offset: -2px; }
summary { cursor: pointer; }
@media print { body { max-width: none; padding: 0; font-size: 12px; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  :root { --back: #ffffff; --card: #ffffff; --ink: #000000; --soft: #444444; --line: #bbbbbb;
    --mark: #eeeeee; color-scheme: light; }
  .card, pre, .icicle, tr { break-inside: avoid; } h2 { break-after: avoid; }
  pre { white-space: pre-wrap; } .screen { display: none; } }
"""

# A click on a box makes it as wide as the chart, below its outer boxes. Printed it is whole.
SCRIPT: Final = """
const chart = document.querySelector(".icicle");
const boxes = chart ? [...chart.children] : [];
function zoom(at) {
  const [x, w] = at ? [+at.dataset.x, +at.dataset.w] : [0, 1];
  for (const box of boxes) {
    const left = (box.dataset.x - x) / w, wide = box.dataset.w / w;
    const from = Math.max(0, left), to = Math.min(1, left + wide);
    box.style.left = 100 * from + "%";
    box.style.width = 100 * Math.max(0, to - from) + "%";
    box.style.display = to - from > 0.0005 ? "" : "none";
  }
}
for (const box of boxes) box.addEventListener("click", () => zoom(box));
addEventListener("keydown", (event) => { if (event.key === "Escape") zoom(null); });
addEventListener("beforeprint", () => {
  zoom(null);
  for (const each of document.querySelectorAll("details")) each.open = true;
});
"""

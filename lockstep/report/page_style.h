// Internal: the style and the script of the page of a run.
#pragma once

#include <string_view>

namespace lockstep {

inline constexpr std::string_view kReportStyle = R"(
:root { color-scheme: light dark; --paper: #ffffff; --card: #f6f7f9; --ink: #111827; --soft: #4b5563; --line: #e0e3e8;
  --strong: #9ca3af; --accent: #2563eb; --heat: 37, 99, 235; --wrong: 217, 72, 15; --bad: #b91c1c; --good: #15803d;
  --c0: #2563eb; --c1: #d9480f; --c2: #15803d; --c3: #7c3aed; --c4: #a16207; --c5: #0e7490 }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #0f1522; --card: #182032; --ink: #f3f4f6; --soft: #a8b0bd; --line: #2b364a; --strong: #6b7280;
    --accent: #60a5fa; --heat: 96, 165, 250; --wrong: 251, 146, 60; --bad: #f87171; --good: #4ade80;
    --c0: #60a5fa; --c1: #fb923c; --c2: #4ade80; --c3: #c4b5fd; --c4: #facc15; --c5: #67e8f9 } }
* { box-sizing: border-box }
html { -webkit-text-size-adjust: 100% }
body { margin: 0 auto; max-width: 1120px; padding: 20px 16px 48px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif }
h1 { font-size: 24px; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere }
h2 { font-size: 18px; margin: 36px 0 12px; padding-top: 12px; border-top: 1px solid var(--line) }
h3 { font-size: 15px; margin: 20px 0 8px }
p { margin: 8px 0; max-width: 75ch }
.soft, figcaption, caption { color: var(--soft); font-size: 13px }
.status { color: var(--good); font-weight: 600 } .status.bad { color: var(--bad); overflow-wrap: anywhere }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(155px, 1fr)); gap: 10px; margin: 18px 0 }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px }
.tile b { display: block; font-size: 21px; line-height: 1.3; font-variant-numeric: tabular-nums;
  overflow-wrap: break-word }
.tile span { color: var(--soft); font-size: 13px }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 330px), 1fr)); gap: 12px }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px; margin: 0;
  min-width: 0 }
.scroll { overflow-x: auto; max-width: 100% }
.tall { max-height: 420px; overflow-y: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 14px }
th, td { padding: 4px 10px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap }
th { font-weight: 600; color: var(--soft) } thead th { position: sticky; top: 0; background: var(--paper) }
th:first-child, td:first-child { text-align: left }
.left td:nth-child(2), .left th:nth-child(2) { text-align: left }
.side { display: flex; flex-wrap: wrap; gap: 0 40px } .side > div { max-width: 100% }
tr.best td { font-weight: 700; color: var(--accent) }
table.facts { width: 100% } table.facts th { width: 1%; vertical-align: top; text-align: left }
table.facts td { text-align: left; white-space: normal; overflow-wrap: anywhere }
code, pre { font: 13px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px; margin: 8px 0;
  white-space: pre-wrap; overflow-wrap: anywhere }
table.matrix { font-size: 13px } table.matrix td, table.matrix thead th { text-align: center; padding: 5px 6px;
  min-width: 38px }
table.matrix td { background: rgba(var(--wrong), var(--p, 0)); border: 1px solid var(--line) }
table.matrix td.hit { background: rgba(var(--heat), var(--p, 0)) }
table.matrix td.full { color: #fff } table.matrix th:first-child { position: sticky; left: 0;
  background: var(--paper);
  text-align: right; max-width: 150px; overflow: hidden; text-overflow: ellipsis }
@media screen and (prefers-color-scheme: dark) { table.matrix td.full { color: #0b1220 } }
.bar { display: inline-block; vertical-align: middle; width: 90px; height: 8px; border-radius: 4px;
  background: var(--line);
  overflow: hidden; margin-left: 8px }
.bar i { display: block; height: 100%; background: var(--accent) }
.worst { display: grid; grid-template-columns: repeat(auto-fill, minmax(140px, 1fr)); gap: 12px }
.worst.wide { grid-template-columns: repeat(auto-fill, minmax(min(100%, 320px), 1fr)) }
figure.card { font-size: 13px; line-height: 1.4; overflow-wrap: anywhere }
figure.card img { display: block; width: 100%; aspect-ratio: 1; object-fit: contain; border-radius: 4px;
  margin-bottom: 8px;
  background: #000 }
figure.card img.pixels { image-rendering: pixelated }
figure.card b { font-weight: 600 }
  .text { font: 13px/1.6 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  white-space: pre-wrap; overflow-wrap: anywhere; display: block; margin-bottom: 8px }
.text i { font-style: normal; background: rgba(var(--wrong), var(--p, 0)); border-radius: 2px }
.lane { display: grid; grid-template-columns: minmax(110px, 190px) 1fr 52px; gap: 4px 10px; align-items: center;
  font-size: 13px;
  margin: 4px 0 }
.lane .name { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; color: var(--soft) }
.lane svg { width: 100%; height: 16px; background: var(--card); border: 1px solid var(--line); border-radius: 3px;
  display: block }
.lane .share { text-align: right; font-variant-numeric: tabular-nums }
.g0 { fill: var(--c0) } .g1 { fill: var(--c1) } .g2 { fill: var(--c2) } .g3 { fill: var(--strong) }
  .g4 { fill: var(--c3) }
.key { display: inline-flex; flex-wrap: wrap; gap: 4px 14px; font-size: 13px; color: var(--soft); margin: 6px 0 }
.key span::before { content: ""; display: inline-block; width: 10px; height: 10px; border-radius: 2px;
  margin-right: 5px;
  background: var(--k) }
.box { border: 1px solid var(--line); border-radius: 8px; background: var(--card); padding: 6px 8px 8px; margin: 0;
  flex: 0 1 auto;
  max-width: 100% }
.box .box { background: var(--paper) } .box .box .box { background: var(--card) }
.box > summary { font-size: 13px; cursor: default; margin-bottom: 6px; overflow-wrap: anywhere }
.layers { display: flex; flex-wrap: wrap; gap: 6px; align-items: stretch }
.leaf { border-left: 4px solid var(--k, var(--strong)); background: var(--paper); border-radius: 4px;
  padding: 3px 8px; font-size: 12px;
  line-height: 1.35; box-shadow: 0 0 0 1px var(--line) }
.leaf b, .box > summary b { font-weight: 600 } .leaf span { display: block; color: var(--soft) }
.box > summary span { color: var(--soft) }
svg.plot { display: block; width: 100%; height: auto; touch-action: pan-y }
svg.plot text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  fill: var(--soft) }
svg.plot .name { font-size: 13px; font-weight: 600; fill: var(--ink) }
svg.plot .tick-x, svg.plot .axis-name { text-anchor: middle } svg.plot .tick-y { text-anchor: end }
.grid { stroke: var(--line) } .axis { stroke: var(--strong) } .same { stroke: var(--strong); stroke-dasharray: 4 4 }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round }
.marker { stroke: var(--card); stroke-width: 1.25 } .cursor { stroke: var(--strong); stroke-dasharray: 3 3 }
.s0 { stroke: var(--c0) } .s1 { stroke: var(--c1) } .s2 { stroke: var(--c2) } .s3 { stroke: var(--c3) }
  .s4 { stroke: var(--c4) }
.s5 { stroke: var(--c5) } .f0 { fill: var(--c0) } .f1 { fill: var(--c1) } .f2 { fill: var(--c2) }
  .f3 { fill: var(--c3) }
.f4 { fill: var(--c4) } .f5 { fill: var(--c5) } .dot { fill: var(--c0); fill-opacity: .45 }
.faint .s0 { stroke-opacity: .35; stroke-width: 1.25 }
#tip { position: fixed; z-index: 2; pointer-events: none; background: var(--ink); color: var(--paper);
  font-size: 12px;
  line-height: 1.4; border-radius: 6px; padding: 5px 9px; max-width: 260px }
@media (max-width: 520px) { h1 { font-size: 20px } .lane { grid-template-columns: 1fr 52px }
  .lane svg { grid-column: 1 / 3; grid-row: 2 }
  .tile b { font-size: 18px } .worst { grid-template-columns: repeat(auto-fill, minmax(104px, 1fr)) }
  table { font-size: 12px } th, td { padding: 4px 5px } thead th { white-space: normal; vertical-align: bottom }
  .bar { width: 36px } table.matrix { font-size: 11px } table.matrix td, table.matrix thead th { min-width: 24px;
  padding: 4px 2px }
  table.matrix th:first-child { max-width: 92px } }
@media print { @page { margin: 14mm } body { max-width: none; padding: 0; font-size: 11pt }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact } .tall { max-height: none; overflow: visible }
  .scroll { overflow: visible } figure, .card, .tile, .leaf, tr, table.matrix { break-inside: avoid }
  h2, h3 { break-after: avoid }
  thead th, table.matrix th:first-child { position: static } #tip { display: none }
  .worst { grid-template-columns: repeat(auto-fill, minmax(104px, 1fr)) }
  .plots { grid-template-columns: 1fr 1fr } .plots .card { align-self: start } }
)";

inline constexpr std::string_view kReportScript = R"(
(() => {
  const tip = document.createElement('div');
  tip.id = 'tip';
  tip.hidden = true;
  document.body.append(tip);
  const numbers = text => text.split(' ').map(Number);
  for (const svg of document.querySelectorAll('svg[data-axis]')) {
    const [left, width, top, height, low, high] = numbers(svg.dataset.axis);
    const curves = [...svg.querySelectorAll('path[data-x]')].map(path => ({
      name: path.dataset.name, x: numbers(path.dataset.x), y: path.dataset.y.split(' ') }));
    if (!curves.length) continue;
    const cursor = document.createElementNS('http://www.w3.org/2000/svg', 'line');
    cursor.setAttribute('class', 'cursor');
    cursor.setAttribute('y1', top);
    cursor.setAttribute('y2', top + height);
    cursor.setAttribute('visibility', 'hidden');
    svg.append(cursor);
    const hide = () => { tip.hidden = true; cursor.setAttribute('visibility', 'hidden'); };
    const show = event => {
      const box = svg.getBoundingClientRect();
      const at = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
      const wanted = low + (at - left) / width * (high - low);
      let nearest = curves[0].x[0];
      for (const c of curves) for (const x of c.x) if (Math.abs(x - wanted) < Math.abs(nearest - wanted)) nearest = x;
      const lines = [`${svg.dataset.x} ${nearest}`];
      for (const c of curves) { const i = c.x.indexOf(nearest); if (i >= 0) lines.push(`${c.name} ${c.y[i]}`); }
      tip.replaceChildren(...lines.map(text => { const d = document.createElement('div'); d.textContent = text;
      return d; }));
      tip.hidden = false;
      const place = left + (nearest - low) / (high - low) * width;
      cursor.setAttribute('x1', place);
      cursor.setAttribute('x2', place);
      cursor.setAttribute('visibility', 'visible');
      tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 4)) + 'px';
      tip.style.top = Math.max(4, event.clientY - tip.offsetHeight - 12) + 'px';
    };
    svg.addEventListener('pointermove', show);
    svg.addEventListener('pointerdown', show);
    svg.addEventListener('pointerleave', hide);
  }
})();
)";

}  // namespace lockstep

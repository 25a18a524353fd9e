// The other two ways to look at a tree: as columns of numbers, and as a flame of money or time.

import { useState } from "preact/hooks";
import { html } from "./icons.mjs";
import { now } from "./live.mjs";
import { flame } from "./timeline.mjs";
import { count, money, span } from "./words.mjs";

const COLUMNS = [
  ["turns", (row, node) => row.turn || node.phases.turns.length],
  ["context", (row) => (row.window ? `${Math.round((100 * row.context) / row.window)}%` : count(row.context))],
  ["in", (row, node) => count(node.run?.usage?.input ?? 0)],
  ["out", (row, node) => count(node.run?.usage?.output ?? 0)],
  ["cached", (row, node) => count(node.run?.usage?.cache_read ?? 0)],
  ["tools", (row, node) => node.run?.usage?.calls ?? 0],
  ["silent", (row) => (row.silent_ms ? span(row.silent_ms) : "–")],
];

export const Numbers = ({ row, node, isHead }) => html`<div class="columns">${COLUMNS.map(([name, value]) => html`<span class="num">${isHead ? name : value(row, node)}</span>`)}</div>`;

const HEIGHT = 33;

export function Flame({ tree, top, select }) {
  const [by, setBy] = useState("money");
  tree.version.value;
  const time = (node) => (node.phases.endedAt ?? now.value) - (node.phases.segments[0]?.from ?? now.value);
  const hasPrice = top.treeNanos > 0;
  const kind = hasPrice ? by : "time";
  const size = kind === "money" ? (node, isTree) => (isTree ? node.treeNanos : node.nanos) : (node, isTree) => (isTree ? Math.max(1, busy(node)) : own(node));
  const own = (node) => node.phases.segments.filter((s) => s.kind !== "children").reduce((sum, s) => sum + (s.to ?? node.phases.endedAt ?? now.value) - s.from, 0);
  const busy = (node) => own(node) + node.children.reduce((sum, child) => sum + busy(child), 0);
  const text = (node) => (kind === "money" ? money(node.nUnpriced ? null : node.treeNanos / 1e9, node.treeGuess > 0) : span(time(node)));
  const boxes = flame(top, size);
  const depth = Math.max(...boxes.map((box) => box.depth));
  return html`<div class="tree flame-pane"><div class="tools"><div class="seg" role="group" aria-label="Width"><button aria-pressed=${String(kind === "money")} disabled=${!hasPrice} onClick=${() => setBy("money")}>Money</button><button aria-pressed=${String(kind === "time")} onClick=${() => setBy("time")}>Time</button></div><span class="faint">${hasPrice ? "Dashed is what an agent took itself" : "No price is known here: width is time"}</span></div>
    <svg class="flame tall" role="group" aria-label="Cost by agent" height=${(depth + 2) * HEIGHT}>
      ${boxes.map(({ node, x, width, depth: level, own: mine }) => html`<g key=${node.id}><rect class=${`f${Math.min(2, level)}`} x=${`${x}%`} width=${`${width}%`} y=${level * HEIGHT} height="32" onClick=${() => select(node.id)}><title>${node.title} ${text(node)}</title></rect>
        ${node.children.length > 0 && mine > 0 && html`<rect class="self" x=${`${x}%`} width=${`${mine}%`} y=${(level + 1) * HEIGHT + 0.5} height="31"/>`}
        ${width > 8 && html`<svg x=${`${x}%`} width=${`${width}%`} y=${level * HEIGHT} height="32"><text x="8" y="20">${node.title} <tspan class="cost">${text(node)}</tspan></text></svg>`}</g>`)}</svg></div>`;
}

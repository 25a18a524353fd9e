// Bars of time: one lane for each agent, all on one scale. Tall bars cost money, thin lines cost
// time; the pattern says the kind and the colour repeats it.

import { Fragment } from "preact";
import { useMemo, useState } from "preact/hooks";
import { html } from "./icons.mjs";
import { now } from "./live.mjs";
import { axisText, bars, LEAST, ticks } from "./timeline.mjs";
import { count, money, priceOf, span } from "./words.mjs";

const percent = (x) => `${x.toFixed(2)}%`;
const SHAPES = {
  model: { class: "seg-model", y: 13, height: 14 },
  tool: { fill: "url(#p-tool)", y: 13, height: 14 },
  you: { class: "you-edge", fill: "url(#p-you)", y: 13.5, height: 13 },
  provider: { class: "prov-edge", fill: "url(#p-prov)", y: 15.5, height: 9 },
  budget: { class: "budget-edge", fill: "url(#p-budget)", y: 15.5, height: 9 },
  children: { class: "seg-children", y: 19, height: 2 },
  queue: { fill: "url(#p-queue)", y: 18, height: 4 },
};

// Whether the moment has a line of its own: that of now in a run that goes on, or one of the past.
const isSeen = (scale, isLive, at) => at >= scale.from && (isLive ? at <= scale.to + 1_000 : at < scale.to);

// What all lanes have behind them, drawn once.
export const LaneBack = ({ scale, isLive, at }) => html`<svg class="defs" aria-hidden="true"><defs><g id="lane-back">
  ${ticks(scale).map(({ x }) => html`<line class="tick" x1=${percent(x)} x2=${percent(x)} y1="0" y2="100%"/>`)}
  ${scale.gaps.map((gap) => html`<rect class="gap-bg" x=${percent(scale.x(gap.from))} width=${percent(scale.x(gap.to) - scale.x(gap.from))} height="100%"/>${[gap.from, gap.to].map((t) => html`<line class="gap-edge" x1=${percent(scale.x(t))} x2=${percent(scale.x(t))} y1="0" y2="100%"/>`)}`)}</g>
  ${isSeen(scale, isLive, at) ? html`<line id="lane-now" class="now-line" x1=${percent(scale.x(Math.min(at, scale.to)))} x2=${percent(scale.x(Math.min(at, scale.to)))} y1="0" y2="100%"/>` : html`<g id="lane-now"/>`}</defs></svg>`;

// What a bar was: its kind, words, start, length, and what the turns that ended in it took.
function barWords(bar, { turns }, scale, model) {
  const mine = bar.kind === "model" ? turns.filter((turn) => turn.at > bar.from && turn.at <= bar.to) : [];
  const sum = (value) => mine.reduce((total, turn) => total + value(turn.usage), 0);
  const tokens = sum(({ input = 0, output = 0 }) => input + output);
  const price = money(mine.some(({ usage }) => priceOf(model, usage) === null) ? null : sum((usage) => priceOf(model, usage)));
  return `${bar.kind}${bar.words ? `: ${bar.words}` : ""}, at ${axisText(bar.from - scale.start)}, ${span(bar.ms)}${tokens ? `, ${count(tokens)} tokens, ${price}` : ""}`;
}

export function Lane({ node, scale, path, at, select, model }) {
  const { phases } = node;
  const time = at ?? (phases.endedAt === null ? now.value : phases.endedAt);
  const state = [scale, path, at, node.mark, phases.endedAt, phases.standing, phases.segments.length, phases.last?.from, phases.last?.kind];
  const shown = useMemo(() => bars(phases, scale, time).filter((bar) => at === null || bar.from <= at), state);
  const under = ({ currentTarget: lane, clientX }) => {
    const { left, width } = lane.getBoundingClientRect();
    const x = (100 * (clientX - left)) / width;
    return shown.findLast((bar) => bar.x <= x && x <= bar.x + bar.width);
  };
  const explain = (event) => {
    const bar = under(event);
    event.currentTarget.firstChild.textContent = bar ? barWords(bar, phases, scale, model) : "";
  };
  const open = (event) => {
    const bar = under(event);
    if (!bar || event.shiftKey) return;
    event.stopPropagation();
    const turn = phases.turns.find((one) => one.at >= bar.from) ?? phases.turns.at(-1);
    select(node.id, turn ? { turn: turn.n } : {});
  };
  const until = Math.min(scale.to, at ?? Infinity);
  const end = phases.endedAt !== null && phases.endedAt >= scale.from && phases.endedAt <= scale.to && (at === null || phases.endedAt <= at);
  const drawn = useMemo(() => html`<g class="segs">
    ${shown.map((bar) => html`<rect ...${SHAPES[bar.kind]} x=${percent(bar.x)} width=${percent(at === null ? bar.width : Math.max(LEAST, Math.min(bar.width, scale.x(at) - bar.x)))}/>`)}
    ${(path ?? []).filter((part) => part.from < until && part.to > scale.from).map((part) => html`<line class="crit" x1=${percent(Math.max(0, scale.x(part.from)))} x2=${percent(scale.x(Math.min(until, part.to)))} y1="30" y2="30"/>`)}
    ${end && html`<svg x=${percent(scale.x(phases.endedAt))} y="14" width="14" height="12" overflow="visible"><path class=${`cap ${node.mark === "completed" ? "cap-done" : "cap-fail"}`} d=${node.mark === "completed" ? "m5 6.5 2 2 4-5" : "m5 3 6 6m0-6-6 6"}/></svg>`}
  </g>`, state);
  return html`<svg class="lane" aria-hidden="true" onPointerMove=${explain} onClick=${open}><title></title><use class="lane-back" href="#lane-back"/>${drawn}<use href="#lane-now"/></svg>`;
}

export function Axis({ scale, unfold, show, isLive, at }) {
  const [brush, setBrush] = useState(null);
  const where = ({ currentTarget: axis, clientX }) => {
    const { left, width } = axis.getBoundingClientRect();
    return Math.max(0, Math.min(100, (100 * (clientX - left)) / width));
  };
  const drag = (event) => {
    if (!brush || !event.buttons) return;
    const to = where(event);
    if (Math.abs(to - brush[0]) > 1) event.currentTarget.setPointerCapture(event.pointerId);
    setBrush([brush[0], to]);
  };
  const drop = () => {
    const [from, to] = (brush ?? [0, 0]).toSorted((a, b) => a - b);
    setBrush(null);
    if (to - from > 1) show({ from: scale.t(from), to: scale.t(to) });
  };
  const x = Math.min(100, scale.x(Math.min(at, scale.to)));
  const marks = ticks(scale).filter((tick) => tick.x <= 96 && !(isSeen(scale, isLive, at) && Math.abs(tick.x - x) < (x > 96 ? 18 : 11)) && !scale.gaps.some((gap) => tick.x > scale.x(gap.from) - 6 && tick.x < scale.x(gap.to) + 6 && tick.x > 0));
  return html`<svg class="lane-axis" aria-hidden="true" onPointerDown=${(event) => event.button || setBrush([where(event), where(event)])} onPointerMove=${drag} onPointerUp=${drop} onDblClick=${() => show({ from: -Infinity, to: Infinity })}><rect class="hit" width="100%" height="100%"/>${brush && html`<rect class="brush" x=${percent(Math.min(...brush))} width=${percent(Math.abs(brush[1] - brush[0]))} height="100%"/>`}
    ${ticks(scale).map((tick) => html`<line class="tick" x1=${percent(tick.x)} x2=${percent(tick.x)} y1="20" y2="100%"/>`)}
    ${marks.map((tick) => html`<text class="axis" x=${percent(tick.x)} y="17" text-anchor=${tick.x < 2 ? "start" : "middle"}>${tick.text}</text>`)}
    ${scale.gaps.map((gap) => html`<${Fragment} key=${gap.from}><rect class="gap-bg" x=${percent(scale.x(gap.from))} width=${percent(scale.x(gap.to) - scale.x(gap.from))} height="100%" onClick=${() => unfold(gap)}><title>${span(gap.to - gap.from)} in which nothing ran. Click to unfold.</title></rect><text class="axis" x=${percent((scale.x(gap.from) + scale.x(gap.to)) / 2)} y="17" text-anchor="middle">${span(gap.to - gap.from)}</text><//>`)}
    ${isSeen(scale, isLive, at) && html`<line class="now-line" x1=${percent(x)} x2=${percent(x)} y1="18" y2="100%"/><svg x=${percent(x)} overflow="visible"><rect class="now-tag" x=${x > 96 ? -40 : -21} y="4" width="42" height="16" rx="3"/><text class="now-text" x=${x > 96 ? -19 : 0} y="16" text-anchor="middle">${axisText(Math.max(0, at - scale.start))}</text></svg>`}
  </svg>`;
}

const KEYS = [["model", { y: 1, height: 10 }], ["tool", { y: 1, height: 10 }], ["you", { x: 0.5, y: 1.5, width: 19, height: 9 }], ["provider", { x: 0.5, y: 2.5, width: 19, height: 7 }], ["children", { y: 5, height: 2 }], ["queue", { y: 4, height: 4, fill: "url(#p-queue-s)" }]];

export function Legend({ scale }) {
  const idle = scale.gaps.reduce((sum, gap) => sum + gap.to - gap.from, 0);
  return html`<div class="tools legend-line"><div class="legend" role="group" aria-label="Legend">${KEYS.map(([kind, more]) => html`<span><svg aria-hidden="true"><rect width="20" ...${SHAPES[kind]} ...${more}/></svg>${kind}</span>`)}<span><svg aria-hidden="true"><rect class="seg-model" y="0" width="20" height="7"/><path class="crit" d="M0 10.5h20"/></svg>slowest path</span></div>${idle > 0 && html`<span class="push faint fold-note">${span(idle)} idle folded</span>`}</div>`;
}

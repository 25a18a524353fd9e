// The agents of a run: one row each, in the order of their start, with a lane of time, numbers, or
// as a flame; and the scrubber that shows any earlier moment.

import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Chosen, useChosen } from "./chosen.mjs";
import { go, place } from "./client.mjs";
import { Glyph, html, Icon } from "./icons.mjs";
import { Flame, Numbers } from "./flame.mjs";
import { Axis, Lane, LaneBack, Legend } from "./lanes.mjs";
import { now } from "./live.mjs";
import { kindOf, wordOf } from "./marks.mjs";
import { matches } from "./runs.mjs";
import { retry } from "./steering.mjs";
import { Scrubber } from "./scrubber.mjs";
import { store, stored, useKeys } from "./shell.mjs";
import { extent, gaps, phaseAt, scaleOf, slowestPath, within } from "./timeline.mjs";
import { bare, count, money, priceOf, span } from "./words.mjs";

const MOST_ROWS = 200;
const VIEWS = [["timeline", "Timeline"], ["numbers", "Numbers"], ["flame", "Cost flame"]];
const ZOOMS = [[0, "Fit"], [60_000, "1m"], [300_000, "5m"]];
const PAST = { model: "thinking", tool: "working", children: "waiting", you: "needs_input", queue: "queued", provider: "rate_limited", budget: "waiting" };

// The rows that are not folded away, each with its guides.
export function visible(view, folded, accepts) {
  const out = [];
  const add = (node, guides) => {
    const isKept = !accepts || accepts(node);
    const isFolded = folded.has(node.id);
    if (isKept) out.push({ node, guides });
    const last = node.children.length - 1;
    if (!isFolded) node.children.forEach((child, n) => add(child, [...guides.map((g) => (g === "elbow" ? "blank" : g === "tee" ? "pipe" : g)), n === last ? "elbow" : "tee"]));
  };
  for (const top of view.tops) add(top, []);
  return out;
}

const asLine = (row) => ({ id: row.id, title: `${row.label} ${row.task}`, mark: row.mark, words: row.now, agent: row.agent, model: row.model, usd: row.tree_usd, isOpen: !row.is_over, created: row.started_at ?? 0 });

// Folded gaps, the part of the time that is shown, and the moment, as one scale for all rows. A part
// has a length and, unless it follows the end, a beginning. All of it is looked at once a second and
// when agents come, not with each step: bars grow once a second.
function useScale(tree, top, at) {
  const isLive = !top.isOver;
  const part = useSignal({ ms: 0 });
  const unfolded = useSignal(new Set());
  const { ms } = part.value;
  const moment = isLive ? now.value : tree.version.value;
  const { whole, found, path } = useMemo(() => {
    const nodes = [...tree.view.nodes.values()];
    const all = extent(nodes, now.value);
    return { whole: all, found: gaps(nodes, all, now.value), path: new Map(Map.groupBy(slowestPath(top, now.value), (one) => one.id)) };
  }, [moment, tree.shape.value, isLive]);
  const folded = found.filter((gap) => !unfolded.value.has(gap.from));
  const end = at ?? whole.to;
  const from = at === null ? part.value.from ?? end - ms : Math.min(at, Math.max(at - ms, part.value.from ?? 0));
  const scale = useMemo(() => scaleOf({ ...(ms ? within({ from, to: from + ms }, whole) : whole), start: whole.from }, ms ? [] : folded), [whole, from, ms, unfolded.value]);
  const show = (wish) => {
    const { from: start, to } = within(wish, whole);
    const isWhole = to - start >= whole.to - whole.from;
    part.value = isWhole ? { ms: 0 } : { ms: to - start, from: isLive && to >= whole.to ? undefined : start };
  };
  // Closer by a factor, with a moment where it is.
  const zoom = (factor, t = at ?? (isLive ? scale.to : (scale.from + scale.to) / 2)) => show({ from: t - (t - scale.from) / factor, to: t + (scale.to - t) / factor });
  const pan = (share) => show({ from: scale.from + share * (scale.to - scale.from), to: scale.to + share * (scale.to - scale.from) });
  return { scale, whole, path, part, show, zoom, pan, unfold: (gap) => (unfolded.value = new Set([...unfolded.value, gap.from])) };
}

// The wheel zooms with Ctrl, where the pointer is, and moves along with Shift.
const wheel = ({ scale, part, zoom, pan }) => (event) => {
  const lane = event.target.closest(".trow, .lane-axis")?.parentElement.closest(".tree")?.querySelector(".lane-axis");
  if (!lane) return;
  const { left, width } = lane.getBoundingClientRect();
  const along = event.shiftKey ? event.deltaY : event.deltaX;
  if (event.ctrlKey || event.metaKey) zoom(event.deltaY < 0 ? 1.25 : 0.8, scale.t(Math.max(0, Math.min(100, (100 * (event.clientX - left)) / width))));
  else if (along && part.value.ms) pan(along / width);
  else return;
  event.preventDefault();
};

export function TreePane({ tree, top, selected, select, past }) {
  const view = place.value.query.get("view") ?? "timeline";
  const query = place.value.query.get("q") ?? "";
  const [folded, setFolded] = useState(new Set());
  const [isDense, setDense] = useState(Boolean(stored("tree").isDense));
  const [chosen, choose, clear] = useChosen();
  const input = useRef(null);
  const box = useRef(null);
  tree.shape.value;
  const at = past.value;
  const time = useScale(tree, top, at);
  const { scale, path, part, zoom, unfold } = time;
  const accepts = query && ((node) => matches(asLine(tree.view.row(node, now.value)), query, now.value));
  const rows = visible(tree.view, folded, accepts).filter(({ node }) => at === null || phaseAt(node.phases, at) !== "none");
  const set = (more) => go(place.value.path, { ...Object.fromEntries(place.value.query), ...more }, { replace: true });
  const fold = (id, is) => setFolded((before) => new Set(is ? [...before, id] : [...before].filter((other) => other !== id)));
  const move = (by) => {
    const n = rows.findIndex(({ node }) => node.id === selected);
    const next = rows[Math.max(0, Math.min(rows.length - 1, n + by))];
    if (next) focusRow(box.current, select, next.node.id, rows.indexOf(next));
  };
  const node = tree.view.nodes.get(selected);
  const left = () => (node.children.length && !folded.has(selected) ? fold(selected, true) : node.parent && select(node.parent.id));
  const right = () => (folded.has(selected) ? fold(selected, false) : node.children.length && select(node.children[0].id));
  useKeys({
    J: () => { choose(selected); move(1); }, K: () => { choose(selected); move(-1); },
    j: () => move(1), k: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1), ArrowLeft: left, ArrowRight: right,
    Enter: () => { select(selected); requestAnimationFrame(() => document.querySelector("#detail h2")?.focus()); }, "/": () => input.current.focus(), 1: () => set({ view: "" }), 2: () => set({ view: "numbers" }), 3: () => set({ view: "flame" }),
    r: () => node.mark === "failed" && retry(node),
    0: () => (part.value = { ms: 0 }), "+": () => zoom(2), "-": () => zoom(0.5),
    v: () => { store("tree", { isDense: !isDense }); setDense(!isDense); },
  });
  return html`<section class=${`pane ${isDense ? "dense" : ""}`} id="tree" aria-label="Agents and timeline">
    <div class="tools"><label class="field grow"><${Icon} name="search" small/><input ref=${input} aria-label="Filter agents" placeholder="Filter: state:failed agent:coder cost:>0.10" value=${query} onInput=${(event) => set({ q: event.target.value })} onKeyDown=${(event) => event.key === "Escape" && event.target.blur()}/><kbd>/</kbd></label>
      <div class="seg views" role="group" aria-label="View">${VIEWS.map(([name, title]) => html`<button aria-pressed=${String(view === name)} onClick=${() => set({ view: name === "timeline" ? "" : name })}>${title}</button>`)}</div>
      ${view === "timeline" && html`<div class="seg zoom" role="group" aria-label="Zoom">${ZOOMS.map(([ms, title]) => html`<button aria-pressed=${String(part.value.ms === ms && part.value.from === undefined)} onClick=${() => (part.value = { ms })}>${title}</button>`)}</div>`}</div>
    ${chosen.size > 0 && at === null && html`<${Chosen} tree=${tree} nodes=${[...chosen].map((id) => tree.view.nodes.get(id))} clear=${clear}/>`}
    ${view === "timeline" && html`<${LaneBack} scale=${scale} isLive=${!top.isOver} at=${at ?? now.value}/>`}
    ${view === "flame" ? html`<${Flame} tree=${tree} top=${top} select=${select}/>` : html`<div class="tree" ref=${box} onWheel=${view === "timeline" ? wheel(time) : undefined}>
      <div class="trow head"><span>${rows.length === tree.view.nodes.size ? "" : `${rows.length} of `}${tree.view.nodes.size === 1 ? "1 agent" : `${tree.view.nodes.size.toLocaleString("en")} agents`}</span>${view === "numbers" ? html`<${Numbers} isHead/>` : html`<${Axis} scale=${scale} unfold=${unfold} show=${time.show} isLive=${!top.isOver} at=${at ?? now.value}/>`}<span class="num">Time</span><span class="num">Tokens</span><span class="num">Cost</span></div>
      <${Rows} box=${box} rows=${rows} isDense=${isDense} draw=${({ node: one, guides }) => html`<${TreeRow} key=${one.id} tree=${tree} node=${one} guides=${guides} isSelected=${one.id === selected} isChosen=${chosen.has(one.id)} choose=${choose} isFolded=${folded.has(one.id)} fold=${fold} select=${select} view=${view} scale=${scale} path=${path.get(one.id)} at=${at}/>`}/>
      ${!rows.length && html`<div class="trouble"><${Icon} name="search"/><div class="stack"><h3>No agent matches <span class="filter-word">${query}</span></h3><div class="line"><button class="btn" onClick=${() => set({ q: "" })}>Clear the filter</button></div></div></div>`}
    </div>`}
    ${view === "timeline" && html`<${Scrubber} tree=${tree} scale=${scale} whole=${time.whole} past=${past} isLive=${!top.isOver}/><${Legend} scale=${scale}/>`}
  </section>`;
}

function focusRow(box, select, id, index) {
  select(id);
  requestAnimationFrame(() => {
    const row = box?.querySelector(`[data-id="${id}"]`);
    if (row) row.focus({ preventScroll: false });
    else if (box) box.scrollTop = index * 40;
  });
}

// Many rows are shown in a window: those that can be seen, and space for the others.
function Rows({ box, rows, draw, isDense }) {
  const list = useRef(null);
  const [range, setRange] = useState([0, MOST_ROWS]);
  const isMany = rows.length > MOST_ROWS;
  useEffect(() => {
    if (!isMany) return undefined;
    const look = () => {
      const size = list.current?.querySelector(".trow")?.offsetHeight || 40;
      const top = Math.max(box.current?.getBoundingClientRect().top ?? 0, 0) - (list.current?.getBoundingClientRect().top ?? 0);
      const first = Math.max(0, Math.trunc(top / size) - 10);
      setRange((before) => (Math.abs(before[0] - first) < 5 && before[2] === size ? before : [first, first + Math.ceil(innerHeight / size) + 20, size]));
    };
    look();
    document.addEventListener("scroll", look, { capture: true, passive: true });
    addEventListener("resize", look);
    return () => {
      document.removeEventListener("scroll", look, { capture: true });
      removeEventListener("resize", look);
    };
  }, [isMany, isDense, rows.length]);
  const [first, last, size = 40] = isMany ? range : [0, rows.length];
  return html`<div role="tree" aria-label="Agents" ref=${list}>
    ${isMany && html`<div aria-hidden="true" style=${{ height: `${first * size}px` }}></div>`}${rows.slice(first, last).map(draw)}${isMany && html`<div aria-hidden="true" style=${{ height: `${Math.max(0, rows.length - last) * size}px` }}></div>`}
  </div>`;
}

// What an agent, and its tree, had taken until a moment, by the turns that were over.
const add = (a, b) => ({ tokens: a.tokens + b.tokens, usd: a.usd === null || b.usd === null ? null : a.usd + b.usd });
function spentUntil(node, at, models) {
  const spent = ({ usage, model }) => ({ tokens: (usage.input ?? 0) + (usage.output ?? 0), usd: priceOf(models.get(model) ?? models.get(node.spec.model), usage) });
  return node.phases.turns.filter((turn) => turn.at <= at).map(spent).reduce(add, { tokens: 0, usd: 0 });
}
const treeUntil = (node, at, models) => node.children.reduce((sum, child) => add(sum, treeUntil(child, at, models)), spentUntil(node, at, models));

function pastRow(row, node, at, models) {
  const kind = phaseAt(node.phases, at);
  const mine = spentUntil(node, at, models);
  const all = treeUntil(node, at, models);
  const isOver = kind === "ended";
  return { ...row, mark: isOver ? row.mark : PAST[kind], now: isOver ? row.now : node.phases.segments.findLast((s) => s.from <= at)?.words ?? "", tokens: mine.tokens, tree_tokens: all.tokens, usd: mine.usd, tree_usd: all.usd, tree_usd_estimated: 0, silent_ms: 0, elapsed_ms: (isOver ? node.phases.endedAt : at) - (node.startedAt ?? node.spec.created_at) };
}

function TreeRow({ tree, node, guides, isSelected, isChosen, choose, isFolded, fold, select, view, scale, path, at }) {
  const live = tree.row(node.id);
  const row = at === null ? live : pastRow(live, node, at, tree.view.models);
  const kind = kindOf(row.mark);
  const hasChildren = node.children.length > 0;
  const siblings = node.parent?.children ?? tree.view.tops;
  const { title } = node;
  const name = [title, row.agent === title ? "" : row.agent, wordOf(row.mark).toLowerCase(), row.now, money(row.tree_usd, row.tree_usd_estimated > 0)].filter(Boolean).join(", ");
  const toggle = (event) => {
    event.stopPropagation();
    fold(node.id, !isFolded);
  };
  const flash = useFlash(row.mark);
  const isSilent = row.silent_ms >= 60_000;
  return html`<div class=${`trow is-${kind} ${isChosen ? "is-chosen" : ""}`} role="treeitem" data-id=${node.id} aria-level=${guides.length + 1} aria-posinset=${siblings.indexOf(node) + 1} aria-setsize=${siblings.length} aria-selected=${String(isSelected)} aria-expanded=${hasChildren ? String(!isFolded) : undefined} aria-label=${isChosen ? `${name}, chosen` : name} tabindex=${isSelected ? 0 : -1} onClick=${(event) => (event.shiftKey ? choose(node.id) : select(node.id))}>
    <div class="who">${guides.map((guide) => html`<span class=${`guide ${guide}`}></span>`)}<span class="knot">${hasChildren && html`<span class="fold-hit" onClick=${toggle}><${Icon} name=${isFolded ? "right" : "down"} more="fold"/></span>`}<${Glyph} kind=${kind}/></span>
      <div class="two"><div class="name"><b class="cut" title=${title}><bdi>${title}</bdi></b><span class="role cut"><bdi>${row.agent === title ? "" : row.agent}</bdi></span>${isFolded && hasChildren && html`<span class="badge">+${node.children.length}</span>`}${isSilent && html`<span class="badge warn">silent ${span(row.silent_ms)}</span>`}</div>
        <div class="now cut"><span class=${`word ${flash}`}>${wordOf(row.mark)}</span> <bdi>${bare(row.now)}</bdi></div></div>
      ${node.mark === "failed" && node.parent && at === null && html`<button class="btn retry" onClick=${(event) => { event.stopPropagation(); retry(node); }}>Retry</button>`}</div>
    ${view === "numbers" ? html`<${Numbers} row=${row} node=${node}/>` : html`<${Lane} node=${node} scale=${scale} path=${path} at=${at} select=${select} model=${tree.view.models.get(node.spec.model)}/>`}
    <div class="num c-time">${span(row.elapsed_ms)}</div>${amount("c-tok", row.tree_tokens, row.tokens, (n) => (n ? count(n) : "–"))}${amount("c-cost", row.tree_usd, row.usd, (n) => (row.tree_tokens ? money(n, row.tree_usd_estimated > 0) : "–"))}
  </div>`;
}

// Of the tree, and under it of the agent itself where they differ.
const amount = (name, tree, own, text) => html`<div class=${`num ${name} ${text(tree) === "–" ? "faint" : ""}`}>${text(tree)}${text(tree) !== text(own) && html`<small>self ${text(own)}</small>`}</div>`;

// A word that has changed is lit for a moment.
function useFlash(value) {
  const before = useRef(value);
  const [isLit, setLit] = useState(false);
  useEffect(() => {
    if (before.current === value) return undefined;
    before.current = value;
    setLit(true);
    const timer = setTimeout(() => setLit(false), 1_200);
    return () => clearTimeout(timer);
  }, [value]);
  return isLit ? "flash" : "";
}


// Runs: what needs a person first, then every tree, newest first.

import { useEffect, useRef, useState } from "preact/hooks";
import { Chosen, useChosen } from "./chosen.mjs";
import { go, link, place, post } from "./client.mjs";
import { Glyph, html, Icon } from "./icons.mjs";
import { all, allLines, attempt, loadRuns, now, pages, questions } from "./live.mjs";
import { kindOf, wordOf } from "./marks.mjs";
import { answer, askedAt, isShort, QuestionTitle } from "./questions.mjs";
import { byDay, inTheWay, lineOfTree, matches, paid, today } from "./runs.mjs";
import { dialog, setTitle, Shell, Trouble, useKeys } from "./shell.mjs";
import { bare, clock, count, money, plural, span, sumText } from "./words.mjs";

const CHIPS = [["", "All"], ["state:open", "Open"], ["state:failed", "Failed"], ["state:done", "Done"]];
const MIX = [["completed", "done"], ["failed", "fail"], ["at_limit", "held"], ["needs_input", "you"], ["rate_limited", "held"], ["retrying", "held"], ["working", "work"], ["thinking", "work"]];

// New runs are announced, not put above what someone looks at.
function useShown(lines) {
  const [shown, setShown] = useState(null);
  const isReady = !pages.value.isLoading || pages.value.next !== null;
  useEffect(() => {
    if (isReady) setShown((before) => before ?? new Set(lines.map((line) => line.id)));
  }, [isReady]);
  if (!shown) return [lines, 0, () => {}];
  const newest = lines.filter((line) => shown.has(line.id)).reduce((most, line) => Math.max(most, line.created), 0);
  const fresh = lines.filter((line) => !shown.has(line.id) && line.created > newest);
  const rest = shown.size ? lines.filter((line) => !fresh.includes(line)) : lines;
  return [rest, shown.size ? fresh.length : 0, () => setShown(new Set(lines.map((line) => line.id)))];
}

export function RunsPage() {
  const query = place.value.query.get("q") ?? "";
  const everything = allLines();
  const [lines, nFresh, showFresh] = useShown(everything);
  const found = lines.filter((line) => matches(line, query, now.value));
  const [chosen, choose, clear] = useChosen();
  const picked = everything.filter((line) => chosen.has(line.id)).map((line) => all.view.nodes.get(line.id) ?? { ...line, isOver: !line.isOpen, children: [] });
  const input = useRef(null);
  const setQuery = (q) => go("", { q }, { replace: true });
  const rows = () => [...document.querySelectorAll("a.run-row")];
  const step = (by) => {
    const links = rows();
    const at = links.indexOf(document.activeElement);
    links[Math.max(0, Math.min(links.length - 1, at + by))]?.focus();
  };
  useKeys({ "/": () => input.current.focus(), j: () => step(1), k: () => step(-1), ArrowDown: () => step(1), ArrowUp: () => step(-1) });
  setTitle("Runs");
  const { isLoading, problem } = pages.value;
  if (!everything.length && !isLoading && !problem) return html`<${Shell}><${NoRuns}/><//>`;
  const counts = Object.fromEntries(CHIPS.map(([q]) => [q, everything.filter((line) => matches(line, q, now.value)).length]));
  return html`<${Shell}><div class="page">
    <div class="page-head"><h1>Runs</h1>
      <label class="field grow runs-filter"><${Icon} name="search" small/><input ref=${input} aria-label="Filter runs" placeholder="Filter: state:failed agent:coder cost:>1 since:7d" value=${query} onInput=${(event) => setQuery(event.target.value)} onKeyDown=${(event) => event.key === "Escape" && event.target.blur()}/><kbd>/</kbd></label>
      <div class="seg chips" role="group" aria-label="State">${CHIPS.map(([q, title]) => html`<a ...${link("", { q })} aria-current=${q === query ? "true" : undefined}>${title} <span class="tab-nums faint">${counts[q].toLocaleString("en")}${pages.value.next ? "+" : ""}</span></a>`)}</div>
      <button class="btn main" onClick=${() => (dialog.value = "new")}><${Icon} name="plus" small/>New run <kbd>n</kbd></button></div>
    ${picked.length > 0 && html`<${Chosen} tree=${all} nodes=${picked} clear=${clear}/>`}<${Asks}/>
    ${problem && html`<${Trouble} title="The list could not be read" cause=${problem.message} next="Try again; open runs go on." ><button class="btn" onClick=${loadRuns}>Try again</button><//>`}
    <div class="panel"><${Today} lines=${everything}/>
      <div class="run-row head"><span></span><span>Run</span><span>Agents done</span><span class="who-col">Agent, model</span><span class="num start-col">Started</span><span class="num tk-col">Time</span><span class="num cost-col">Cost</span></div>
      ${nFresh > 0 && html`<button class="fresh" onClick=${showFresh}>${plural(nFresh, "new run")}. Show</button>`}
      ${byDay(found, now.value).map((day) => html`<${Day} key=${day.name} day=${day} chosen=${chosen} choose=${choose}/>`)}
      ${!found.length && query && html`<${NoMatch} lines=${lines} query=${query} setQuery=${setQuery}/>`}
      ${isLoading && !everything.length && html`<${Ghosts}/>`}
      ${pages.value.next && html`<div class="more"><button class="btn" disabled=${isLoading} onClick=${loadRuns}>Show older runs</button></div>`}
    </div></div><//>`;
}

const Day = ({ day, chosen, choose }) => html`<div class="day"><b>${day.title}</b><span>${plural(day.lines.length, "run")}</span><span class="push tab-nums">${sumText(paid(day.lines))}</span></div>
  <div class="runs">${day.lines.map((line) => html`<${RunRow} key=${line.id} line=${line} isChosen=${chosen.has(line.id)} choose=${choose}/>`)}</div>`;

function RunRow({ line, isChosen, choose }) {
  const { onClick, ...to } = link(`r/${line.id}`);
  const act = (event) => {
    if (!event.shiftKey) return onClick(event);
    event.preventDefault();
    choose(line.id);
  };
  const kind = kindOf(line.mark);
  return html`<a class=${`run-row is-${kind} ${isChosen ? "is-chosen" : ""}`} ...${to} onClick=${act}><${Glyph} kind=${kind}/>
    <span class="two"><span class="title cut"><bdi>${line.title}</bdi></span><span class="sub"><span class="word">${wordOf(line.mark)}</span><span class="cut"><bdi>${bare(line.words)}</bdi></span></span></span>
    <span class="two agents-col">${line.isOpen && line.isLive && html`<${Mix} line=${line}/>`}<span class="mix-words">${line.nDone} of ${line.n}${line.nFailed ? `, ${line.nFailed} failed` : ""}</span></span>
    <span class="two who-col"><span class="cut soft"><bdi>${line.agent}</bdi></span><span class="sub"><span class="cut"><bdi>${line.model}</bdi></span></span></span>
    <span class="num start-col soft">${clock(line.created)}</span><span class="num tk-col"><span>${span(line.elapsed)}</span></span><span class="num cost-col">${money(line.usd, line.bound)}</span></a>`;
}

function Mix({ line }) {
  let x = 0;
  const bars = MIX.filter(([mark]) => line.counts[mark]).map(([mark, name]) => {
    const width = (100 * line.counts[mark]) / line.n;
    x += width;
    return html`<rect class=${name} x=${`${(x - width).toFixed(1)}%`} width=${`${Math.max(0.5, width - 0.8).toFixed(1)}%`} height="100%"/>`;
  });
  return html`<svg class="mix" aria-hidden="true">${bars}</svg>`;
}

function Today({ lines }) {
  const { sure, most: bound, isPartial, saved, hours, nWorking, nRuns } = today(lines, now.value);
  const most = Math.max(...hours);
  const hour = new Date(now.value).getHours();
  const tokens = useRate(lines);
  return html`<div class="today">
    <div class="stack budget-col"><div class="line"><b class="strong">Spent today</b><span class="push tab-nums"><b class="strong">${sumText({ sure, most: bound })}</b>${isPartial ? html`<span class="soft">, more n/a</span>` : null}</span></div><span class="label tab-nums">${plural(nRuns, "run")} started today</span></div>
    <div class="by-hour"><span class="label">By hour of start</span><svg class="hours" role="img" aria-label=${most ? `Spending by hour today, highest at ${hours.indexOf(most)}:00` : "Nothing spent today"}>
      ${hours.map((value, n) => html`<rect class=${n === hour ? "now" : ""} x=${`${(n * 100) / 24}%`} width="3.17%" y=${26 - Math.max(1, most ? (24 * value) / most : 0)} height=${Math.max(1, most ? (24 * value) / most : 0)}/>`)}
      ${[0, 6, 12, 18].map((n) => html`<text class="axis" x=${`${(n * 100) / 24}%`} y="37">${String(n).padStart(2, "0")}</text>`)}</svg></div>
    <div class="fact"><span class="label">Agents working</span><b class="num">${nWorking}</b></div>
    <div class="fact"><span class="label">Tokens per minute</span><b class="num">${count(tokens)}</b></div>
    <div class="fact"><span class="label">Saved by cache</span><b class="num">${money(saved)}</b></div></div>`;
}

// Tokens of the last minute, over all trees that are open.
function useRate(lines) {
  const marks = useRef([]);
  const total = lines.filter((line) => line.isLive).reduce((sum, line) => sum + line.tokens, 0);
  marks.current = [...marks.current.filter(([at]) => now.value - at <= 60_000), [now.value, total]].slice(-120);
  return Math.max(0, total - marks.current[0][1]);
}

function Asks() {
  const list = questions.value;
  if (!list.length) return null;
  return html`<section class="asks" aria-label="Needs you">
    <h2 class="asks-head"><${Glyph} kind="you" colored/>${list.length === 1 ? "1 needs you" : `${list.length} need you`} <span class="soft">oldest first, across all runs</span></h2>
    ${list.map((q) => html`<${Ask} key=${q.id} q=${q}/>`)}</section>`;
}

const ICONS = { edit: "file", write: "file", shell: "term" };
function Ask({ q }) {
  const at = askedAt(q);
  const root = all.view.nodes.get(q.root);
  const icon = q.kind === "budget" ? "coin" : q.kind === "question" ? "mail" : ICONS[q.tool] ?? "term";
  const act = (body, path = "answer") => attempt(() => (path === "answer" ? answer(q, body) : post(`runs/${q.run}/budget`, body)));
  return html`<div class="ask"><${Icon} name=${icon}/><div class="two"><div class="title cut strong"><${QuestionTitle} q=${q}/></div><div class="sub cut soft"><bdi>${root ? lineOfTree(all.view, root, now.value).title : ""}</bdi></div></div>
    <span class="soft tab-nums"><span class="waits-word">waiting </span>${at ? span(now.value - at) : ""}</span>
    <span class="line">${askActions(q, act)}</span></div>`;
}

function askActions(q, act) {
  if (q.kind === "budget") {
    const usd = q.suggested?.usd;
    return [
      html`<button class="btn" onClick=${() => act({ allow: false })}>Finish as it is</button>`,
      html`<button class="btn" onClick=${() => act({ allow: true })}>${usd ? `Raise by ${money(usd)}` : "Raise the limit"}</button>`,
    ];
  }
  if (isShort(q)) {
    return [
      html`<button class="btn" onClick=${() => act({ allow: false })}>Deny</button>`,
      html`<button class="btn" onClick=${() => act({ allow: true })}>Allow once</button>`,
    ];
  }
  return html`<a class="btn main" ...${link("needs-you", { q: q.id })}>${q.kind === "permission" ? "Review" : "Answer"}</a>`;
}

function NoMatch({ lines, query, setQuery }) {
  const [word, n] = inTheWay(lines, query, now.value) ?? ["", 0];
  const all = query.trim().split(/\s+/);
  const rest = all.filter((other) => other.toLowerCase() !== word).join(" ");
  return html`<div class="trouble"><${Icon} name="search"/><div class="stack"><h3>No run matches ${all.map((part) => html`<span class="filter-word">${part}</span> `)}</h3>
    ${n > 0 && rest && html`<p class="soft">${plural(n, "run matches", "runs match")} <span class="filter-word">${rest}</span>.</p>`}
    <div class="line">${n > 0 && rest && html`<button class="btn" onClick=${() => setQuery(rest)}>Drop ${word}</button>`}<button class="btn quiet" onClick=${() => setQuery("")}>Clear all</button></div></div></div>`;
}

const Ghosts = () => html`<div class="late" aria-busy="true"><span class="hide">Loading runs</span>${[["w2", "w3"], ["w1", "w2"], ["w3", "w1"]].map(([a, b]) => html`<div class="ghost-row"><span class="ghost"></span><span class="two"><span class=${`ghost ${a}`}></span><span class=${`ghost ${b}`}></span></span><span class="ghost"></span><span class="ghost"></span></div>`)}</div>`;

async function startMap() {
  const reply = await attempt(() => post("runs", { task: "map this repository", model: "offline/explorer", terms: { questions: "ask" } }));
  if (reply) go(`r/${reply.run}`);
}

function NoRuns() {
  const command = 'retinue run "map this repository"';
  return html`<div class="page"><div class="empty"><div class="stack"><h1>No runs yet</h1><p>A run is one agent at work on one task, with all the agents that it starts. It shows up here the moment it starts, from this page, the command line or your own code.</p></div>
    <div class="ways">
      <div class="way"><${Icon} name="map"/><div><div class="strong">Map this folder</div><div class="sub">Agents read the files of this project and write a report. No model, no key, no cost.</div></div><button class="btn main big" onClick=${startMap}>Start the map</button></div>
      <div class="way"><${Icon} name="term"/><div><div class="strong">From the command line</div><div class="sub">In this project's folder</div></div><span class="line"><code class="command">${command}</code><button class="btn quiet square" aria-label="Copy the command" onClick=${() => navigator.clipboard?.writeText(command)}><${Icon} name="copy" small/></button></span></div>
      <div class="way"><${Icon} name="keyi"/><div><div class="strong">With a model</div><div class="sub">Models says which keys were found. The offline explorer needs none.</div></div><a class="btn" ...${link("models")}>Models</a></div>
    </div></div></div>`;
}

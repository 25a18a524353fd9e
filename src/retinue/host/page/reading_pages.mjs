// The pages that are read: agents, models, costs, deliveries, health and settings.

import { useEffect, useState } from "preact/hooks";
import { get, link, post } from "./client.mjs";
import { Glyph, html, Icon } from "./icons.mjs";
import { attempt, loadRuns, now, pages, summaries } from "./live.mjs";
import { kindOf, wordOf } from "./marks.mjs";
import { byDay, lineOfSummary } from "./runs.mjs";
import { change, settings, Shell, Trouble } from "./shell.mjs";
import { count, money, oneLine, plural, shortId } from "./words.mjs";

// What the host says at an address; asked again with `again`.
function useReply(path) {
  const [state, setState] = useState({ value: null, problem: null });
  const load = () => get(path).then((value) => setState({ value, problem: null }), (problem) => setState({ value: null, problem }));
  useEffect(() => void load(), [path]);
  return { ...state, again: load };
}

// A page over one reply: loading, trouble, or what there is.
function Reading({ title, path, action, children }) {
  const { value, problem, again } = useReply(path);
  useEffect(() => {
    document.title = `${title} · Retinue`;
  });
  return html`<${Shell}><div class="page"><div class="page-head"><h1>${title}</h1><span class="push"></span>${value && action?.(value)}</div>
    ${problem && html`<${Trouble} title=${`${title} could not be read`} cause=${problem.message} next="Try again; runs go on meanwhile."><button class="btn" type="button" onClick=${again}>Try again</button><//>`}
    ${value && children(value, again)}</div><//>`;
}

const Table = ({ head, rows, name }) => html`<div class="panel"><div class="scrollx" tabindex="0" role="region" aria-label=${name}><table class="table"><thead><tr>${head.map(([text, kind = ""]) => html`<th class=${kind}>${text}</th>`)}</tr></thead><tbody>${rows}</tbody></table></div></div>`;
const Teach = ({ title, text, command }) => html`<div class="empty"><div class="stack"><h2>${title}</h2><p>${text}</p></div>${command && html`<div class="line"><code class="command">${command}</code></div>`}</div>`;

export const AgentsPage = () => html`<${Reading} title="Agents" path="definitions">${({ agents }) => {
  if (!agents.length) return html`<${Teach} title="No agent files here" text="Agents come from files in .retinue/agents, .claude/agents and others. What is wrong with a file is said by the command below." command="retinue agents lint"/>`;
  return html`<${Table} name="Agents" head=${[["Agent"], ["What it is for"], ["Model"], ["Tools", "num"], ["From"]]} rows=${agents.map((agent) => html`<tr key=${agent.name}><td><b><bdi>${oneLine(agent.name, 80)}</bdi></b></td><td class="wrap"><bdi>${oneLine(agent.description, 240)}</bdi></td><td>${agent.model ?? "that of its run"}</td><td class="num">${agent.tools ? agent.tools.length : "all"}</td><td>${oneLine(agent.scope, 40)}${agent.path && html` <code class="soft">${oneLine(agent.path, 120)}</code>`}</td></tr>`)}/>`;
}}<//>`;

export const ModelsPage = () => html`<${Reading} title="Models" path="models">${({ providers }) => html`<${Table} name="Providers" head=${[["Provider"], ["Key"], ["Variables"], ["Model used by default"]]} rows=${[...providers].sort((a, b) => b.ready - a.ready).map((one) => html`<tr key=${one.provider}><td><b>${one.provider}</b></td><td><span class=${`line is-${one.ready ? "done" : "waiting"}`}><${Glyph} kind=${one.ready ? "done" : "queued"}/>${one.ready ? (one.keys.length ? "found" : "needs none") : "not set"}</span></td><td><code>${one.keys.join(" or ") || "–"}</code></td><td>${one.default || "–"}</td></tr>`)}/>
  <p class="label page-note">Keys are read from the environment of the command that starts a run, and never shown. <code>offline/explorer</code> needs no key and costs nothing.</p>`}<//>`;

export const DeliveriesPage = () => html`<${Reading} title="Deliveries" path="deliveries">${({ deliveries }, again) => {
  if (!deliveries.length) return html`<${Teach} title="Nothing was announced" text="A run that announces sends its result to a channel: a webhook, a file, the console. What is on its way, and what did not arrive, is listed here."/>`;
  const act = async (key, drop) => (await attempt(() => post(`deliveries/${encodeURIComponent(key)}`, { drop }), drop ? "It will not be sent." : "It is sent again.")) && again();
  return html`<${Table} name="Deliveries" head=${[["Run"], ["To"], ["State"], ["Tries", "num"], [""]]} rows=${deliveries.map((one) => html`<tr key=${one.key}><td><a class="link" ...${link(`r/${one.run}`)}>${shortId(one.run)}</a></td><td>${oneLine(one.origin?.channel ?? "", 60)}</td><td>${one.state ?? "pending"}${one.error ? `: ${oneLine(one.error, 160)}` : ""}</td><td class="num">${one.tries ?? 0}</td><td class="num">${one.state === "dead" && html`<button class="btn" type="button" onClick=${() => act(one.key, false)}>Send again</button> <button class="btn quiet" type="button" onClick=${() => act(one.key, true)}>Give up</button>`}</td></tr>`)}/>`;
}}<//>`;

export const HealthPage = () => html`<${Reading} title="Health" path="health">${(status) => {
  const facts = [["Version", status.retinue], ["Process", status.pid], ["Store", status.store || "not shown to this token"], ["Open runs", status.open], ["Runs without their agent", status.dormant.length], ["Calls held back for a provider", status.held.length]];
  return html`${status.trouble ? html`<${Trouble} title="Nothing moves" cause=${status.trouble} kept="Everything that is recorded." next="Runs go on by themselves when the cause is gone."/>` : html`<div class="notice soft-edge" role="status"><${Glyph} kind="done" colored/><span class="grow">The host is well. <code>retinue doctor</code> checks models, sandbox and store in depth.</span></div>`}
    <${Table} name="Health" head=${[["What"], ["Now"]]} rows=${facts.map(([name, value]) => html`<tr><td>${name}</td><td class="wrap"><bdi>${String(value)}</bdi></td></tr>`)}/>`;
}}<//>`;

const KINDS = [["agent", "By agent"], ["model", "By model"]];

export function CostsPage() {
  const lines = [...summaries.value.values()].map((run) => lineOfSummary(run, now.value));
  const { next, isLoading } = pages.value;
  useEffect(() => {
    document.title = "Costs · Retinue";
  });
  const sum = (some) => some.reduce((total, line) => total + (line.usd ?? 0), 0);
  const failed = lines.filter((line) => line.mark === "failed");
  const unpriced = lines.filter((line) => line.usd === null).reduce((total, line) => total + line.tokens, 0);
  const dearest = [...lines].sort((a, b) => (b.usd ?? 0) - (a.usd ?? 0)).slice(0, 10);
  const kpi = (label, value, note) => html`<div class="kpi"><span class="label">${label}</span><b>${value}</b><span class="label">${note}</span></div>`;
  return html`<${Shell}><div class="page"><div class="page-head"><h1>Costs</h1><span class="push soft">${plural(lines.length, "run")}, newest first</span>${next && html`<button class="btn" type="button" disabled=${isLoading} onClick=${loadRuns}>Add older runs</button>`}</div>
    <div class="panel kpis">${kpi("Spent", money(sum(lines)), "by these runs and their agents")}${kpi("Saved by cache", money(lines.reduce((total, line) => total + line.saved, 0)), "against prompts without a cache")}${kpi("Spent on work that failed", money(sum(failed)), plural(failed.length, "run"))}${kpi("Without a price", count(unpriced), "tokens")}</div>
    <div class="two-col"><${Days} lines=${lines}/>${KINDS.map(([key, title]) => html`<${Shares} key=${key} title=${title} lines=${lines} by=${key}/>`)}
      <section class="panel" aria-labelledby="dearest"><div class="panel-head"><h2 id="dearest">Most expensive runs</h2></div><table class="table fixed"><thead><tr><th>Run</th><th class="num">Agents</th><th class="num">Cost</th></tr></thead><tbody>${dearest.map((line) => html`<tr key=${line.id}><td><a class="line" ...${link(`r/${line.id}`)}><${Glyph} kind=${kindOf(line.mark)} colored/><span class="cut"><bdi>${line.title}</bdi></span><span class="hide">${wordOf(line.mark)}</span></a></td><td class="num">${line.n}</td><td class="num">${money(line.usd, line.bound)}</td></tr>`)}</tbody></table></section></div></div><//>`;
}

function Days({ lines }) {
  const days = byDay(lines, now.value).slice(0, 7);
  const most = Math.max(0.0001, ...days.map((day) => day.usd));
  return html`<section class="panel" aria-labelledby="days"><div class="panel-head"><h2 id="days">By day of start</h2></div><table class="table fixed"><thead><tr><th>Day</th><th class="num">Runs</th><th class="num">Cost</th><th><span class="hide">Share</span></th></tr></thead><tbody>${days.map((day) => html`<tr key=${day.name}><td>${day.title}</td><td class="num">${day.lines.length}</td><td class="num">${money(day.usd)}</td><td class="num"><${Share} share=${day.usd / most}/></td></tr>`)}</tbody></table></section>`;
}

const Share = ({ share }) => html`<svg class="share" aria-hidden="true"><rect width=${`${(100 * share).toFixed(0)}%`} height="100%"/></svg>`;

function Shares({ title, lines, by }) {
  const groups = [...Map.groupBy(lines, (line) => line[by] || "none")].map(([name, some]) => ({ name, n: some.length, usd: some.reduce((sum, line) => sum + (line.usd ?? 0), 0), isKnown: some.every((line) => line.usd !== null) })).sort((a, b) => b.usd - a.usd).slice(0, 10);
  const most = Math.max(0.0001, groups[0]?.usd ?? 0);
  return html`<section class="panel" aria-labelledby=${by}><div class="panel-head"><h2 id=${by}>${title} of the run</h2></div><table class="table fixed"><thead><tr><th>Name</th><th class="num">Runs</th><th class="num">Cost</th><th><span class="hide">Share</span></th></tr></thead><tbody>${groups.map((group) => html`<tr key=${group.name}><td class="cut"><bdi>${oneLine(group.name, 80)}</bdi></td><td class="num">${group.n}</td><td class="num">${group.isKnown || group.usd ? money(group.usd) : "n/a"}</td><td class="num"><${Share} share=${group.usd / most}/></td></tr>`)}</tbody></table></section>`;
}

const THEMES = [["", "As the system"], ["light", "Light"], ["dark", "Dark"]];
const PAGES = [["agents", "Agents"], ["models", "Models"], ["costs", "Costs"], ["deliveries", "Deliveries"], ["health", "Health"]];

export function SettingsPage() {
  const { theme, keys } = settings.value;
  useEffect(() => {
    document.title = "Settings · Retinue";
  });
  return html`<${Shell}><div class="page"><div class="page-head"><h1>Settings</h1></div><div class="ways">
    <div class="way"><${Icon} name="sun"/><div><div class="strong">Theme</div><div class="sub">Kept in this browser</div></div><div class="seg" role="group" aria-label="Theme">${THEMES.map(([name, text]) => html`<button type="button" aria-pressed=${String(theme === name)} onClick=${() => change({ theme: name })}>${text}</button>`)}</div></div>
    <div class="way"><${Icon} name="term"/><div><div class="strong">Keys of one letter</div><div class="sub">j, k, a, x and others. They are always off where you write.</div></div><div class="seg" role="group" aria-label="Keys of one letter"><button type="button" aria-pressed=${String(keys)} onClick=${() => change({ keys: true })}>On</button><button type="button" aria-pressed=${String(!keys)} onClick=${() => change({ keys: false })}>Off</button></div></div>
    <div class="way"><${Icon} name="gear"/><div><div class="strong">Models, limits and permissions</div><div class="sub">They are set in files, for every client alike</div></div><code class="command">retinue config</code></div>
    <div class="way"><${Icon} name="list"/><div><div class="strong">Other pages</div></div><span class="line wrap">${PAGES.map(([path, text]) => html`<a class="btn" ...${link(path)}>${text}</a>`)}</span></div></div></div><//>`;
}

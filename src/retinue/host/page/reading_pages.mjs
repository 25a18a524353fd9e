// The pages that are read: agents, models, deliveries, health and settings.

import { useEffect, useState } from "preact/hooks";
import { get, link, post } from "./client.mjs";
import { Glyph, html, Icon } from "./icons.mjs";
import { attempt, tell } from "./live.mjs";
import { change, setTitle, settings, Shell, Trouble } from "./shell.mjs";
import { clock, oneLine, plural, shortId } from "./words.mjs";

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
  setTitle(title);
  return html`<${Shell}><div class="page"><div class="page-head"><h1>${title}</h1><span class="push"></span>${value && action?.(value)}</div>
    ${problem && html`<${Trouble} title=${`${title} could not be read`} cause=${problem.message} next="Try again; runs go on meanwhile."><button class="btn" onClick=${again}>Try again</button><//>`}
    ${value && children(value, again)}</div><//>`;
}

// Names of columns; those of numbers end with "#".
export const Head = ({ names }) => html`<tr>${names.map((name) => html`<th class=${name.endsWith("#") ? "num" : ""}>${name.replace("#", "")}</th>`)}</tr>`;
const Table = ({ head, rows, name, note }) => html`<div class="panel">${note && html`<div class="panel-head"><h2>${name}</h2><span class="push label">${note}</span></div>`}<div class="scrollx" tabindex="0" role="region" aria-label=${name}><table class="table"><thead><${Head} names=${head}/></thead><tbody>${rows}</tbody></table></div></div>`;
const Teach = ({ title, text, command }) => html`<div class="empty"><div class="stack"><h2>${title}</h2><p>${text}</p></div>${command && html`<div class="line"><code class="command">${command}</code></div>`}</div>`;

export const AgentsPage = () => html`<${Reading} title="Agents" path="definitions">${({ agents, faults }) => html`${agents.length > 0 && html`<${Table} name="Agents" head=${["Agent", "What it is for", "Model", "Tools#", "From"]} rows=${agents.map((agent) => html`<tr key=${agent.name}><td><b><bdi>${oneLine(agent.name, 80)}</bdi></b></td><td class="wrap"><bdi>${oneLine(agent.description, 240)}</bdi></td><td>${oneLine(agent.model ?? "its run's", 80)}</td><td class="num">${agent.tools ? agent.tools.length : "all"}</td><td class="wrap">${[agent.dialect, agent.scope].filter(Boolean).join(", ")}${agent.path && html` <${Path} path=${agent.path}/>`}${faultsOf(faults, agent.path)}</td></tr>`)}/>`}
  ${!agents.length && html`<${Teach} title="No agent files here" text="Agents come from files in .retinue/agents, .claude/agents and others."/>`}
  ${faults.length > 0 && html`<h2 class="section">What is wrong with their files</h2><${Table} name="Faults of files" head=${["File", "Severity", "What is wrong"]} rows=${faults.map((fault) => html`<tr><td class="wrap"><${Path} path=${fault.path}/>${fault.line ? `:${fault.line}` : ""}</td><td><span class=${`badge ${{ error: "bad", warning: "warn" }[fault.severity] ?? ""}`}>${fault.severity}</span></td><td class="wrap"><bdi>${oneLine(fault.message, 400)}</bdi> <span class="soft">${oneLine(fault.hint, 200)}</span></td></tr>`)}/>`}`}<//>`;

// The end of a path, which tells files apart; the whole of it on hover.
const Path = ({ path }) => html`<code class="soft" title=${oneLine(path)}><bdi>${oneLine(path.split("/").slice(-3).join("/"), 120)}</bdi></code>`;

const faultsOf = (faults, path) => {
  const n = path ? faults.filter((fault) => fault.path === path && fault.severity !== "note").length : 0;
  return n > 0 && html` <span class="badge warn">${plural(n, "fault")}</span>`;
};

export function ModelsPage() {
  const { held = [] } = useReply("health").value ?? {};
  const price = (usd, one) => html`<td class="num">${!one.default ? "–" : usd === null ? "n/a" : `$${usd < 0.1 ? usd.toFixed(3) : usd.toFixed(2)}`}</td>`;
  const rank = ({ ready, keys }) => (ready ? (keys.length ? 0 : 2) : 1);
  const state = ({ ready, keys }) => html`<span class=${`line is-${ready ? "done" : "waiting"}`}><${Glyph} kind=${ready ? "done" : "queued"}/>${ready ? (keys.length ? "found" : "needs none") : "not set"}</span>`;
  return html`<${Reading} title="Models" path="models">${({ providers }) => html`${held.length > 0 && html`<${Table} name="Calls that wait" head=${["Run that waits for its provider", "Answer of the provider", "Next try#"]} rows=${held.map((call) => html`<tr key=${call.run}><td><a class="link" ...${link(`r/${call.run}`)}>${shortId(call.run)}</a></td><td><span class="word is-held">${oneLine(`${call.trouble?.provider ?? ""} ${call.trouble?.answer || call.kind.replaceAll("_", " ")}`, 80)}</span></td><td class="num">${clock(call.retry_at, true)}</td></tr>`)}/><p></p>`}
  <${Table} name="Providers" head=${["Provider", "Key", "Variables", "Model used by default", "In#", "From cache#", "Out#"]} rows=${[...providers].sort((a, b) => rank(a) - rank(b)).map((one) => html`<tr key=${one.provider}><td><b>${one.provider}</b></td><td>${state(one)}</td><td><code>${one.keys.join(" or ") || "–"}</code></td><td>${one.default || "–"}</td>${[one.usd_in, one.usd_cached, one.usd_out].map((usd) => price(usd, one))}</tr>`)}/>
  <p class="label page-note">Prices are in dollars for a million tokens of the default model. Keys are read from the environment of the command that starts a run, and never shown. <code>offline/explorer</code> needs no key and costs nothing.</p>`}<//>`;
}

export const DeliveriesPage = () => html`<${Reading} title="Deliveries" path="deliveries">${({ deliveries }, again) => {
  if (!deliveries.length) return html`<${Teach} title="Nothing was announced" text="A run that announces sends its result to a channel: a webhook, a file, the console. What is on its way, and what did not arrive, is listed here."/>`;
  const act = async (key, drop) => (await attempt(() => post(`deliveries/${encodeURIComponent(key)}`, { drop }), drop ? "It will not be sent." : "It is sent again.")) && again();
  return html`<${Table} name="Deliveries" head=${["Run", "To", "State", "Tries#", "#"]} rows=${deliveries.map((one) => html`<tr key=${one.key}><td><a class="link" ...${link(`r/${one.run}`)}>${shortId(one.run)}</a></td><td class="wrap"><bdi>${oneLine(`${one.origin.channel ?? ""} ${one.origin.target ?? ""}`, 120)}</bdi></td><td class="wrap">${one.state ?? "pending"}${one.error ? `: ${oneLine(one.error, 160)}` : ""}${!one.state && one.next_at ? `, next try ${clock(one.next_at, true)}` : ""}</td><td class="num">${one.attempts ?? 0}</td><td class="num">${one.state === "dead" && html`<button class="btn" onClick=${() => act(one.key, false)}>Send again</button> <button class="btn quiet" onClick=${() => act(one.key, true)}>Give up</button>`}</td></tr>`)}/>`;
}}<//>`;

export const HealthPage = () => html`<${Reading} title="Health" path="health">${(status) => {
  const hidden = "not shown to this token";
  const facts = [["Version", status.retinue], ["Process", status.pid], ["Store", status.store || hidden], ["Sandbox", status.sandbox ? sandboxWords(status.sandbox) : hidden], ["Open runs", status.open], ["Runs without their agent", status.dormant.length], ["Calls held back for a provider", status.held.length]];
  return html`${status.trouble ? html`<${Trouble} title="Nothing moves" cause=${status.trouble} kept="Everything that is recorded." next="Runs go on by themselves when the cause is gone."/>` : html`<div class="notice soft-edge" role="status"><${Glyph} kind="done" colored/><span class="grow">The host is well. <code>retinue doctor</code> checks models and store in depth.</span></div>`}
    <${Table} name="Health" head=${["What", "Now"]} rows=${facts.map(([name, value]) => html`<tr><td>${name}</td><td class="wrap"><bdi>${oneLine(value)}</bdi></td></tr>`)}/>
    ${status.cluster && html`<${Cluster} now=${status.cluster}/>`}`;
}}<//>`;

/** The workers that share this database. */
const Cluster = ({ now }) => html`<div class="page-note">${now.stuck > 0 && html`<${Trouble} title="Runs wait for a worker" cause=${`${plural(now.stuck, "tree")} due for more than half a minute, and no worker takes them.`} kept="Everything that is recorded." next="Check that a worker knows their agents: retinue cluster status."/>`}
  <${Table} name="Workers" note=${`${now.driven} of ${plural(now.open_trees, "open tree")} driven · ${now.due} due · ${plural(now.inbox, "event")} to be taken in`} head=${["Worker", "State", "Trees#", "Lease#", "Version"]} rows=${now.workers.map((one) => html`<tr key=${one.id}>
    <td class="wrap"><bdi>${oneLine(one.name)}</bdi></td><td>${one.lease_seconds <= 0 ? "silent" : one.is_draining ? "draining" : "up"}</td>
    <td class="num">${one.trees}</td><td class="num">${Math.max(0, Math.round(one.lease_seconds))} s</td><td>${oneLine(one.version)}</td></tr>`)}/></div>`;

const sandboxWords = ({ program, guarantees, problem, fix }) => (problem ? `none: ${problem}. The shell and git tools are off, unless the settings allow commands without one. ${fix}` : [program, ...guarantees].join("; "));

const THEMES = [["", "As the system"], ["light", "Light"], ["dark", "Dark"]];
const PAGES = [["agents", "Agents"], ["models", "Models"], ["costs", "Costs"], ["deliveries", "Deliveries"], ["health", "Health"]];

async function askToNotify() {
  const reply = await globalThis.Notification?.requestPermission();
  if (reply === "granted") change({ notifies: true });
  else tell("This browser does not let the page notify you. Allow it in the browser's settings for this address.", "bad");
}

export function SettingsPage() {
  const { theme, keys, notifies } = settings.value;
  setTitle("Settings");
  return html`<${Shell}><div class="page"><div class="page-head"><h1>Settings</h1></div><div class="ways">
    <div class="way"><${Icon} name="sun"/><div><div class="strong">Theme</div><div class="sub">Kept in this browser</div></div><div class="seg" role="group" aria-label="Theme">${THEMES.map(([name, text]) => html`<button aria-pressed=${String(theme === name)} onClick=${() => change({ theme: name })}>${text}</button>`)}</div></div>
    <div class="way"><${Icon} name="term"/><div><div class="strong">Keys of one letter</div><div class="sub">j, k, a, x and others. They are always off where you write.</div></div><div class="seg" role="group" aria-label="Keys of one letter"><button aria-pressed=${String(keys)} onClick=${() => change({ keys: true })}>On</button><button aria-pressed=${String(!keys)} onClick=${() => change({ keys: false })}>Off</button></div></div>
    <div class="way"><${Icon} name="inbox"/><div><div class="strong">Notifications</div><div class="sub">When an agent needs you or a run ends, while you look elsewhere</div></div><div class="seg" role="group" aria-label="Notifications"><button aria-pressed=${String(Boolean(notifies))} onClick=${askToNotify}>On</button><button aria-pressed=${String(!notifies)} onClick=${() => change({ notifies: false })}>Off</button></div></div>
    <div class="way"><${Icon} name="gear"/><div><div class="strong">Models, limits and permissions</div><div class="sub">They are set in files, for every client alike</div></div><code class="command">retinue config</code></div>
    <div class="way"><${Icon} name="list"/><div><div class="strong">Other pages</div></div><span class="line wrap">${PAGES.map(([path, text]) => html`<a class="btn" ...${link(path)}>${text}</a>`)}</span></div></div></div><//>`;
}

// Dialogs: a new run, a cancel that ends in a fact, a fork with its price, more budget, and the
// palette that finds runs, agents and actions.

import { useEffect, useRef, useState } from "preact/hooks";
import { get, go, post } from "./client.mjs";
import { Glyph, html, Icon } from "./icons.mjs";
import { all, allLines, attempt, connection } from "./live.mjs";
import { kindOf, wordOf } from "./marks.mjs";
import { Dialog, dialog, KeyList } from "./shell.mjs";
import { count, money, shortId, spanText } from "./words.mjs";

const close = () => (dialog.value = null);
const Close = ({ text = "Close" }) => html`<button class="btn" onClick=${close}>${text}</button>`;

export function Dialogs() {
  const open = dialog.value;
  if (!open) return null;
  const kind = open.kind ?? open;
  const Found = { new: NewRun, keys: KeyList, palette: Palette, cancel: Cancel, fork: Fork, raise: Raise }[kind];
  return Found ? html`<${Found} ...${open.kind ? open : {}}/>` : null;
}

function NewRun({ path = "r" }) {
  const [task, setTask] = useState("");
  const [form, setForm] = useState({ agent: "", model: "", cwd: "", budget: "" });
  const [choices, setChoices] = useState({ agents: [], providers: [] });
  const set = (name) => (event) => setForm({ ...form, [name]: event.target.value });
  const key = useRef(crypto.randomUUID?.() ?? String(Math.random()));
  useEffect(() => {
    Promise.all([get("definitions"), get("models")]).then(([found, models]) => setChoices({ agents: found.agents, providers: models.providers }), () => {});
  }, []);
  const start = async () => {
    if (!task.trim()) return;
    const usd = Number(form.budget.replace("$", ""));
    const terms = { questions: "ask", ...(form.cwd && { cwd: form.cwd }), ...(usd > 0 && { budget: { usd } }) };
    const reply = await attempt(() => post("runs", { task, agent: form.agent, model: form.model, terms }, { "idempotency-key": key.current }));
    if (!reply) return;
    close();
    go(`${path}/${reply.run}`);
  };
  const models = choices.providers.filter((provider) => provider.ready && provider.default);
  return html`<${Dialog} title="New run" footer=${html`<span class="faint grow">It may read. It asks before it writes or runs anything.</span><${Close}/><button class="btn main" disabled=${!task.trim()} onClick=${start}>Start <kbd>Ctrl ↵</kbd></button>`}>
    <div class="body"><form class="form" onSubmit=${(event) => { event.preventDefault(); start(); }} onKeyDown=${(event) => event.key === "Enter" && event.ctrlKey && start()}>
      <label for="new-task">Task</label><textarea id="new-task" autofocus value=${task} onInput=${(event) => setTask(event.target.value)}></textarea>
      <label for="new-agent">Agent</label><select class="pick" id="new-agent" value=${form.agent} onChange=${set("agent")}><option value="">The project's own</option>${choices.agents.map((agent) => html`<option value=${agent.name}>${agent.name}</option>`)}</select>
      <label for="new-model">Model</label><span class="line"><label class="field grow"><input id="new-model" list="new-models" placeholder="The configured one" value=${form.model} onInput=${set("model")}/></label></span>
      <datalist id="new-models"><option value="offline/explorer">no model, no cost</option>${models.map((provider) => html`<option value=${provider.default}>key found</option>`)}</datalist>
      <label for="new-cwd">Folder</label><label class="field"><input id="new-cwd" class="mono" placeholder="The project's folder" value=${form.cwd} onInput=${set("cwd")}/></label>
      <label for="new-budget">Budget</label><label class="field"><input id="new-budget" inputmode="decimal" placeholder="No limit in dollars, or 5.00" value=${form.budget} onInput=${set("budget")}/></label></form></div><//>`;
}

// It names who has to stop, shows who still has to, and ends in a fact.
function Cancel({ tree, nodes: wanted }) {
  const [since, setSince] = useState(0);
  const [took, setTook] = useState(null);
  tree.version.value;
  const [nodes] = useState(() => [...new Set(tree.view.walk(wanted))].filter((one) => !one.isOver));
  const left = nodes.filter((one) => !one.isOver);
  const n = nodes.length;
  useEffect(() => {
    if (since && !left.length && took === null) setTook(Date.now() - since);
  });
  const stop = async () => {
    setSince(Date.now());
    await attempt(() => post("cancel", { runs: wanted.map((one) => one.id) }));
  };
  if (!since) {
    const title = n === 1 ? `Stop ${nodes[0].title}?` : `Stop ${n} agents?`;
    return html`<${Dialog} title=${title} sub="Results that are ready are kept." footer=${html`<${Close} text="Keep running"/><button class="btn danger" disabled=${!connection.value.isLive} onClick=${stop}>Stop ${n}</button>`}><div class="body"><${StopList} nodes=${nodes.slice(0, 8)} more=${n - 8}/></div><//>`;
  }
  const title = took === null ? `Stopping: ${left.length} of ${n} still have to stop` : `${n === 1 ? nodes[0].title : `All ${n}`} stopped in ${spanText(took)}`;
  return html`<${Dialog} label="Stopping" title=${title} sub=${took === null ? "Results that are ready are kept. You can close this; it goes on." : "Results that were ready are kept."} footer=${html`<${Close}/>`}><div class="body"><${StopList} nodes=${(took === null ? left : nodes).slice(0, 8)} more=${(took === null ? left.length : n) - 8}/></div><//>`;
}

const StopList = ({ nodes, more }) => html`<ul class="stop-list">${nodes.map((node) => html`<li key=${node.id}><${Glyph} kind=${kindOf(node.mark)} colored/><span class="cut"><bdi>${node.title}</bdi></span><span class="soft">${wordOf(node.mark)}${node.calls.size ? `, ${[...node.calls.values()][0].slice(0, 40)}` : ""}</span></li>`)}${more > 0 && html`<li><span></span><span class="soft">and ${more} more</span></li>`}</ul>`;

function Fork({ node, at, turn }) {
  const [task, setTask] = useState("");
  const [tag, setTag] = useState(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => get(`runs/${node.id}/fork`, { task, at }).then(setTag, (error) => setProblem(error.message)), tag ? 300 : 0);
    return () => clearTimeout(timer);
  }, [task]);
  const fork = async () => {
    const reply = await attempt(() => post(`runs/${node.id}/fork`, { task, ...(at && { at }) }));
    if (!reply) return;
    close();
    go(`r/${reply.run}`);
  };
  const price = tag && (tag.usd || tag.usd_without_cache);
  const cached = tag?.cached_tokens ?? 0;
  return html`<${Dialog} title=${`Fork ${node.title}`} sub=${`The new run shares the conversation ${at ? `before turn ${turn}` : "so far"} and goes its own way.`} footer=${html`<span class="faint grow">${problem}</span><${Close}/><button class="btn main" disabled=${!task.trim()} onClick=${fork}>${price ? `Fork for about ${money(tag.usd)}` : "Fork"}</button>`}>
    <div class="body"><label class="field"><input autofocus aria-label="What should it do instead" placeholder="What should it do instead" value=${task} onInput=${(event) => setTask(event.target.value)}/></label>
      ${tag && html`<div class="price"><span class="soft">Its first prompt</span><span class="num soft">${count(tag.tokens ?? 0)} tokens</span><span class="num total">${price ? money(tag.usd) : "n/a"}</span>${cached > 0 && html`<span class="soft">Of it from the cache</span><span class="num soft">${count(cached)} tokens</span><span></span>`}${price && money(tag.usd) !== money(tag.usd_without_cache) ? html`<span class="faint">The same without the cache</span><span></span><span class="num faint">${money(tag.usd_without_cache)}</span>` : null}</div>`}</div><//>`;
}

// What those above an agent may still spend: a child gets no more than that.
function useAbove(node) {
  const [above, setAbove] = useState([]);
  useEffect(() => {
    const parents = [];
    for (let one = node.parent; one; one = one.parent) parents.push(one);
    const ask = ({ id, title }) => get(`runs/${id}/budget`).then(({ spending: { limit, spent, held } }) => ({ title, limit: limit?.usd ?? null, left: (limit?.usd ?? 0) - (spent?.usd ?? 0) - (held?.usd ?? 0) }));
    Promise.all(parents.map(ask)).then((all) => setAbove(all.filter(({ limit }) => limit !== null)), () => {});
  }, [node.id]);
  return above;
}

function Raise({ node, spending }) {
  const above = useAbove(node);
  const limit = spending.limit?.usd ?? null;
  const [amount, setAmount] = useState(limit === null ? "" : "1.00");
  const more = Number(amount);
  const raise = async () => {
    const reply = await attempt(() => post(`runs/${node.id}/budget`, { usd: more, by: "you in the dashboard" }), `The limit of ${node.title} is raised by ${money(more)}.`);
    if (reply) close();
  };
  return html`<${Dialog} title=${`Raise the budget of ${node.title}`} sub=${limit === null ? "It has no limit in dollars, so there is nothing to raise." : `It has spent ${money(spending.spent?.usd ?? 0, spending.usd_estimated > 0)} of ${money(limit)}.`} footer=${html`<span class="faint grow">${more > 0 && limit !== null ? `New limit ${money(limit + more)}` : ""}</span><${Close}/><button class="btn main" disabled=${!(more > 0) || limit === null} onClick=${raise}>Raise by ${money(more > 0 ? more : 0)}</button>`}>
    <div class="body"><label class="field"><input autofocus aria-label="Dollars to add" inputmode="decimal" value=${amount} onInput=${(event) => setAmount(event.target.value)}/></label>
      ${above.map(({ title, limit: most, left }) => html`<p class="soft"><bdi>${title}</bdi> has ${money(Math.max(0, left))} of ${money(most)} left.</p>`)}</div><//>`;
}

const ACTIONS = [["Start a new run", "n", () => (dialog.value = "new"), "plus"], ["Show what needs you", "g n", () => go("needs-you"), "inbox"], ["Show all runs", "g r", () => go(""), "list"], ["Chat", "g c", () => go("chat"), "mail"], ["Costs", "", () => go("costs"), "coin"], ["Models and keys", "", () => go("models"), "keyi"], ["Settings", "", () => go("settings"), "gear"], ["All keys", "?", () => (dialog.value = "keys"), "term"]];

function Palette() {
  const [query, setQuery] = useState("");
  const [chosen, setChosen] = useState(0);
  const wanted = query.toLowerCase();
  const has = (text) => text.toLowerCase().includes(wanted);
  const found = [
    ...ACTIONS.filter(([title]) => has(title)).map(([title, key, act, icon]) => ({ title, note: key, act, mark: html`<${Icon} name=${icon}/>` })),
    ...allLines().filter((line) => has(`${line.title} ${shortId(line.id)}`)).map((line) => ({ title: line.title, note: "run", act: () => go(`r/${line.id}`), mark: html`<${Glyph} kind=${kindOf(line.mark)} colored/>` })),
    ...(wanted ? [...all.view.nodes.values()].filter((node) => node.parent && has(node.title)) : []).map((node) => ({ title: `${node.title}, ${wordOf(node.mark).toLowerCase()}`, note: shortId(node.spec.root), act: () => go(`r/${node.spec.root}/${node.id}`), mark: html`<${Glyph} kind=${kindOf(node.mark)} colored/>` })),
  ].slice(0, 12);
  const act = (one) => {
    close();
    one?.act();
  };
  const onKey = (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) setChosen(Math.max(0, Math.min(found.length - 1, chosen + by)));
    else if (event.key === "Enter") act(found[chosen]);
    else return;
    event.preventDefault();
  };
  return html`<${Dialog} label="Find or do anything" kind="palette"><label class="field"><${Icon} name="search" small/><input autofocus role="combobox" aria-expanded="true" aria-controls="palette-list" aria-activedescendant=${found.length ? `found-${chosen}` : undefined} aria-label="Find or do anything" placeholder="Find or do anything" value=${query} onInput=${(event) => { setQuery(event.target.value); setChosen(0); }} onKeyDown=${onKey}/></label>
    <ul role="listbox" id="palette-list" aria-label="Matches">${found.map((one, n) => html`<li role="option" id=${`found-${n}`} aria-selected=${String(n === chosen)} onClick=${() => act(one)}>${one.mark}<span class="cut"><bdi>${one.title}</bdi></span><span class="faint">${one.note}</span></li>`)}</ul>${!found.length && html`<p class="soft note-line">Nothing has these words.</p>`}<//>`;
}


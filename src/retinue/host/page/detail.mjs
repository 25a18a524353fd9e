// The agent that is open: what it is, and its transcript, result, calls and budget.

import { useState } from "preact/hooks";
import { Compose } from "./compose.mjs";
import { html, Icon } from "./icons.mjs";
import { Output, Prose } from "./prose.mjs";
import { BudgetBar, useSpending } from "./budget.mjs";
import { Provenance } from "./provenance.mjs";
import { dialog, Pill } from "./shell.mjs";
import { Failure, Transcript, useMessages } from "./transcript.mjs";
import { count, money, oneLine, parsed } from "./words.mjs";

const TABS = ["Transcript", "Result", "Tools", "Budget", "Raw"];

export function Detail({ tree, node, isOpen, close, past }) {
  const row = tree.row(node.id);
  const [tab, setTab] = useState("Transcript");
  const { title } = node;
  const messages = useMessages(tree, node);
  const nCalls = messages.reduce((sum, message) => sum + (message.calls?.length ?? 0), 0);
  const arrows = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.stopPropagation();
    const next = TABS[(TABS.indexOf(tab) + by + TABS.length) % TABS.length];
    setTab(next);
    event.currentTarget.querySelector(`[data-tab="${next}"]`).focus();
  };
  return html`<section class=${`detail ${isOpen ? "open" : ""}`} id="detail" aria-label=${title}>
    <div class="detail-head"><div class="line"><button class="btn quiet square back" aria-label="Back to the tree" onClick=${close}><${Icon} name="right"/></button><h2 class="cut" tabindex="-1"><bdi>${title}</bdi></h2><${Pill} mark=${row.mark}/><span class="push"></span>
        ${past === null && html`<button class="btn quiet" aria-label="Fork" onClick=${() => (dialog.value = { kind: "fork", node })}><${Icon} name="fork"/>Fork</button>`}
        ${past === null && !node.isOver && html`<button class="btn quiet danger" aria-label="Stop" onClick=${() => (dialog.value = { kind: "cancel", tree, nodes: [node] })}><${Icon} name="stop"/>Stop</button>`}</div>
      ${row.task !== title && html`<p class="soft task-line"><bdi>${row.task}</bdi></p>`}
      <div class="facts"><span><bdi>${row.agent}</bdi> · <b><bdi>${row.model || "no model"}</bdi></b></span><span>Turn <b>${row.turn}</b>${row.max_turns ? ` of ${row.max_turns}` : ""}</span><span>Context <b>${row.window ? `${Math.round((100 * row.context) / row.window)}%` : `${count(row.context)} tokens`}</b></span><span>Spent <b>${money(row.tree_usd, row.tree_usd_estimated > 0)}</b></span>${node.spec.base && html`<${CacheHit} node=${node}/>`}</div></div>
    <div class="tabs" role="tablist" aria-label="Detail" onKeyDown=${arrows}>${TABS.map((name) => html`<button role="tab" data-tab=${name} id=${`tab-${name}`} aria-controls="tab-panel" aria-selected=${String(tab === name)} tabindex=${tab === name ? 0 : -1} onClick=${() => setTab(name)}>${name}${name === "Tools" && nCalls > 0 && html`<span class="n">${nCalls}</span>`}</button>`)}</div>
    ${tab === "Transcript" && html`<${Transcript} tree=${tree} node=${node} messages=${messages} past=${past}/>`}
    ${tab !== "Transcript" && html`<div class="script" id="tab-panel" role="tabpanel" aria-labelledby=${`tab-${tab}`} tabindex="0">
      ${tab === "Result" && html`<${Result} tree=${tree} node=${node}/>`}${tab === "Tools" && html`<${Calls} messages=${messages}/><${Files} messages=${messages}/>`}${tab === "Budget" && html`<${BudgetTab} tree=${tree} node=${node}/>`}${tab === "Raw" && html`<${Raw} node=${node} messages=${messages}/>`}</div>`}
    ${past === null && html`<${Compose} node=${node} label=${title}/>`}
  </section>`;
}

// What the first prompt of a fork had from the provider's cache, beside what its price tag said.
function CacheHit({ node }) {
  const { prompt = 0, cached = 0 } = node.spec.tag ?? {};
  const first = node.phases.turns[0]?.usage;
  const expected = `${count(cached)} of ${count(prompt)} tokens expected`;
  return html`<span>First prompt <b>${first ? `${count(first.cache_read ?? 0)} of ${count(first.input ?? 0)}` : "not sent yet:"}</b> ${first ? `from the cache, ${expected}` : `${expected} from the cache`}</span>`;
}

function Result({ tree, node }) {
  const { ending } = node;
  if (!ending) return html`<p class="soft">No result yet. It comes here when ${node.title} ends.</p>`;
  return html`<div class="stack"><${Failure} node=${node} row=${tree.row(node.id)}/>
    ${ending.text && html`<${Prose} text=${ending.text}/>`}${ending.data !== undefined && ending.data !== null && html`<${Output} text=${typeof ending.data === "string" ? ending.data : JSON.stringify(ending.data, null, 2)}/>`}
    <${Provenance} node=${node}/>
    ${(ending.artifacts ?? []).map((one) => html`<a class="link" href=${new URL(`../api/v1/artifacts/${one.sha256}`, import.meta.url).pathname} download>The whole text, ${count(one.size ?? 0)} bytes</a>`)}</div>`;
}

function Calls({ messages }) {
  const counts = new Map();
  const failed = new Map();
  const names = new Map();
  for (const message of messages) {
    for (const call of message.calls ?? []) {
      counts.set(call.name, (counts.get(call.name) ?? 0) + 1);
      names.set(call.id, call.name);
    }
    if (message.role === "tool" && message.error) {
      const name = names.get(message.call_id);
      failed.set(name, (failed.get(name) ?? 0) + 1);
    }
  }
  if (!counts.size) return html`<p class="soft">It has called no tool.</p>`;
  return html`<table class="table"><thead><tr><th>Tool</th><th class="num">Calls</th><th class="num">Failed</th></tr></thead><tbody>${[...counts].sort((a, b) => b[1] - a[1]).map(([name, n]) => html`<tr><td><code>${oneLine(name, 80)}</code></td><td class="num">${n}</td><td class="num">${failed.get(name) ?? 0}</td></tr>`)}</tbody></table>`;
}

// Which files its calls named, and what for.
function Files({ messages }) {
  const files = new Map();
  for (const call of messages.flatMap((message) => message.calls ?? [])) {
    const { path } = parsed(call.args ?? "{}");
    if (typeof path !== "string" || !path) continue;
    const [nRead, nChanged] = files.get(path) ?? [0, 0];
    files.set(path, CHANGES.includes(call.name) ? [nRead, nChanged + 1] : [nRead + 1, nChanged]);
  }
  if (!files.size) return null;
  return html`<table class="table"><thead><tr><th>File</th><th class="num">Read</th><th class="num">Changed</th></tr></thead><tbody>${[...files].map(([path, [nRead, nChanged]]) => html`<tr key=${path}><td class="wrap"><code><bdi>${oneLine(path, 200)}</bdi></code></td><td class="num">${nRead}</td><td class="num">${nChanged}</td></tr>`)}</tbody></table>`;
}
const CHANGES = ["edit", "write"];

const NAMES = { usd: "Dollars", tokens: "Tokens", turns: "Turns", calls: "Tool calls" };
function BudgetTab({ tree, node }) {
  const spending = useSpending(tree, node);
  if (!spending) return html`<p class="soft">Reading its budget.</p>`;
  const text = (name, value, isBound) => (name === "usd" ? money(value, isBound) : (isBound ? "≤" : "") + count(value));
  return html`<div class="stack"><p class="soft">For ${node.title} and everything below it.</p>${Object.entries(NAMES).map(([name, title]) => {
    const spent = spending.spent?.[name] ?? 0;
    const held = spending.held?.[name] ?? 0;
    const limit = spending.limit?.[name] ?? null;
    return html`<div class="stack"><div class="line"><b>${title}</b><span class="push tab-nums soft">${text(name, spent, (spending[`${name}_estimated`] ?? 0) > 0)} spent${held ? `, ${text(name, held)} reserved` : ""}${limit === null ? ", no limit" : ` of ${text(name, limit)}`}</span></div>${limit !== null && html`<${BudgetBar} spent=${spent} held=${held} limit=${limit}/>`}</div>`;
  })}${!node.isOver && html`<div class="line"><button class="btn" onClick=${() => (dialog.value = { kind: "raise", tree, node, spending })}>Raise</button></div>`}</div>`;
}

function Raw({ node, messages }) {
  const text = messages.map((message) => JSON.stringify(message)).join("\n");
  return html`<div class="stack"><div class="line"><span class="grow soft mono cut">${node.id}</span><button class="btn" onClick=${() => navigator.clipboard?.writeText(text)}><${Icon} name="copy" small/>Copy</button></div><${Output} text=${text}/></div>`;
}

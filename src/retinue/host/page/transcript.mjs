// The conversation of one agent: turns, what it said, its calls folded to one line, the messages of
// a person with their receipts.

import { useEffect, useRef, useState } from "preact/hooks";
import { get, link, place } from "./client.mjs";
import { itemsOf } from "./conversation.mjs";
import { html, Icon } from "./icons.mjs";
import { now } from "./live.mjs";
import { Diff, Output, Prose } from "./prose.mjs";
import { dialog } from "./shell.mjs";
import { clock, count, mainArgument, oneLine, parsed, severalLines, size, span } from "./words.mjs";

const PAGE = 200;
const MOST_ITEMS = 100;

// The messages of a run: those on record, and more whenever it has more.
export function useMessages(tree, node) {
  const [messages, setMessages] = useState([]);
  tree.row(node.id);
  const length = node.run?.length ?? 0;
  useEffect(() => {
    let isGone = false;
    const more = async (have) => {
      const reply = await get(`runs/${node.id}/transcript`, { start: have.length, limit: PAGE }).catch(() => null);
      if (isGone || !reply) return;
      const all = [...have, ...reply.messages];
      setMessages(all);
      if (reply.messages.length && all.length < reply.length) more(all);
    };
    more(messages);
    return () => {
      isGone = true;
    };
  }, [node.id, length, node.replied]);
  return messages;
}

export function Transcript({ tree, node, messages, past }) {
  const [query, setQuery] = useState("");
  const [nShown, setShown] = useState(MOST_ITEMS);
  const box = useRef(null);
  const [isTail, setTail] = useState(true);
  tree.row(node.id); // what it reads of the node changes in place
  const turn = Number(place.value.query.get("turn") ?? 0);
  const all = itemsOf(messages, node.phases).filter((item) => past === null || !item.turn || item.turn.at <= past);
  const found = query ? all.filter((item) => JSON.stringify(item.text ?? item.message?.text ?? item.calls?.map((c) => [c.call, c.result?.text]) ?? "").toLowerCase().includes(query.toLowerCase())) : all;
  const items = found.slice(-nShown);
  const last = JSON.stringify([all.length, node.writing.length, node.calls.size]);
  useEffect(() => {
    if (isTail && !turn && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [last, isTail]);
  useEffect(() => {
    if (turn) box.current?.querySelector(`[data-turn="${turn}"]`)?.scrollIntoView({ block: "start" });
  }, [turn, messages.length > 0]);
  const onScroll = ({ currentTarget: el }) => setTail(el.scrollHeight - el.scrollTop - el.clientHeight < 40);
  return html`<div class="script-tools"><label class="field grow"><${Icon} name="search" small/><input aria-label="Search the transcript" placeholder="Search the transcript" value=${query} onInput=${(event) => setQuery(event.target.value)}/></label><button class="btn quiet square" aria-label="Copy as Markdown" title="Copy as Markdown" onClick=${() => navigator.clipboard?.writeText(asMarkdown(all))}><${Icon} name="copy" small/></button></div>
    <div class="script" ref=${box} role="log" aria-label="Transcript" aria-live="off" tabindex="0" id="tab-panel" onScroll=${onScroll}>
      ${found.length > items.length && html`<button class="btn" onClick=${() => setShown(nShown + MOST_ITEMS)}>Show ${Math.min(MOST_ITEMS, found.length - items.length)} earlier</button>`}
      ${!items.length && html`<p class="soft">${query ? "Nothing here has these words." : "Nothing was said yet."}</p>`}
      ${items.map((item, n) => html`<${Item} key=${`${found.length - items.length + n}`} item=${item} tree=${tree} node=${node}/>`)}
      ${past === null && node.writing && html`<div class="say"><p>${oneLine(node.writing)}<span class="caret"></span></p></div>`}
    </div>${!isTail && html`<button class="btn to-tail" onClick=${() => setTail(true)}>To the newest</button>`}`;
}

function Item({ item, tree, node }) {
  if (item.kind === "turn") {
    const { turn } = item;
    const { input = 0, cache_read: cached = 0, output = 0 } = turn?.usage ?? {};
    return html`<div class="turn-mark" data-turn=${item.n}><span>${turn ? `Turn ${item.n}` : "Before this run"}</span>${turn && html`<span class="tail">${clock(turn.at, true)} · ${count(input)} in${cached ? `, ${count(cached)} from cache` : ""}, ${count(output)} out</span>`}<button class="link plain" aria-label=${turn ? `Fork before turn ${item.n}` : "Fork before this"} onClick=${() => (dialog.value = { kind: "fork", node, at: item.at, turn: item.n })}>Fork</button></div>`;
  }
  if (item.kind === "say") return html`<${Prose} text=${item.text}/>`;
  if (item.kind === "calls") return html`<div class="calls">${item.calls.map((one) => html`<${Call} key=${one.index} ...${one} tree=${tree} node=${node}/>`)}</div>`;
  if (item.kind === "mail") return html`<div class="mail"><div class="line"><b>You</b><span class="faint">${item.mail ? `to ${node.title}, ${clock(item.mail.at)}` : ""}</span></div><div><bdi>${severalLines(item.message.text)}</bdi></div><${Receipt} mail=${item.mail} node=${node}/></div>`;
  const { message } = item;
  return html`<div class="say task"><span class="from">${FROM[message.kind ?? "task"] ?? "Note"}${message.sender ? ` from ${oneLine(message.sender, 80)}` : ""}</span><${Prose} text=${message.text}/></div>`;
}
const FROM = { task: "Task", mail: "Message", news: "News of a sub-agent", note: "Note", nudge: "Reminder", summary: "Summary" };

// What happened to a message, with the turn that read it. Steps that are not reached have a ring.
export function Receipt({ mail, node }) {
  if (!mail) return null;
  const step = (text, isDone = true) => html`<span class=${`step ${isDone ? "" : "todo"}`}><${Icon} name=${isDone ? "check" : "ring"}/>${text}</span>`;
  const arrow = html`<span class="arrow">→</span>`;
  if (!mail.readIn && node.isOver) {
    return html`<div class="receipt">${step(`Queued ${clock(mail.at, true)}`)}<span class="badge bad">Not read</span><span>${node.title} ended before its next turn. Resume it below with this message.</span></div>`;
  }
  const first = mail.steer ? `Steered ${clock(mail.at, true)}` : `Queued ${clock(mail.at, true)}`;
  const isDelivered = mail.readIn || node.phases.segments.some((s) => s.kind === "model" && s.from >= mail.at);
  const at = mail.deliveredAt ?? node.phases.segments.find((s) => s.kind === "model" && s.from >= mail.at)?.from;
  return html`<div class="receipt">${step(first)}${arrow}${isDelivered ? step(`Delivered ${clock(at, true)}`) : step("Delivered when its call ends", false)}${arrow}${mail.readIn ? step(`Read in turn ${mail.readIn}`) : step("Read at its next turn", false)}</div>`;
}

function Call({ call, index, turn, result, tree, node }) {
  const [isOpen, setOpen] = useState(null);
  const children = node.children.filter((child) => child.spec.slot?.call_id === call.id);
  const isLive = !result && !node.isOver && node.phases.turns.at(-1) === turn;
  const shown = isOpen ?? isLive;
  const end = turn?.done[index] ?? (isLive ? now.value : null);
  const text = result?.text ?? "";
  const note = children.length ? (children.length === 1 ? "child" : `${children.length} children`) : result ? size(text) : "";
  return html`<button class=${`call ${isLive ? "live" : ""}`} aria-expanded=${String(shown)} onClick=${() => setOpen(!shown)}><${Icon} name=${shown ? "down" : "right"}/><span class="fn cut">${oneLine(call.name, 80)}</span><span class="arg cut"><bdi>${mainArgument(call)}</bdi></span><span class="num size">${result?.error ? "failed" : note}</span><span class="num">${turn && end ? span(end - turn.at) : ""}</span></button>
    ${shown && html`<${CallBody} call=${call} result=${result} children=${children} node=${node}/>`}`;
}

function CallBody({ call, result, children, node }) {
  const args = parsed(call.args ?? "{}");
  const change = editOf(call.name, args);
  const root = node.spec.root;
  return html`<div class="call-open">${children.length > 0 && html`<p class="children">${children.map((child) => html`<a class="link" key=${child.id} ...${link(`r/${root}/${child.id}`)}>${child.title}</a> `)}</p>`}
    ${change ? html`<div class="diff"><${Diff} diff=${change}/></div>` : html`<${Output} text=${argumentText(call, args)}/>`}
    ${result && html`<${Output} text=${result.text || "(no output)"}/>`}${result?.images?.length > 0 && html`<p class="soft">${result.images.length} ${result.images.length === 1 ? "picture" : "pictures"}, in Raw.</p>`}</div>`;
}

// An edit is shown as what goes and what comes.
function editOf(name, args) {
  if (name === "edit" && typeof args.patch === "string" && args.patch) return args.patch;
  if (name !== "edit" || typeof args.old !== "string" || typeof args.new !== "string") return "";
  const lines = (text, sign) => text.split("\n").map((line) => sign + line);
  return [...lines(args.old, "-"), ...lines(args.new, "+")].join("\n");
}

function argumentText(call, args) {
  const entries = Object.entries(args);
  if (!entries.length) return call.args && call.args !== "{}" ? call.args : "(no arguments)";
  return entries.map(([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join("\n");
}

function asMarkdown(items) {
  return items
    .map((item) => {
      if (item.kind === "turn") return `## Turn ${item.n}`;
      if (item.kind === "say") return item.text;
      if (item.kind === "calls") return item.calls.map(({ call, result }) => `- \`${call.name}\` ${mainArgument(call)}\n\n\`\`\`\n${result?.text ?? ""}\n\`\`\``).join("\n");
      return `> ${item.message.text.replaceAll("\n", "\n> ")}`;
    })
    .join("\n\n");
}

// The conversation of one agent: turns, what it said, its calls folded to one line, the messages of
// a person with their receipts.

import { useEffect, useRef, useState } from "preact/hooks";
import { get, link, place } from "./client.mjs";
import { itemsOf } from "./conversation.mjs";
import { html, Icon } from "./icons.mjs";
import { now } from "./live.mjs";
import { Diff } from "./diff.mjs";
import { Output, Prose } from "./prose.mjs";
import { dialog, Trouble } from "./shell.mjs";
import { retry } from "./steering.mjs";
import { clock, count, mainArgument, money, oneLine, parsed, plural, priceOf, severalLines, size, span } from "./words.mjs";

const PAGE = 200;
const MOST_ITEMS = 100;
const MOST_HITS = 1_000;

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
  const nBack = turn && !query ? all.length - all.findIndex((item) => item.kind === "turn" && item.n === turn) : 0;
  const items = found.slice(-Math.max(nShown, nBack > all.length ? 0 : nBack));
  const nSeen = useRef(0);
  if (isTail) nSeen.current = all.length;
  const last = JSON.stringify([all.length, node.writing.length, node.calls.size]);
  useEffect(() => {
    if (isTail && !turn && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [last, isTail]);
  useEffect(() => {
    if (turn) box.current?.querySelector(`[data-turn="${turn}"]`)?.scrollIntoView({ block: "start" });
  }, [turn, messages.length > 0]);
  useHits(box, query);
  const onScroll = ({ currentTarget: el }) => setTail(el.scrollHeight - el.scrollTop - el.clientHeight < 40);
  return html`<div class="script-tools"><label class="field grow"><${Icon} name="search" small/><input aria-label="Search the transcript" placeholder="Search the transcript" value=${query} onInput=${(event) => setQuery(event.target.value)}/></label><button class="btn quiet square" aria-label="Copy as Markdown" title="Copy as Markdown" onClick=${() => navigator.clipboard?.writeText(asMarkdown(all))}><${Icon} name="copy" small/></button></div>
    <div class="script" ref=${box} role="log" aria-label="Transcript" aria-live="off" tabindex="0" id="tab-panel" onScroll=${onScroll}>
      ${found.length > items.length && html`<button class="btn" onClick=${() => setShown(nShown + MOST_ITEMS)}>Show ${Math.min(MOST_ITEMS, found.length - items.length)} earlier</button>`}
      ${!items.length && html`<p class="soft">${query ? "Nothing here has these words." : "Nothing was said yet."}</p>`}
      ${items.map((item, n) => html`<${Item} key=${`${found.length - items.length + n}`} item=${item} tree=${tree} node=${node} query=${query}/>`)}
      ${past === null && !query && html`<${Failure} node=${node} row=${tree.row(node.id)}/>`}
      ${past === null && node.writing && html`<div class="say"><p>${oneLine(node.writing)}<span class="caret"></span></p></div>`}
    </div>${!isTail && html`<button class="btn to-tail" onClick=${() => setTail(true)}>${all.length > nSeen.current ? `${all.length - nSeen.current} new below` : "To the newest"}</button>`}`;
}

// The words that are searched for are marked where they are shown; nothing of the text changes.
function useHits(box, query) {
  useEffect(() => {
    if (!globalThis.Highlight) return undefined;
    const ranges = [];
    const texts = query && document.createTreeWalker(box.current, NodeFilter.SHOW_TEXT);
    while (query && texts.nextNode() && ranges.length < MOST_HITS) {
      const text = texts.currentNode.data.toLowerCase();
      for (let at = text.indexOf(query.toLowerCase()); at >= 0; at = text.indexOf(query.toLowerCase(), at + query.length)) {
        const range = new Range();
        range.setStart(texts.currentNode, at);
        range.setEnd(texts.currentNode, Math.min(at + query.length, texts.currentNode.data.length));
        ranges.push(range);
      }
    }
    CSS.highlights.set("hit", new Highlight(...ranges));
    return () => CSS.highlights.delete("hit");
  });
}

// Why an agent has failed, what is kept, and what to do.
export function Failure({ node, row }) {
  if (!node.ending || ["completed", "cancelled"].includes(row.mark)) return null;
  const nTurns = node.phases.turns.length || row.turn;
  const parent = node.parent && (node.parent.isOver ? `${node.parent.title} has ended, too.` : `${node.parent.title} was told, and goes on.`);
  const kept = `${plural(nTurns, "turn")} with ${plural(node.run.usage?.calls ?? 0, "call")}${node.ending.text ? ", its partial result" : ""}. ${money(row.tree_usd, row.tree_usd_estimated > 0)} was spent.`;
  return html`<${Trouble} title=${`${node.title}: ${row.mark === "at_limit" ? "stopped at limit" : "failed"}`} cause=${severalLines(node.ending.error || row.now)} kept=${kept} next=${`${parent ?? ""} Retry starts a run with the same conversation.`}><button class="btn main" onClick=${() => retry(node)}>Retry</button><//>`;
}

function Item({ item, tree, node, query }) {
  if (item.kind === "turn") {
    const { turn } = item;
    const { input = 0, cache_read: cached = 0, output = 0 } = turn?.usage ?? {};
    return html`<div class="turn-mark" data-turn=${item.n}><span>${turn ? `Turn ${item.n}` : "Before this run"}</span>${turn && html`<span class="tail">${clock(turn.at, true)} · ${count(input)} in${cached ? `, ${count(cached)} from cache` : ""}, ${count(output)} out${turnPrice(tree, node, turn)}</span>`}<button class="link plain" aria-label=${turn ? `Fork before turn ${item.n}` : "Fork before this"} onClick=${() => (dialog.value = { kind: "fork", node, at: item.at, turn: item.n })}>Fork</button></div>`;
  }
  if (item.kind === "say") return html`<${Prose} text=${item.text}/>`;
  if (item.kind === "calls") return html`<div class="calls">${item.calls.map((one) => html`<${Call} key=${one.index} ...${one} node=${node} query=${query}/>`)}</div>`;
  if (item.kind === "mail") return html`<div class="mail"><div class="line"><b>You</b><span class="faint">${item.mail ? `to ${node.title}, ${clock(item.mail.at)}` : ""}</span></div><div><bdi>${severalLines(item.message.text)}</bdi></div><${Receipt} mail=${item.mail} node=${node}/></div>`;
  const { message } = item;
  return html`<div class="say task"><span class="from">${FROM[message.kind ?? "task"] ?? "Note"}${message.sender ? ` from ${oneLine(message.sender, 80)}` : ""}</span><${Prose} text=${message.text}/></div>`;
}
function turnPrice(tree, node, { model, usage }) {
  const { models } = tree.view;
  const price = priceOf(models.get(model) ?? models.get(node.spec.model), usage);
  return price === null ? "" : ` · ${money(price)}`;
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
  const first = mail.steer ? `Steered ${clock(mail.at, true)}${mail.cuts ? ", its turn was cut short" : ""}` : `Queued ${clock(mail.at, true)}`;
  const isDelivered = mail.readIn || node.phases.segments.some((s) => s.kind === "model" && s.from >= mail.at);
  const at = mail.deliveredAt ?? node.phases.segments.find((s) => s.kind === "model" && s.from >= mail.at)?.from;
  return html`<div class="receipt">${step(first)}${arrow}${isDelivered ? step(`Delivered ${clock(at, true)}`) : step("Delivered when its call ends", false)}${arrow}${mail.readIn ? step(`Read in turn ${mail.readIn}`) : step("Read at its next turn", false)}</div>`;
}

function Call({ call, index, turn, result, node, query }) {
  const [isOpen, setOpen] = useState(null);
  const children = node.children.filter((child) => child.spec.slot?.call_id === call.id);
  const isLive = !result && !node.isOver && node.phases.turns.at(-1) === turn;
  const has = (text) => Boolean(query) && (text ?? "").toLowerCase().includes(query.toLowerCase());
  const shown = isOpen ?? (isLive || has(result?.text) || has(call.args));
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

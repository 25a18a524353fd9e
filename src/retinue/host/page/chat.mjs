// Chat: talk with an agent, and see its sub-agents work beside it. A conversation is a run, and the
// runs that continue it.

import { useEffect, useRef } from "preact/hooks";
import { Budget } from "./budget.mjs";
import { go, link, place } from "./client.mjs";
import { Compose } from "./compose.mjs";
import { itemsOf } from "./conversation.mjs";
import { Glyph, html, Icon } from "./icons.mjs";
import { Lane } from "./lanes.mjs";
import { allLines, now, pages, questions } from "./live.mjs";
import { kindOf, wordOf } from "./marks.mjs";
import { Prose } from "./prose.mjs";
import { Provenance } from "./provenance.mjs";
import { QuestionTitle } from "./questions.mjs";
import { useTree } from "./run_tree.mjs";
import { dialog, Empty, Pill, setTitle, Shell } from "./shell.mjs";
import { extent, scaleOf } from "./timeline.mjs";
import { Receipt, useMessages } from "./transcript.mjs";
import { bare, clock, money, plural, span } from "./words.mjs";

const startNew = () => (dialog.value = { kind: "new", path: "chat" });

export function ChatPage() {
  const run = place.value.parts[1];
  setTitle("Chat");
  const lines = allLines();
  const continued = new Set(lines.map((line) => line.resumes));
  const talks = lines.filter((line) => !continued.has(line.id)).sort((a, b) => b.created - a.created);
  if (!talks.length && !run && !pages.value.isLoading) return html`<${Shell}><${Empty} title="No conversations yet"><p>Talk with an agent here and see the agents it starts work beside it. Every run is a conversation: it can be read, answered and continued.</p><div class="line"><button class="btn main big" onClick=${startNew}>New conversation</button></div><//><//>`;
  const shown = run ?? talks[0]?.id;
  return html`<${Shell} isFull><h1 class="hide">Chat</h1><div class=${`chat ${run ? "" : "choosing"}`}><section class="chat-list" aria-label="Conversations">
    <div class="line chat-new"><h2 class="grow list-h">Chat</h2><button class="btn" onClick=${startNew}><${Icon} name="plus" small/>New</button></div>
    ${talks.slice(0, 100).map((line) => html`<a key=${line.id} ...${link(`chat/${line.id}`)} aria-current=${line.id === shown ? "true" : undefined}><${Glyph} kind=${kindOf(line.mark)} colored/><span class="cut"><bdi>${line.title}</bdi></span><span class="sub cut">${line.agent}, ${line.n > 1 ? plural(line.n - 1, "sub-agent") : clock(line.created)}</span></a>`)}</section>
    ${shown && html`<${Talk} key=${shown} run=${shown}/>`}</div><//>`;
}

function Talk({ run }) {
  const [tree, problem] = useTree(run, (root) => go(`chat/${root}`, {}, { replace: true }));
  tree.shape.value;
  const top = tree.view.tops[0];
  if (problem.value && !top) return html`<section class="talk"><p class="soft note-line">${problem.value.message ?? problem.value.detail}</p></section>`;
  return top && html`<${Words} tree=${tree} top=${top}/><${Staff} tree=${tree} top=${top}/>`;
}

function Words({ tree, top }) {
  const row = tree.row(top.id);
  const messages = useMessages(tree, top);
  const box = useRef(null);
  const isTail = useRef(true);
  const asked = questions.value.filter((q) => q.root === top.id);
  useEffect(() => {
    if (isTail.current) box.current.scrollTop = box.current.scrollHeight;
  });
  const onScroll = ({ currentTarget: el }) => (isTail.current = el.scrollHeight - el.scrollTop - el.clientHeight < 40);
  return html`<section class="talk" aria-label=${`Conversation with ${row.agent}`}>
    <div class="talk-head"><a class="btn quiet square back" ...${link("chat")} aria-label="All conversations"><${Icon} name="right"/></a><h2 class="cut"><bdi>${top.title}</bdi></h2><${Pill} mark=${row.mark}/><span class="push"></span><span class="soft tab-nums">${money(row.tree_usd, row.tree_usd_estimated > 0)}</span><a class="btn" ...${link(`r/${top.id}`)}>Open as run</a></div>
    <div class="talk-scroll" ref=${box} tabindex="0" role="log" aria-label="Messages" onScroll=${onScroll}><div class="talk-col">
      ${itemsOf(messages, top.phases).map((item, n) => html`<${Said} key=${n} item=${item} top=${top} row=${row}/>`)}
      ${top.writing && html`<${Prose} text=${top.writing}/>`}
      ${asked.map((q) => html`<div class="spawned asked" key=${q.id}><${Glyph} kind="you" colored/><span class="grow"><${QuestionTitle} q=${q}/></span><a class="btn main" ...${link("needs-you", { q: q.id })}>${q.kind === "permission" ? "Review" : "Answer"}</a></div>`)}
      ${top.ending && html`<${Provenance} node=${top}/>`}
      ${top.isOver && row.mark !== "completed" && html`<p class="soft"><span class=${`word is-${kindOf(row.mark)}`}>${wordOf(row.mark)}</span> ${row.now}</p>`}
    </div></div><${Compose} node=${top} label=${row.agent} path="chat" others=${[...tree.view.walk(top.children)]}/></section>`;
}

// What was said. Calls are left out, but for those that started agents; the run has all of them.
function Said({ item, top, row }) {
  const { kind, message, mail } = item;
  if (kind === "turn") return html`<div class="by"><b>${row.agent}</b><span>${[row.model, item.turn && `turn ${item.n}`].filter(Boolean).join(", ")}</span></div>`;
  if (kind === "say") return html`<${Prose} text=${item.text}/>`;
  if (kind === "calls") return item.calls.map(({ call }) => html`<${Started} key=${call.id} nodes=${top.children.filter((child) => child.spec.slot?.call_id === call.id)} top=${top}/>`);
  if (kind === "mail" || (message.kind ?? "task") === "task") return html`<div class="msg-wrap"><div class="msg-you"><${Prose} text=${message.text}/></div><${Receipt} mail=${mail} node=${top}/></div>`;
  return null;
}

function Started({ nodes, top }) {
  if (!nodes.length) return null;
  return html`<div class="spawned"><${Icon} name="map"/><span class="grow"><b>${plural(nodes.length, "sub-agent")} started</b> ${nodes.map((node, n) => html`${n ? ", " : ""}<a class="link" ...${link(`r/${top.id}/${node.id}`)}><bdi>${node.title}</bdi></a>`)}</span><span class="tab-nums">${nodes.filter((node) => node.isOver).length} of ${nodes.length} done</span></div>`;
}

function Staff({ tree, top }) {
  tree.version.value;
  const nodes = [...tree.view.walk(top.children)];
  const scale = scaleOf(extent([top, ...nodes], now.value));
  const busy = nodes.filter((node) => !node.isOver).sort((a, b) => b.lastAt - a.lastAt)[0];
  return html`<aside class="staff" aria-label="Sub-agents at work"><div class="staff-head"><h2>At work for this answer</h2><span class="push soft tab-nums">${span(scale.to - scale.from)}</span></div>
    <div class="staff-rows">${nodes.slice(0, 100).map((node) => html`<${StaffRow} key=${node.id} tree=${tree} node=${node} top=${top} scale=${scale}/>`)}${!nodes.length && html`<p class="soft note-line">It works alone. Agents that it starts appear here.</p>`}</div>
    ${busy && html`<div class="peek"><div class="line"><span class="label grow cut">${busy.title}, live</span><a class="link label" ...${link(`r/${top.id}/${busy.id}`)}>Open</a></div>${(busy.writing || busy.said) && html`<${Prose} text=${busy.writing || busy.said}/>`}
      ${busy.calls.size > 0 && html`<div class="calls">${[...busy.calls.values()].map((call) => html`<div class="call live"><${Icon} name="right"/><span class="arg cut"><bdi>${call}</bdi></span></div>`)}</div>`}</div>`}
    <div class="staff-foot"><${Budget} tree=${tree} node=${top} isOpen=${!top.isOver}/></div></aside>`;
}

function StaffRow({ tree, node, top, scale }) {
  const row = tree.row(node.id);
  const kind = kindOf(row.mark);
  return html`<a class=${`srow is-${kind}`} ...${link(`r/${top.id}/${node.id}`)}><${Glyph} kind=${kind}/><span class="line"><b class="cut strong"><bdi>${node.title}</bdi></b><span class="faint cut">${row.agent === node.title ? "" : row.agent}</span></span><span class="num">${row.tree_tokens ? money(row.tree_usd) : "–"}</span><span class="sub line"><span class="word">${wordOf(row.mark)}</span><span class="cut grow"><bdi>${bare(row.now)}</bdi></span><span class="tab-nums">${span(row.elapsed_ms)}</span></span><${Lane} node=${node} scale=${scale} at=${null} select=${() => {}}/></a>`;
}

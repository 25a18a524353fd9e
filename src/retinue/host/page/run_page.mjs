// One run: its head with budget and questions, the tree, and the agent that is open beside it.

import { useSignal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { Budget } from "./budget.mjs";
import { go, link, place } from "./client.mjs";
import { Detail } from "./detail.mjs";
import { Glyph, html, Icon } from "./icons.mjs";
import { isStale, now, questions } from "./live.mjs";
import { kindOf, loudest, LOUDNESS, wordOf } from "./marks.mjs";
import { askedAt, QuestionTitle } from "./questions.mjs";
import { useTree } from "./run_tree.mjs";
import { dialog, Pill, setTitle, Shell, store, stored, Trouble, useKeys } from "./shell.mjs";
import { retryAll } from "./steering.mjs";
import { TreePane } from "./tree_pane.mjs";
import { clock, shortId, span } from "./words.mjs";

export function RunPage() {
  const [, run, agent] = place.value.parts;
  const [tree, problem] = useTree(run, (root) => go(`r/${root}/${run}`, {}, { replace: true }));
  tree.shape.value;
  const top = tree.view.tops[0];
  if (problem.value && !top) return html`<${Shell}><div class="page"><${Gone} problem=${problem.value} run=${run}/></div><//>`;
  if (!top) return html`<${Shell} isFull><div class="page late" aria-busy="true"><span class="hide">Loading the run</span></div><//>`;
  return html`<${Shell} isFull><${RunBody} key=${run} tree=${tree} top=${top} agent=${agent}/><//>`;
}

const Gone = ({ problem, run }) => html`<${Trouble} title=${`Run ${shortId(run)} cannot be shown`} cause=${problem.message ?? problem.detail} next="It may have been deleted, or belong to another project. The list has all that are there."><a class="btn" ...${link("")}>Back to Runs</a><//>`;

function RunBody({ tree, top, agent }) {
  const row = tree.row(top.id);
  const selected = tree.view.nodes.get(agent) ?? top;
  const { title } = top;
  const mine = questions.value.filter((q) => q.root === top.id);
  const began = top.spec.created_at ?? 0;
  const moment = place.value.query.get("at");
  const past = useSignal(moment ? began + Number(moment) * 1_000 : null);
  const select = (id, more = {}) => {
    const { view = "", q = "", at = "" } = Object.fromEntries(place.value.query);
    go(`r/${top.id}${id ? `/${id}` : ""}`, { view, q, at, ...more }, { replace: true });
  };
  const [width, setWidth] = useState(stored("detail").width ?? 0);
  // The moment is in the address, so that a link has it; not while it is dragged.
  useEffect(() => {
    const at = past.value === null ? "" : ((past.value - began) / 1_000).toFixed(1);
    const timer = setTimeout(() => at !== (place.value.query.get("at") ?? "") && go(place.value.path, { ...Object.fromEntries(place.value.query), at }, { replace: true }), 300);
    return () => clearTimeout(timer);
  }, [past.value]);
  const close = () => {
    select("");
    requestAnimationFrame(() => document.querySelector(`[data-id="${selected.id}"]`)?.focus());
  };
  const failed = [...tree.view.nodes.values()].filter((node) => node.mark === "failed" && node.parent);
  setTitle(title);
  useKeys({
    a: () => mine.length && go("needs-you", { q: mine[0].id }),
    x: () => (selected.isOver ? false : (dialog.value = { kind: "cancel", tree, nodes: [selected] })),
    f: () => (dialog.value = { kind: "fork", node: selected }),
    m: () => document.querySelector(".compose textarea")?.focus(),
    Escape: () => {
      if (past.value !== null) past.value = null;
      else if (agent) close();
    },
    R: () => failed.length > 0 && retryAll(failed),
  });
  return html`<${Head} tree=${tree} top=${top} row=${row} title=${title} failed=${failed}/>
    ${mine.slice(0, 1).map((q) => html`<${Ask} key=${q.id} q=${q} n=${mine.length}/>`)}
    ${past.value !== null && html`<div class="notice past" role="status"><${Icon} name="play"/><span class="grow cut"><b>You are looking at ${clock(past.value, true)}.</b> ${top.isOver ? "The run has ended." : "The run goes on."}</span><button class="btn" onClick=${() => (past.value = null)}>Back to ${top.isOver ? "the end" : "live"} <kbd>Esc</kbd></button></div>`}
    <div class=${`work ${isStale.value ? "stale" : ""}`} style=${{ "--kept": width ? `${width}px` : "" }}><${TreePane} tree=${tree} top=${top} selected=${selected.id} select=${select} past=${past}/><${Detail} key=${selected.id} tree=${tree} node=${selected} past=${past.value} isOpen=${Boolean(agent)} close=${close}/><${Divider} set=${setWidth}/></div>`;
}

// Between the tree and the detail: dragged, moved with the arrow keys, and set back by two clicks.
function Divider({ set }) {
  const keep = (width) => {
    store("detail", { width });
    set(width);
  };
  const room = () => Math.max(320, Math.min(innerWidth - 480, document.getElementById("detail")?.offsetWidth ?? 480));
  const drag = (event) => {
    if (event.type === "pointerdown") event.currentTarget.setPointerCapture(event.pointerId);
    else if (event.buttons) keep(Math.max(320, Math.min(innerWidth - 480, innerWidth - event.clientX)));
  };
  const onKey = (event) => {
    const by = { ArrowLeft: 32, ArrowRight: -32 }[event.key];
    if (!by) return;
    event.stopPropagation();
    keep(room() + by);
  };
  return html`<div class="divider" role="separator" aria-orientation="vertical" aria-label="Width of the detail" aria-valuemin="320" aria-valuemax=${innerWidth - 480} aria-valuenow=${room()} tabindex="0" onPointerDown=${drag} onPointerMove=${drag} onDblClick=${() => keep(0)} onKeyDown=${onKey}></div>`;
}

const Ask = ({ q, n }) => {
  const at = askedAt(q);
  return html`<div class="notice you" role="status"><${Glyph} kind="you" colored/><span class="cut grow"><${QuestionTitle} q=${q}/>${n > 1 ? html` <span class="soft">and ${n - 1} more</span>` : null}</span><span class="soft tab-nums waits">${at ? `waiting ${span(now.value - at)}` : ""}</span><a class="btn main" ...${link("needs-you", { q: q.id })}>Review <kbd>a</kbd></a></div>`;
};

function Head({ tree, top, row, title, failed }) {
  tree.version.value;
  const { marks } = tree.view;
  const mark = loudest(row.mark, new Set(LOUDNESS.filter((name) => marks[name] > 0)));
  const tallies = LOUDNESS.filter((name) => marks[name] > 0);
  return html`<div class="run-head">
    <div class="line"><h1 class="cut" title=${title}><bdi>${title}</bdi></h1><${Pill} mark=${mark}/></div>
    <div class="line actions"><button class="btn" onClick=${() => (dialog.value = { kind: "fork", node: top })}><${Icon} name="fork"/>Fork</button>
      ${failed.length > 0 && html`<button class="btn" onClick=${() => retryAll(failed)}>Retry ${failed.length} failed</button>`}
      ${!top.isOver && html`<button class="btn danger" onClick=${() => (dialog.value = { kind: "cancel", tree, nodes: [top] })}><${Icon} name="stop"/>Cancel run</button>`}</div>
    <div class="line gap-4 under"><span class="crumb"><a class="link" ...${link("")}>Runs</a><span>/</span><span class="mono">${shortId(top.id)}</span></span>
      <span class="tallies">${tallies.map((name) => html`<span class="tally" key=${name}><${Glyph} kind=${kindOf(name)} colored/><b>${marks[name]}</b> ${wordOf(name).toLowerCase()}</span>`)}</span></div>
    <${Budget} tree=${tree} node=${top} isOpen=${!top.isOver}/></div>`;
}

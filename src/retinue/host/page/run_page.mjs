// One run: its head with budget and questions, the tree, and the agent that is open beside it.

import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useState } from "preact/hooks";
import { get, go, link, place, Stream } from "./client.mjs";
import { Detail } from "./detail.mjs";
import { Glyph, html, Icon } from "./icons.mjs";
import { isStale, LiveTree, now, questions } from "./live.mjs";
import { kindOf, loudest, LOUDNESS, wordOf } from "./marks.mjs";
import { askedAt } from "./questions.mjs";
import { QuestionTitle } from "./runs_page.mjs";
import { dialog, Shell, Trouble, useKeys } from "./shell.mjs";
import { TreePane } from "./tree_pane.mjs";
import { clock, money, shortId, span } from "./words.mjs";

// The tree of a run, from its whole log and then as it moves.
function useTree(run) {
  const tree = useMemo(() => new LiveTree(), [run]);
  const problem = useSignal(null);
  useEffect(() => {
    let stream = null;
    let isGone = false;
    problem.value = null;
    get(`runs/${encodeURIComponent(run)}`).then(
      (shown) => {
        if (isGone) return;
        if (shown.root !== run) return go(`r/${shown.root}/${run}`, {}, { replace: true });
        stream = new Stream(`runs/${run}/events`, { deltas: true }, ["step", "delta", "end", "problem"], (name, value) => {
          if (name === "problem") problem.value = value;
          else tree.hear(name, value);
        });
      },
      (error) => (problem.value = error),
    );
    return () => {
      isGone = true;
      stream?.close();
      tree.close();
    };
  }, [run]);
  return [tree, problem];
}

export function RunPage() {
  const [, run, agent] = place.value.parts;
  const [tree, problem] = useTree(run);
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
  const past = useSignal(null);
  const select = (id, more = {}) => {
    const { view = "", q = "" } = Object.fromEntries(place.value.query);
    go(`r/${top.id}${id ? `/${id}` : ""}`, { view, q, ...more }, { replace: true });
  };
  useEffect(() => {
    document.title = `${questions.value.length ? `(${questions.value.length}) ` : ""}${title} · Retinue`;
  });
  useKeys({
    a: () => mine.length && go("needs-you", { q: mine[0].id }),
    x: () => (selected.isOver ? false : (dialog.value = { kind: "cancel", tree, node: selected })),
    f: () => (dialog.value = { kind: "fork", node: selected }),
    m: () => document.querySelector(".compose textarea")?.focus(),
    Escape: () => {
      if (past.value !== null) past.value = null;
      else if (agent) select("");
    },
  });
  return html`<${Head} tree=${tree} top=${top} row=${row} title=${title}/>
    ${mine.slice(0, 1).map((q) => html`<${Ask} key=${q.id} q=${q} n=${mine.length}/>`)}
    ${past.value !== null && html`<div class="notice past" role="status"><${Icon} name="play"/><span class="grow cut"><b>You are looking at ${clock(past.value, true)}.</b> ${top.isOver ? "The run has ended." : "The run goes on."}</span><button class="btn" type="button" onClick=${() => (past.value = null)}>Back to ${top.isOver ? "the end" : "live"} <kbd>Esc</kbd></button></div>`}
    <div class=${`work ${isStale.value ? "stale" : ""}`}><${TreePane} tree=${tree} top=${top} selected=${selected.id} select=${select} past=${past}/><${Detail} key=${selected.id} tree=${tree} node=${selected} past=${past.value} isOpen=${Boolean(agent)} close=${() => select("")}/></div>`;
}

const Ask = ({ q, n }) => {
  const at = askedAt(q);
  return html`<div class="notice you" role="status"><${Glyph} kind="you" colored/><span class="cut grow"><${QuestionTitle} q=${q}/>${n > 1 ? html` <span class="soft">and ${n - 1} more</span>` : null}</span><span class="soft tab-nums waits">${at ? `waiting ${span(now.value - at)}` : ""}</span><a class="btn main" ...${link("needs-you", { q: q.id })}>Review <kbd>a</kbd></a></div>`;
};

function Head({ tree, top, row, title }) {
  tree.version.value;
  const { marks } = tree.view;
  const mark = loudest(row.mark, new Set(LOUDNESS.filter((name) => marks[name] > 0)));
  const kind = kindOf(mark);
  const tallies = LOUDNESS.filter((name) => marks[name] > 0);
  return html`<div class="run-head">
    <div class="line"><h1 class="cut" title=${title}><bdi>${title}</bdi></h1><span class=${`pill is-${kind}`}><${Glyph} kind=${kind}/>${wordOf(mark)}</span></div>
    <div class="line actions"><button class="btn" type="button" onClick=${() => (dialog.value = { kind: "fork", node: top })}><${Icon} name="fork"/>Fork</button>
      ${!top.isOver && html`<button class="btn danger" type="button" onClick=${() => (dialog.value = { kind: "cancel", tree, node: top })}><${Icon} name="stop"/>Cancel run</button>`}</div>
    <div class="line gap-4 under"><span class="crumb"><a class="link" ...${link("")}>Runs</a><span>/</span><span class="mono">${shortId(top.id)}</span></span>
      <span class="tallies">${tallies.map((name) => html`<span class="tally" key=${name}><${Glyph} kind=${kindOf(name)} colored/><b>${marks[name]}</b> ${wordOf(name).toLowerCase()}</span>`)}</span></div>
    <${Budget} tree=${tree} node=${top} isOpen=${!top.isOver}/></div>`;
}

// What a run may spend, has spent and holds. Asked again when the tree has moved, once a second.
export function useSpending(tree, node) {
  const [spending, setSpending] = useState(null);
  const version = tree.version.value;
  useEffect(() => {
    const timer = setTimeout(() => get(`runs/${node.id}/budget`).then((reply) => setSpending(reply.spending), () => {}), spending ? 1_000 : 0);
    return () => clearTimeout(timer);
  }, [version, node.id]);
  return spending;
}

export function Budget({ tree, node, isOpen }) {
  const spending = useSpending(tree, node);
  if (!spending) return html`<div class="run-budget"></div>`;
  const spent = spending.spent?.usd ?? 0;
  const held = spending.held?.usd ?? 0;
  const limit = spending.limit?.usd ?? null;
  const raise = isOpen && html`<button class="link plain" type="button" onClick=${() => (dialog.value = { kind: "raise", tree, node, spending })}>Raise</button>`;
  if (limit === null) return html`<div class="run-budget free"><div class="budget-words"><span>spent <b>${money(spent)}</b></span>${held > 0 && html`<span>reserved <b>${money(held)}</b></span>`}<span>no limit in dollars</span></div></div>`;
  return html`<div class="run-budget"><${BudgetBar} spent=${spent} held=${held} limit=${limit}/><div class="budget-words"><span><span class="key spent"></span>spent <b>${money(spent)}</b></span><span><span class="key reserved"></span>reserved <b>${money(held)}</b></span><span><span class="key left"></span>left <b>${money(Math.max(0, limit - spent - held))}</b></span>${raise}</div></div>`;
}

export function BudgetBar({ spent, held, limit }) {
  const share = (value) => `${Math.min(100, limit ? (100 * value) / limit : 100).toFixed(1)}%`;
  const left = limit - spent - held;
  const state = left <= 0 ? "over" : left < limit / 10 ? "low" : "";
  return html`<svg class=${`budget ${state}`} role="img" aria-label=${`Budget ${money(limit)}: ${money(spent)} spent, ${money(held)} reserved, ${money(Math.max(0, left))} left`}><rect class="spent" width=${share(spent)} height="100%"/><rect fill="url(#p-res)" x=${share(spent)} width=${share(held)} height="100%"/><rect class="edge" x=${share(spent)} width="1" height="100%"/></svg>`;
}

// What a run may spend, has spent and holds.

import { useEffect, useState } from "preact/hooks";
import { get } from "./client.mjs";
import { html } from "./icons.mjs";
import { now } from "./live.mjs";
import { dialog } from "./shell.mjs";
import { money, spanText } from "./words.mjs";

// Asked again when the tree has moved, once a second.
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
  const spentText = money(spent, spending.usd_estimated > 0);
  const held = spending.held?.usd ?? 0;
  const limit = spending.limit?.usd ?? null;
  const raise = isOpen && html`<button class="link plain" onClick=${() => (dialog.value = { kind: "raise", tree, node, spending })}>Raise</button>`;
  if (limit === null) return html`<div class="run-budget free"><div class="budget-words"><span>spent <b>${spentText}</b></span>${held > 0 && html`<span>reserved <b>${money(held)}</b></span>`}<span>no limit in dollars</span></div></div>`;
  return html`<div class="run-budget"><${BudgetBar} spent=${spent} held=${held} limit=${limit}/><div class="budget-words"><span><span class="key spent"></span>spent <b>${spentText}</b></span><span><span class="key reserved"></span>reserved <b>${money(held)}</b></span><span><span class="key left"></span>left <b>${money(Math.max(0, limit - spent - held))}</b></span>${raise}${lasts(node, spent, held, limit)}</div></div>`;
}

// Near the limit: how long the rest lasts at the rate until now.
function lasts(node, spent, held, limit) {
  const left = limit - spent - held;
  if (left <= 0) return html`<span class="badge">at its limit</span>`;
  if (left >= limit / 10 || node.isOver || !spent) return null;
  const ms = (left * (now.value - (node.startedAt ?? now.value))) / spent;
  return html`<span class="badge warn">about ${spanText(ms)} left</span>`;
}

export function BudgetBar({ spent, held, limit }) {
  const share = (value) => `${Math.min(100, limit ? (100 * value) / limit : 100).toFixed(1)}%`;
  const left = limit - spent - held;
  const state = left <= 0 ? "over" : left < limit / 10 ? "low" : "";
  return html`<svg class=${`budget ${state}`} role="img" aria-label=${`Budget ${money(limit)}: ${money(spent)} spent, ${money(held)} reserved, ${money(Math.max(0, left))} left`}><rect class="spent" width=${share(spent)} height="100%"/><rect fill="url(#p-res)" x=${share(spent)} width=${share(held)} height="100%"/><rect class="edge" x=${share(spent)} width="1" height="100%"/></svg>`;
}

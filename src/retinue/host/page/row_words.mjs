// The words behind a state: what a run does now, what it waits for, what it wants, what it came to.

import { LOUDNESS, wordOf } from "./marks.mjs";
import { heading, oneLine, spanText } from "./words.mjs";

const STOPS = {
  budget: "the budget is spent",
  turn_limit: "no turns left",
  length: "reply truncated",
  timeout: "timed out",
  no_report: "no result submitted",
  empty: "empty reply from the model",
  refused: "refused by the model",
};
const RUN_ID = /[/:.][0-9a-f]{8}-[0-9a-f-]{27}/;
const lowered = (text) => text.slice(0, 1).toLowerCase() + text.slice(1);

export function rowWords(node, now, nodes, lanes) {
  const state = node.run?.state;
  if (state?.is === "Ended") return node.conflict || endWords(state.ending, node.startedAt);
  if (state?.is === "Queued" && node.state === "queued") return queued(node, state.lane ?? 0, lanes);
  if (node.state === "needs_input") return askWords(node);
  if (node.state === "cancelling") {
    const n = node.children.length - node.nOver;
    if (n) return `${n} sub-agent${n === 1 ? "" : "s"}`;
    return node.calls.values().next().value ?? "";
  }
  return node.isGone ? "" : doing(node, now, nodes);
}

// What it wants of a person, in its real words.
export function askWords(node) {
  const q = node.questions[0];
  if (!q) return "asks: " + (node.askedOf.values().next().value ?? "");
  if (q.kind === "permission") return node.wanted.get(q.index ?? 0) || lowered(q.text.replace(/\?+$/, ""));
  return `asks: ${q.text}`;
}

export function endWords(end, startedAt) {
  if (end.state !== "completed") return failureWords(end, startedAt);
  const data = end.data === undefined || end.data === null ? "" : end.data;
  return heading(end.text) || (typeof data === "string" ? data : JSON.stringify(data).slice(0, 400)) || "done";
}

export function failureWords(end, startedAt) {
  const why = end.error || STOPS[end.stop] || (end.stop ?? "").replaceAll("_", " ");
  if (end.state === "timed_out") return "timed out" + (startedAt && end.at ? ` after ${spanText(end.at - startedAt)}` : "");
  if (end.state === "incomplete") return end.text ? `${STOPS[end.stop] ?? why}: ${heading(end.text)}` : why;
  if (end.state === "cancelled") return cancelWords(end);
  return why || end.state;
}

const CANCELLERS = { parent: "by its parent", limit: "by a limit", system: "by the system" };

function cancelWords(end) {
  if (end.along) return "with its parent";
  return end.reason || CANCELLERS[end.by] || "by you";
}

function queued(node, lane, lanes) {
  if (lane < 0) return "for its turn to write files";
  const mine = (node.order.lanes ?? [])[lane];
  if (!mine) return "";
  if (mine.scope === "node") {
    const needs = node.order.lanes.filter((one) => one.scope === "node");
    return `for a worker with ${needs.map((one) => one.name).join(", ")}`;
  }
  const used = Math.min(lanes[mine.name] ?? 0, mine.size);
  const name = mine.name.replace(RUN_ID, "");
  return used ? `lane ${name}: ${used} of ${mine.size} busy` : `lane ${name}`;
}

function doing(node, now, nodes) {
  const wait = node.wait || node.held;
  if (wait) return waitWords(wait, now);
  if (node.questions.length) return "asks its parent: " + node.questions[0].text;
  const is = node.run?.state.is;
  if (is === "Waiting") return waits(node);
  if (is === "Short") {
    if (!node.asksAt) return "for budget that other runs have reserved";
    return `at the limit of ${nodes.get(node.asksAt)?.label ?? "its run"}`;
  }
  return lastWords(node);
}

function waits(node) {
  const n = Math.max(node.children.length, node.run?.n_children ?? 0);
  if (!n) return "for a message";
  if (n === 1) return node.children.length ? `for ${node.children[0].label}` : "for a sub-agent";
  const over = {};
  for (const child of node.children) if (child.isOver) over[child.mark] = (over[child.mark] ?? 0) + 1;
  const parts = LOUDNESS.filter((mark) => over[mark]).reverse().map((mark) => `${over[mark]} ${wordOf(mark).toLowerCase()}`);
  return `for ${n} sub-agents` + (parts.length ? `: ${parts.join(", ")}` : "");
}

function lastWords(node) {
  const is = node.run?.state.is;
  const isBetween = is === "Thinking" && (node.run.state.attempt ?? 0) > node.replied;
  const calls = [...node.calls.values()];
  if (calls.length && !isBetween) return calls.length > 1 ? `${calls[0]} (+${calls.length - 1} more)` : calls[0];
  const last = (isBetween && calls.at(-1)) || node.lastCall;
  if (node.writing.trim()) return "writes: " + tail(node.writing);
  if (node.isTakenUp) return "resumed after a restart";
  if (!node.run) return "";
  if (node.tries) return `try ${node.tries + 1}`;
  if (is === "Working" && !node.replied) return node.run.last_tool ?? "";
  return node.said || (last ? `after ${last}` : "reads its task");
}

function tail(text, most = 100) {
  const flat = text.split("\n").reverse().map((line) => oneLine(line)).find(Boolean) ?? "";
  return flat.length <= most ? flat : "…" + flat.slice(1 - most);
}

// `anthropic 429: 24 s, 2 of 5`.
export function waitWords(wait, now) {
  const name = oneLine(wait.provider, 40) || "provider";
  if (wait.kind === "auth") return `${name} rejected the key` + (wait.answer ? ` (${wait.answer})` : "");
  const who = wait.kind === "quota" ? `${name}: no credit left` : `${name} ${oneLine(wait.answer, 40) || wait.kind.replaceAll("_", " ")}`;
  const n = wait.tries + 1;
  const tries = wait.tries ? (n <= wait.of ? `${n} of ${wait.of}` : `try ${n}`) : "";
  const details = [left(wait.retryAt, now), tries].filter(Boolean).join(", ");
  return details ? `${who}: ${details}` : who;
}

function left(retryAt, now) {
  if (retryAt === null || retryAt === undefined) return "";
  const s = Math.ceil((retryAt - now) / 1000);
  if (s <= 0) return "now";
  if (s < 100) return `${s} s`;
  if (s < 3_600) return `${Math.trunc(s / 60)}m ${String(s % 60).padStart(2, "0")}s`;
  return `${Math.trunc(s / 3_600)}h ${String(Math.trunc((s % 3_600) / 60)).padStart(2, "0")}m`;
}


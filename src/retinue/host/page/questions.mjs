// What waits for a person: in words, and how it is answered.

import { post } from "./client.mjs";
import { html } from "./icons.mjs";
import { all } from "./live.mjs";
import { oneLine, parsed } from "./words.mjs";

const DIFFS = ["edit", "write"];

export const isDiff = (q) => Boolean(q.preview?.files?.length) || DIFFS.includes(q.tool);
// What can be decided at one look: a call of one line.
export const isShort = (q) => q.kind === "permission" && !isDiff(q) && !q.price_tag && (q.shown ?? "").split("\n").length <= 3 && (q.shown ?? "").length <= 200;

export function askedAt(q) {
  const node = all.view.nodes.get(q.run);
  const last = node?.phases.last;
  if (last && node.phases.kindOf(last) === "you" && node.phases.turns.length) return last.from;
  return node?.run?.state.calls?.at || last?.from || 0;
}

// Who wants what, in its real words.
function titleOfQuestion(q) {
  const node = all.view.nodes.get(q.run);
  const who = oneLine(node?.parent ? node.title : q.label, 80);
  const { command, path, url } = parsed(q.call?.args ?? "{}");
  if (q.kind === "budget") return { who, what: "is at its limit and asks for more", code: "" };
  if (q.kind === "question") return { who, what: `asks: ${oneLine(q.text.split("\n")[0], 300)}`, code: "" };
  if (q.tool === "shell" && command) return { who, what: "wants to run", code: oneLine(command, 300) };
  if (q.tool === "edit" && path) return { who, what: "wants to change", code: oneLine(path, 300) };
  if (q.tool === "write" && path) return { who, what: "wants to write", code: oneLine(path, 300) };
  if (q.tool === "fetch" && url) return { who, what: "wants to fetch", code: oneLine(url, 300) };
  return { who, what: `wants to call`, code: oneLine(q.tool || q.text, 300) };
}

export const QuestionTitle = ({ q }) => {
  const { who, what, code } = titleOfQuestion(q);
  return html`<bdi>${who}</bdi> ${what} ${code && html`<code><bdi>${code}</bdi></code>`}`;
};

export const answer = (q, body) => post(`runs/${q.run}/answer`, { question: q.id, by: "you in the dashboard", ...body });

// Text of agents: a little Markdown, made of elements and never of markup.

import { useState } from "preact/hooks";
import { html } from "./icons.mjs";
import { severalLines } from "./words.mjs";

const MOST_LINES = 20;
const MOST_CHARS = 8_000;

// `code` and **strong** within a line; everything else is text.
function inline(text) {
  return text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/).map((part) => {
    if (part.length > 2 && part.startsWith("`") && part.endsWith("`")) return html`<code>${part.slice(1, -1)}</code>`;
    if (part.length > 4 && part.startsWith("**") && part.endsWith("**")) return html`<b>${part.slice(2, -2)}</b>`;
    return part;
  });
}

function block(text) {
  const lines = text.split("\n");
  if (lines.every((line) => /^\s*(?:[-*+]|\d+[.)])\s/.test(line))) {
    return html`<ul class="dots">${lines.map((line) => html`<li>${inline(line.replace(/^\s*(?:[-*+]|\d+[.)])\s+/, ""))}</li>`)}</ul>`;
  }
  if (lines.length === 1 && /^#{1,6}\s/.test(text)) return html`<p><b>${inline(text.replace(/^#+\s+/, ""))}</b></p>`;
  return html`<p>${lines.map((line, n) => [n ? html`<br/>` : null, inline(line)])}</p>`;
}

export function Prose({ text }) {
  const [isWhole, setWhole] = useState(false);
  const clean = severalLines(text ?? "");
  const shown = isWhole || clean.length <= MOST_CHARS ? clean : clean.slice(0, MOST_CHARS);
  const parts = shown.split(/```[^\n]*\n([\s\S]*?)(?:```|$)/);
  return html`<div class="say" dir="auto">${parts.map((part, n) => (n % 2 ? html`<pre class="call-body">${part}</pre>` : part.split(/\n\s*\n/).map((p) => p.trim()).filter(Boolean).map(block)))}
    ${shown.length < clean.length && html`<button class="btn quiet" onClick=${() => setWhole(true)}>Show ${(clean.length - shown.length).toLocaleString("en")} more characters</button>`}</div>`;
}

// What a machine wrote: at most twenty lines, then the rest on demand.
export function Output({ text }) {
  const [isWhole, setWhole] = useState(false);
  const clean = severalLines(text ?? "");
  const lines = clean.split("\n");
  const shown = isWhole ? clean : lines.slice(0, MOST_LINES).join("\n").slice(0, MOST_CHARS);
  const nHidden = lines.length - MOST_LINES;
  return html`<pre class="call-body" dir="auto">${shown}${!isWhole && shown.length < clean.length && html`\n<button class="btn quiet" onClick=${() => setWhole(true)}>${nHidden > 0 ? `Show ${nHidden.toLocaleString("en")} more lines` : "Show all of it"}</button>`}</pre>`;
}

// Text of agents: a little Markdown, made of elements and never of markup.

import { useState } from "preact/hooks";
import { changedWords } from "./changed_words.mjs";
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

// A unified diff as a table with both line numbers, and the words that changed within its lines.
export function Diff({ diff }) {
  const rows = [];
  let old = 0;
  let fresh = 0;
  for (const line of severalLines(diff).replace(/\n$/, "").split("\n")) {
    const hunk = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)$/.exec(line);
    const parts = [{ text: line.slice(1) }];
    if (hunk) {
      old = Number(hunk[1]);
      fresh = Number(hunk[3]);
      const last = fresh + Math.max(1, Number(hunk[4] ?? 1)) - 1;
      rows.push({ kind: "hunk", words: `lines ${fresh} to ${last}${hunk[5] ? `, ${hunk[5]}` : ""}` });
    } else if (/^(---|\+\+\+|diff |index |\\ )/.test(line) && !old && !fresh) continue;
    else if (line.startsWith("+")) rows.push({ kind: "add", sign: "+", fresh: fresh++, parts });
    else if (line.startsWith("-")) rows.push({ kind: "del", sign: "−", old: old++, parts });
    else if (!line.startsWith("\\")) rows.push({ sign: " ", old: old++, fresh: fresh++, parts });
  }
  markWords(rows);
  return html`<table><caption class="hide">Proposed change, added and removed lines</caption><colgroup><col class="n old"/><col class="n"/><col class="s"/><col/></colgroup><tbody>${rows.map((row) => (row.kind === "hunk" ? html`<tr class="hunk"><td colspan="4">${row.words}</td></tr>` : html`<tr class=${row.kind}><td class="ln old">${row.old}</td><td class="ln">${row.fresh}</td><td class="sign">${row.sign}</td><td>${row.parts.map(({ text, isChanged }) => (isChanged ? html`<mark>${text}</mark>` : text))}</td></tr>`))}</tbody></table>`;
}

// Of lines that go and lines that come right after them, the first is compared with the first.
function markWords(rows) {
  const end = (at, kind) => {
    while (rows[at]?.kind === kind) at++;
    return at;
  };
  for (let at = 0; at < rows.length; at++) {
    const [come, over] = [end(at, "del"), end(end(at, "del"), "add")];
    for (let n = 0; n < Math.min(come - at, over - come); n++) {
      const [gone, fresh] = [rows[at + n], rows[come + n]];
      [gone.parts, fresh.parts] = changedWords(gone.parts[0].text, fresh.parts[0].text);
    }
    at = Math.max(at, over - 1);
  }
}

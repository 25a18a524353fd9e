// A diff as a table: unified, or the old lines beside the new ones, with the words that changed.

import { changedWords } from "./changed_words.mjs";
import { html } from "./icons.mjs";
import { change, settings } from "./shell.mjs";
import { severalLines } from "./words.mjs";

const VIEWS = [[false, "Unified"], [true, "Split"]];

// How diffs are shown where there is room for both.
export const DiffView = () => html`<span class="seg" role="group" aria-label="Diff view">${VIEWS.map(([isSplit, title]) => html`<button aria-pressed=${String(Boolean(settings.value.isSplit) === isSplit)} onClick=${() => change({ isSplit })}>${title}</button>`)}</span>`;

const words = (row) => row?.parts.map(({ text, isChanged }) => (isChanged ? html`<mark>${text}</mark>` : text));
const Hunk = ({ row, n }) => html`<tr class="hunk"><td colspan=${n}>${row.words}</td></tr>`;

export function Diff({ diff }) {
  const rows = rowsOf(diff);
  const caption = html`<caption class="hide">Proposed change, added and removed lines</caption>`;
  if (settings.value.isSplit && innerWidth > 1_080) return html`<table class="split">${caption}<colgroup><col class="n"/><col/><col class="n"/><col/></colgroup><tbody>${sides(rows).map(([old, fresh]) => (old.kind === "hunk" ? html`<${Hunk} row=${old} n="4"/>` : html`<tr><td class="ln">${old.old}</td><td class=${old.kind}>${words(old)}</td><td class="ln">${fresh.fresh}</td><td class=${fresh.kind}>${words(fresh)}</td></tr>`))}</tbody></table>`;
  return html`<table>${caption}<colgroup><col class="n old"/><col class="n"/><col class="s"/><col/></colgroup><tbody>${rows.map((row) => (row.kind === "hunk" ? html`<${Hunk} row=${row} n="4"/>` : html`<tr class=${row.kind}><td class="ln old">${row.old}</td><td class="ln">${row.fresh}</td><td class="sign">${row.sign}</td><td>${words(row)}</td></tr>`))}</tbody></table>`;
}

export function rowsOf(diff) {
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
  return rows;
}

// Pairs of an old line and a new one; what has no partner stands beside nothing.
export function sides(rows) {
  const NONE = { kind: "", parts: [] };
  const out = [];
  let [gone, come] = [[], []];
  const flush = () => {
    for (let n = 0; n < Math.max(gone.length, come.length); n++) out.push([gone[n] ?? NONE, come[n] ?? NONE]);
    [gone, come] = [[], []];
  };
  for (const row of rows) {
    if (row.kind === "del" && come.length) flush();
    if (row.kind === "del") gone.push(row);
    else if (row.kind === "add") come.push(row);
    else {
      flush();
      out.push([row, row]);
    }
  }
  flush();
  return out;
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

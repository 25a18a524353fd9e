// Whose work a result rests on, as the runtime counted it: no agent writes this.

import { link } from "./client.mjs";
import { html, Icon } from "./icons.mjs";
import { oneLine, plural } from "./words.mjs";

const MOST = 6;

export function Provenance({ node }) {
  const { n_started: n = 0, n_lost: lost = 0, n_partial: partial = 0, lost: named = [] } = node.ending.helpers ?? {};
  if (!n) return null;
  const chip = (child) => html`<a class="from-child" key=${child.id} ...${link(`r/${node.spec.root}/${child.id}`)}>${child.mark === "completed" && html`<${Icon} name="check" small/>`}<bdi>${oneLine(child.title, 40)}</bdi></a>`;
  return html`<div class="line wrap provenance"><span class=${`badge ${lost || partial ? "warn" : "ok"}`}>rests on ${plural(n, "sub-agent")}</span>
    ${lost > 0 && html`<span class="badge warn">${lost} never returned</span>`}${partial > 0 && html`<span class="badge warn">${partial} returned only a part</span>`}
    ${node.children.slice(0, MOST).map(chip)}${node.children.length > MOST && html`<span class="faint">and ${node.children.length - MOST} more</span>`}
    ${named.map((one) => html`<span class="soft">${one.path.map((part) => oneLine(part, 40)).join(" > ")}: ${one.state.replace("_", " ")}${one.stop ? `, ${one.stop.replaceAll("_", " ")}` : ""}</span>`)}</div>`;
}

// Several runs at once: they are chosen with Shift, and one bar has what all of them can do.

import { useState } from "preact/hooks";
import { html } from "./icons.mjs";
import { tell } from "./live.mjs";
import { retryAll, send } from "./steering.mjs";
import { dialog } from "./shell.mjs";
import { plural } from "./words.mjs";

export function useChosen() {
  const [chosen, setChosen] = useState(new Set());
  const toggle = (id) => setChosen((before) => (before.has(id) ? new Set([...before].filter((other) => other !== id)) : new Set([...before, id])));
  return [chosen, toggle, () => setChosen(new Set())];
}

// `nodes` are those of `tree` that are chosen.
export function Chosen({ tree, nodes, clear }) {
  const [text, setText] = useState("");
  const open = nodes.filter((node) => !node.isOver);
  const failed = nodes.filter((node) => node.mark === "failed");
  const tellAll = async (event) => {
    event.preventDefault();
    if (!text.trim()) return;
    const sent = await Promise.all(open.map((node) => send(node, text, false)));
    tell(`Queued for ${plural(sent.filter(Boolean).length, "agent")}. Each reads it at its next turn.`);
    setText("");
  };
  return html`<form class="notice chosen" role="group" aria-label="Chosen" onSubmit=${tellAll}><b>${nodes.length} chosen</b>
    ${open.length > 0 && html`<label class="field grow"><input aria-label=${`Message to ${open.length} chosen`} placeholder=${`Message to ${plural(open.length, "agent")}`} value=${text} onInput=${(event) => setText(event.target.value)}/></label><button class="btn" type="submit">Queue</button><button class="btn danger" type="button" onClick=${() => (dialog.value = { kind: "cancel", tree, nodes: open })}>Stop ${open.length}</button>`}
    ${failed.length > 0 && html`<button class="btn" type="button" onClick=${() => retryAll(failed).then(clear)}>Retry ${failed.length}</button>`}
    <button class="btn quiet" type="button" onClick=${clear}>Clear</button></form>`;
}

// A message to an agent: read at its next turn, or at once. One that has ended goes on as a new run
// with the same conversation.

import { useRef, useState } from "preact/hooks";
import { html } from "./icons.mjs";
import { resume, send } from "./steering.mjs";

// Whom a message is for: `@name words` is for the one of `others` whose name begins so.
export function addressee(text, node, others) {
  const [, name, rest] = /^@(\S+)\s+([\s\S]+)$/.exec(text) ?? [];
  const found = name && others.find((one) => !one.isOver && one.title.toLowerCase().replaceAll(" ", "-").startsWith(name.toLowerCase()));
  return found ? [found, rest] : [node, text];
}

export function Compose({ node, label, path = "r", others = [] }) {
  const [text, setText] = useState("");
  const area = useRef(null);
  const isOver = node.isOver;
  const submit = async (steer) => {
    if (!text.trim()) return;
    const [to, words] = addressee(text, node, others);
    const isDone = to.isOver ? await resume(to, words, path) : await send(to, words, steer);
    if (isDone) setText("");
    area.current?.focus();
  };
  const onKey = (event) => {
    if (event.key === "Escape") event.target.blur();
    if (event.key !== "Enter" || event.isComposing || event.altKey) return;
    event.preventDefault();
    submit(event.shiftKey);
  };
  const name = isOver ? `Go on with ${label}` : `Message ${label}`;
  const hint = isOver ? "It has ended: this starts a run with the same conversation" : others.length ? "To a sub-agent instead: type @ and its name" : "Read at its next turn";
  return html`<form class="compose" onSubmit=${(event) => { event.preventDefault(); submit(false); }}>
    <textarea ref=${area} aria-label=${isOver ? name : `Message to ${label}`} placeholder=${name} value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${onKey}></textarea>
    <div class="line"><span class="faint grow cut">${hint}</span>
      ${!isOver && html`<button class="btn" type="button" onClick=${() => submit(true)}>Steer now <kbd>⇧↵</kbd></button>`}<button class="btn main" type="submit">${isOver ? "Resume" : "Queue"} <kbd>↵</kbd></button></div></form>`;
}

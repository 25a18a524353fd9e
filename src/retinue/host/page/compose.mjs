// A message to an agent: read at its next turn, or at once. One that has ended goes on as a new run
// with the same conversation.

import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "./icons.mjs";
import { connection } from "./live.mjs";
import { resume, send } from "./steering.mjs";

// Whom a message is for: `@name words` is for the one of `others` whose name begins so.
export function addressee(text, node, others) {
  const [, name, rest] = /^@(\S+)\s+([\s\S]+)$/.exec(text) ?? [];
  const found = name && others.find((one) => !one.isOver && one.title.toLowerCase().replaceAll(" ", "-").startsWith(name.toLowerCase()));
  return found ? [found, rest] : [node, text];
}

function hintOf(isOver, others) {
  if (isOver) return "It has ended: this starts a run with the same conversation";
  return others.length ? "To a sub-agent instead: type @ and its name" : "Read at its next turn";
}

export function Compose({ node, label, path = "r", others = [] }) {
  const [text, setText] = useState("");
  const area = useRef(null);
  const [pending, setPending] = useState(null);
  const isOver = node.isOver;
  const { isLive } = connection.value;
  useEffect(() => {
    if (!isLive || !pending) return;
    if (pending.isOver === isOver) submit(pending.steer);
    else setPending(null);
  }, [isLive]);
  const submit = async (steer) => {
    if (!text.trim()) return;
    setPending(connection.value.isLive ? null : { steer, isOver });
    if (!connection.value.isLive) return;
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
  const hint = pending ? "Will be sent when connected" : hintOf(isOver, others);
  return html`<form class="compose" onSubmit=${(event) => { event.preventDefault(); submit(false); }}>
    <textarea ref=${area} aria-label=${isOver ? name : `Message to ${label}`} placeholder=${name} value=${text} onInput=${(event) => { setText(event.target.value); setPending(null); }} onKeyDown=${onKey}></textarea>
    <div class="line"><span class="faint grow cut" role="status">${hint}</span>
      ${!isOver && html`<button class="btn" type="button" onClick=${() => submit(true)}>Steer now <kbd>⇧↵</kbd></button>`}<button class="btn main" type="submit">${isOver ? "Resume" : "Queue"} <kbd>↵</kbd></button></div></form>`;
}

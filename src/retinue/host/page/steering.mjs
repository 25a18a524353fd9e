// What a person does to runs: retry, resume, fork, cancel, message.

import { go, post } from "./client.mjs";
import { attempt, tell } from "./live.mjs";

// A run that waits for its provider tries again; one that has ended goes on as a new run.
export async function retry(node) {
  if (!node.isOver) {
    await attempt(() => post(`runs/${node.id}/retry`), "Tries its provider again now.");
    return;
  }
  const reply = await attempt(() => post(`runs/${node.id}/resume`, { task: "Try again. What you have done so far is kept." }));
  if (!reply) return;
  tell(`${node.title} goes on as a new run, with the same conversation.`);
  go(`r/${reply.run}`);
}

export async function resume(node, task, path) {
  const reply = await attempt(() => post(`runs/${node.id}/resume`, { task }));
  if (reply) go(`${path}/${reply.run}`);
  return Boolean(reply);
}

export const send = (node, text, steer) => attempt(() => post(`runs/${node.id}/messages`, { text, steer }));

// What a person does to runs: retry, resume, fork, cancel, message.

import { go, post } from "./client.mjs";
import { attempt, tell } from "./live.mjs";
import { plural } from "./words.mjs";

const AGAIN = "Try again. What you have done so far is kept.";

// A run that waits for its provider tries again; one that has ended goes on as a new run.
export async function retry(node) {
  if (!node.isOver) {
    await attempt(() => post(`runs/${node.id}/retry`), "Tries its provider again now.");
    return;
  }
  const reply = await attempt(() => post(`runs/${node.id}/resume`, { task: AGAIN }));
  if (!reply) return;
  tell(`${node.title} goes on as a new run, with the same conversation.`);
  go(`r/${reply.run}`);
}

// Several that have failed, each as a new run.
export async function retryAll(nodes) {
  const begun = await Promise.all(nodes.map((node) => attempt(() => post(`runs/${node.id}/resume`, { task: AGAIN }))));
  tell(`${plural(begun.filter(Boolean).length, "run goes", "runs go")} on as new runs, with the same conversations.`);
}

export async function resume(node, task, path) {
  const reply = await attempt(() => post(`runs/${node.id}/resume`, { task }));
  if (reply) go(`${path}/${reply.run}`);
  return Boolean(reply);
}

export const send = (node, text, steer) => attempt(() => post(`runs/${node.id}/messages`, { text, steer }));

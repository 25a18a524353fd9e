// What the page knows: all open trees as they move, what waits for a person, and the time. Steps
// are folded as they come and painted at most eight times a second.

import { batch, computed, signal } from "@preact/signals";
import { get, isReachable, Stream } from "./client.mjs";
import { lineOfSummary, lineOfTree } from "./runs.mjs";
import { wordOf } from "./marks.mjs";
import { TreeView } from "./tree.mjs";
import { oneLine } from "./words.mjs";

const PAINT_MS = 125;
const LOST_MS = 10_000;
const QUIET_MS = 10_000;

export const now = signal(Date.now());
let offset = 0;
setInterval(() => {
  if (!document.hidden && connection.value.isLive) now.value = Date.now() + offset;
}, 1_000);

export const connection = signal({ isLive: true, since: 0, missed: 0, isSignedOut: false });
export const isStale = computed(() => !connection.value.isLive && now.value && Date.now() - connection.value.since > LOST_MS);
export const notice = signal(null);
export const questions = signal([]);
export const isAsked = signal(false); // whether it is known what waits for a person
export const announced = signal("");

export function tell(text, kind = "", seconds = 6) {
  const mine = (notice.value = { text, kind });
  setTimeout(() => notice.value === mine && (notice.value = null), seconds * 1_000);
}

// Have something done, and say what went wrong if it did.
export async function attempt(work, done = "") {
  try {
    const value = await work();
    if (done) tell(done);
    return value;
  } catch (problem) {
    tell(problem.message, "bad", 12);
    return null;
  }
}

// A fold with a signal for each row: one step repaints one row and those above it.
export class LiveTree {
  constructor(after = () => {}) {
    this.view = new TreeView();
    this.shape = signal(0);
    this.version = signal(0);
    this.signals = new Map();
    this.after = after;
    document.addEventListener("visibilitychange", (this.onShow = () => this.plan(0)));
  }

  hear(name, value) {
    this.view.hear(name, value);
    this.plan(this.version.value ? PAINT_MS : 0);
  }

  plan(ms) {
    if (!this.timer && !document.hidden) this.timer = setTimeout(() => this.paint(), ms);
  }

  paint() {
    this.timer = null;
    const { changed, shape } = this.view;
    if (!changed.size && shape === this.shape.value) return;
    batch(() => {
      this.shape.value = shape;
      for (const id of changed) if (this.signals.has(id)) this.signals.get(id).value++;
      changed.clear();
      this.version.value++;
    });
    this.after();
  }

  // The row of a run; who reads it is told when it changes, and each second while it is open.
  row(id) {
    const node = this.view.nodes.get(id);
    if (!this.signals.has(id)) this.signals.set(id, signal(0));
    this.signals.get(id).value;
    return node && this.view.row(node, node.isOver ? node.lastAt : now.value);
  }

  close() {
    clearTimeout(this.timer);
    document.removeEventListener("visibilitychange", this.onShow);
  }
}

// All trees that are open. A tree that has ended is kept until the list has its summary.
export const all = new LiveTree(look);
export const summaries = signal(new Map());
export const pages = signal({ next: null, isLoading: true, problem: null });

function look() {
  lookForQuestions();
  sayEnds();
  for (const top of [...all.view.tops]) if (top.isOver && [...all.view.walk([top])].every((node) => node.isOver)) settle(top.id);
}

// Failures, and runs that are over, are said together every two seconds.
let ends = [];
function sayEnds() {
  const some = all.view.ended.splice(0).filter((node) => node.mark === "failed" || !node.spec.parent);
  if (!ends.length && some.length) {
    setTimeout(() => {
      announced.value = oneLine(ends.map((node) => `${node.title}: ${wordOf(node.mark).toLowerCase()}`).join(". "), 1_000);
      ends = [];
    }, 2_000);
  }
  ends.push(...some);
}

async function settle(root) {
  if (settling.has(root)) return;
  settling.add(root);
  try {
    const page = await get("overview", { run: root });
    take(page.runs);
    all.view.forget(root);
    all.shape.value = all.view.shape;
  } catch {
    settling.delete(root);
  }
}
const settling = new Set();

function take(runs) {
  const more = new Map(summaries.value);
  for (const run of runs) more.set(run.id, run);
  summaries.value = more;
}

// A line for each tree: from its steps while it is open, from its summary afterwards.
export function allLines() {
  all.version.value;
  const at = now.value;
  const lines = new Map([...summaries.value.values()].map((run) => [run.id, lineOfSummary(run, at)]));
  for (const top of all.view.tops) if (!top.spec.parent) lines.set(top.id, lineOfTree(all.view, top, at));
  return [...lines.values()];
}

export async function loadRuns() {
  const before = pages.value.next ?? "";
  pages.value = { ...pages.value, isLoading: true };
  try {
    const page = await get("overview", { limit: 50, before });
    offset = page.now - Date.now();
    take(page.runs);
    pages.value = { next: page.next, isLoading: false, problem: null };
  } catch (problem) {
    pages.value = { ...pages.value, isLoading: false, problem };
  }
}

let asked = "";
async function lookForQuestions(force = false) {
  const open = [...all.view.nodes.values()].filter((node) => node.state === "needs_input");
  const key = open.map((node) => [node.id, node.questions.map((q) => q.id), [...node.askedOf.keys()]].join()).join(";");
  if (key === asked && !force) return;
  asked = key;
  const before = new Set(questions.value.map((q) => q.id));
  const found = key || force ? (await get("questions").catch(() => ({ questions: questions.value }))).questions : [];
  questions.value = found;
  isAsked.value = true;
  const fresh = found.filter((q) => !before.has(q.id));
  if (fresh.length) announced.value = oneLine(fresh.map((q) => `${q.label} needs you: ${q.text}`).join(". "), 1_000);
}

let heard = 0;
function onConnection(isLive) {
  const { isLive: was, since } = connection.value;
  if (isLive === was) return;
  if (!isLive) {
    connection.value = { isLive, since: Date.now(), missed: 0, isSignedOut: false };
    get("health").catch((problem) => problem.status === 401 && (connection.value = { ...connection.value, isSignedOut: true }));
    return;
  }
  heard = 0;
  connection.value = { isLive, since, missed: 0, isSignedOut: false };
  setTimeout(() => {
    const steps = heard === 1 ? "1 missed step is" : `${heard.toLocaleString("en")} missed steps are`;
    tell(heard ? `Connected again. ${steps} now shown, nothing was lost.` : "Connected again. Nothing was missed.", "found");
    lookForQuestions(true);
  }, 800);
}

let stream;
export function start() {
  stream = new Stream("events", { deltas: true }, ["tree", "step", "delta"], (name, value) => {
    if (name === "step") heard++;
    all.hear(name, value);
    if (name === "tree") all.view.ended = []; // they had ended before
  }, onConnection);
  setInterval(probe, QUIET_MS);
  loadRuns();
  lookForQuestions(true);
}
// A connection can be gone without a word. When nothing was heard for a while, the host is asked.
async function probe() {
  if (document.hidden || !connection.value.isLive || Date.now() - stream.heardAt < QUIET_MS) return;
  if (!(await isReachable(QUIET_MS / 2))) stream.lose();
}

export const tryNow = () => stream.open();

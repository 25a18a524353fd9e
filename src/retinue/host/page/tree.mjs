// A tree of runs as a fold over what a host tells: steps go in, rows come out. Nothing here knows
// the page, the network or the time; `now` is an argument.

import { markName, isOver, shownState } from "./marks.mjs";
import { Phases } from "./phases.mjs";
import { rowWords } from "./row_words.mjs";
import { agentLabel, describeCall, heading, oneLine, shortId, titleOf, wants } from "./words.mjs";

const TAIL = 400;
const FREE = ["offline/", "local/"];
export const NANOS = 1e9;

export class Node {
  constructor(spec) {
    Object.assign(this, {
      spec, id: spec.id, order: spec.order, run: null, parent: null, children: [],
      calls: new Map(), wanted: new Map(), said: "", lastCall: "", writing: "", attempt: 0, replied: 0,
      questions: [], askedOf: new Map(), asksAt: "", wait: null, held: null, tries: 0,
      lastAt: spec.created_at ?? 0, startedAt: null, isCancelling: false, isGone: false, isTakenUp: false,
      tokens: 0, nanos: 0, treeTokens: 0, treeNanos: 0, guess: 0, treeGuess: 0, nUnpriced: 0, isUnpriced: false,
      nOver: 0, state: "queued", mark: "queued", conflict: "", phases: new Phases(spec), seats: [],
    });
    this.label = oneLine(agentLabel(spec.order.label || spec.order.agent), 200) || shortId(spec.id);
    this.title = titleOf(this.label, oneLine(agentLabel(spec.order.agent), 200), spec.order.task);
  }

  get ending() {
    return this.run?.state.is === "Ended" ? this.run.state.ending : null;
  }

  get isOver() {
    return isOver(this.state);
  }
}

// Takes what a host tells, in order; each takes a time that does not grow with the tree. `changed`
// collects the ids whose row may have changed, until someone empties it.
export class TreeView {
  constructor(describe = describeCall) {
    this.describe = describe;
    this.nodes = new Map();
    this.tops = [];
    this.marks = {};
    this.lanes = {};
    this.models = new Map();
    this.ended = []; // in this order, until someone empties it
    this.decided = new Map(); // who answered which question, by its id
    this.changed = new Set();
    this.shape = 0;
    this.seq = 0;
  }

  // One event of a stream, by its name.
  hear(name, value) {
    if (name === "step") this.news(value);
    else if (name === "delta") this.delta(value, this.lastAt ?? 0);
    else if (name === "tree" || name === "end") this.record(value);
  }

  news({ seq, entry, started, row, model }) {
    if (model) this.models.set(model.name, model);
    if (started) this.begin(started);
    this.seq = Math.max(this.seq, seq);
    this.step(entry);
    if (row) this.stand(row.run);
  }

  // A whole tree as it is stored.
  record({ rows, seq = 0 }) {
    for (const [spec, run] of rows) {
      this.begin(spec);
      this.stand(run);
    }
    this.seq = Math.max(this.seq, seq);
  }

  begin(spec) {
    if (this.nodes.has(spec.id)) return;
    const node = new Node(spec);
    this.nodes.set(spec.id, node);
    node.parent = this.nodes.get(spec.parent) ?? null;
    (node.parent ? node.parent.children : this.tops).push(node);
    this.marks.queued = (this.marks.queued ?? 0) + 1;
    this.shape++;
    this.touch(node);
  }

  forget(root) {
    this.tops = this.tops.filter((top) => top.id !== root);
    for (const [id, node] of this.nodes) if (node.spec.root === root) this.nodes.delete(id);
    this.shape++;
  }

  touch(node) {
    for (let above = node; above; above = above.parent) this.changed.add(above.id);
  }

  step(entry) {
    if (entry.stale) return;
    const event = entry.event;
    if (event.event === "Described") this.models.set(event.model.name, event.model);
    const node = this.nodes.get(entry.run || event.id);
    if (!node) return;
    this.lastAt = node.lastAt = Math.max(node.lastAt, entry.at);
    node.phases.take(event, entry.at, node);
    (TAKE[event.event] ?? (() => {})).call(this, node, event, entry);
    this.settle(node);
  }

  stand(run) {
    const node = this.nodes.get(run.id);
    if (!node) return;
    node.run = run;
    const { is, calls } = run.state;
    node.startedAt = run.started_at ?? node.startedAt;
    if (["Asking", "Waiting", "Working"].includes(is) && calls) node.questions = calls.questions ?? [];
    else if (["Ended", "Thinking", "Stopping"].includes(is)) node.questions = [];
    this.askAt(node, is === "Short" && run.state.asks ? run.state.account : "");
    if (is === "Thinking") {
      node.wait = providerWait(run.state, node.spec);
      node.tries = run.state.tries ?? 0;
      node.isCancelling = false;
    }
    if (is === "Ended") {
      node.calls = new Map();
      node.writing = "";
      node.phases.end(run.state.ending);
    } else node.phases.stand(run.state);
    this.spend(node, run);
    this.settle(node);
  }

  // Text as a model writes it.
  delta({ run, attempt, text }, at) {
    const node = this.nodes.get(run);
    if (!node || node.isOver) return;
    if (attempt !== node.attempt) Object.assign(node, { attempt, writing: "" });
    node.writing = (node.writing + text).slice(-TAIL);
    node.lastAt = Math.max(node.lastAt, at);
    node.wait = node.held = null;
    this.settle(node);
  }

  // Which calls wait now because their provider is left alone; all others do not.
  hold(calls) {
    const byRun = new Map(calls.map((call) => [call.run, call]));
    for (const node of this.nodes.values()) {
      const call = byRun.get(node.id);
      if (!call && !node.held) continue;
      node.held = call ? waitOf(call.kind, call.trouble, node.spec.model, call.retry_at, 0, 6) : null;
      this.settle(node);
    }
  }

  // A run waits at the limit of another, or of its own: that is where a person is asked.
  askAt(node, account) {
    for (const id of new Set([node.asksAt, account])) {
      const owner = this.nodes.get(id);
      if (!owner) continue;
      if (id === account) owner.askedOf.set(node.id, node.run.state.asks);
      else owner.askedOf.delete(node.id);
      if (owner !== node) this.settle(owner);
    }
    node.asksAt = account;
  }

  spend(node, run) {
    const usage = run.usage ?? {};
    const tokens = (usage.input ?? 0) + (usage.output ?? 0) + (usage.estimated ?? 0);
    const nanos = usage.nanos ?? 0;
    const guess = usage.nanos_estimated ?? 0;
    const model = this.models.get(node.spec.model);
    const isPriced = model && model.price_in !== undefined && model.price_out !== undefined;
    const isFree = FREE.some((name) => (node.spec.model ?? "").startsWith(name)) || isPriced;
    const isUnpriced = tokens > 0 && !nanos && !isFree;
    const more = [tokens - node.tokens, nanos - node.nanos, guess - node.guess, isUnpriced - node.isUnpriced];
    Object.assign(node, { tokens, nanos, guess, isUnpriced });
    for (let above = node; above && more.some(Boolean); above = above.parent) {
      above.treeTokens += more[0];
      above.treeNanos += more[1];
      above.treeGuess += more[2];
      above.nUnpriced += more[3];
    }
  }

  // Bring what is counted in line with what is known of a run.
  settle(node) {
    const before = node.state;
    node.state = stateOf(node);
    const mark = markOf(node);
    if (mark !== node.mark) {
      this.marks[node.mark]--;
      this.marks[mark] = (this.marks[mark] ?? 0) + 1;
      node.mark = mark;
    }
    if (isOver(before) !== node.isOver) {
      if (node.parent) node.parent.nOver += node.isOver ? 1 : -1;
      if (node.isOver) this.ended.push(node);
    }
    const seats = holdsSlots(node.run) ? (node.order.lanes ?? []).map((lane) => lane.name) : [];
    if (seats.length || node.seats.length) {
      for (const name of node.seats) this.lanes[name]--;
      for (const name of seats) this.lanes[name] = (this.lanes[name] ?? 0) + 1;
      node.seats = seats;
    }
    this.touch(node);
  }

  *walk(nodes = this.tops) {
    for (const node of nodes) {
      yield node;
      yield* this.walk(node.children);
    }
  }

  rows(now) {
    return [...this.walk()].map((node) => this.row(node, now));
  }

  row(node, now) {
    const { spec, run, ending, state } = node;
    const began = node.startedAt || spec.created_at || 0;
    const last = ending?.at || (node.isOver ? node.lastAt : now);
    return {
      id: node.id,
      root: spec.root,
      parent: node.parent ? node.parent.id : "",
      depth: spec.depth ?? 0,
      label: node.label,
      agent: oneLine(agentLabel(spec.order.agent), 200),
      model: oneLine(run?.model_used || spec.model || "", 200),
      state,
      mark: node.mark,
      now: oneLine(rowWords(node, now, this.nodes, this.lanes)),
      task: oneLine(spec.order.task, 400),
      started_at: began || null,
      elapsed_ms: began ? Math.max(0, last - began) : 0,
      turn: run?.turn ?? 0,
      max_turns: spec.order.max_turns ?? null,
      context: (run?.context ?? 0) + (run?.fresh ?? 0),
      window: this.models.get(spec.model)?.window ?? 0,
      tokens: node.tokens,
      tree_tokens: node.treeTokens,
      usd: node.isUnpriced ? null : node.nanos / NANOS,
      tree_usd: node.nUnpriced ? null : node.treeNanos / NANOS,
      tree_usd_estimated: node.treeGuess / NANOS,
      silent_ms: state === "running" && node.lastAt ? Math.max(0, now - node.lastAt) : 0,
      needs_you: state === "needs_input",
      is_over: node.isOver,
      n_children: node.children.length,
      n_over: node.nOver,
      is_last: !node.parent || node.parent.children.at(-1) === node,
    };
  }
}

// Whether the record of the run is newer than the step: who comes late has it with the first step.
const isPast = ({ run }, { turn = Infinity, attempt = Infinity }) => Boolean(run) && (turn < (run.turn ?? 0) || attempt < (run.attempt ?? 0));
const dropQuestion = (node, event) => {
  if (isPast(node, event)) return;
  node.questions = node.questions.filter((q) => (q.index ?? 0) !== (event.index ?? 0));
};
const closed = (node, event) => {
  node.lastCall = node.calls.get(event.index ?? 0) || node.lastCall;
  node.calls.delete(event.index ?? 0);
  dropQuestion(node, event);
};
const asked = (node, event) => {
  if (!event.question || isPast(node, event) || node.questions.some((q) => q.call_id === event.call_id)) return;
  node.questions = [...node.questions, { index: event.index ?? 0, id: "", call_id: event.call_id, text: event.question, tool: event.name }];
};

// What each event changes in a run beside its state.
const TAKE = {
  Replied(node, event) {
    const { reply, attempt } = event;
    const calls = reply.message.calls ?? [];
    node.calls = new Map(calls.map((call, i) => [i, this.describe(call)]));
    node.wanted = new Map(calls.map((call, i) => [i, wants(call)]));
    node.said = heading(reply.message.text);
    Object.assign(node, { replied: attempt, isTakenUp: false });
    if (!isPast(node, event)) Object.assign(node, { writing: "", wait: null, held: null, tries: 0 });
  },
  ModelFailed(node, event) {
    if (isPast(node, event)) return;
    node.writing = "";
    node.tries++;
  },
  ToolReturned: closed,
  Ordered: closed,
  Submitted: closed,
  Composed(node, event) {
    for (const [index] of event.calls) node.calls.delete(index);
  },
  Asked: asked,
  StepTaken: asked,
  Answered(node, event, entry) {
    this.decided.set(event.question || node.questions.find((q) => (q.index ?? 0) === (event.index ?? 0))?.id, { word: "Answered", by: event.by, at: entry.at });
    dropQuestion(node, event);
  },
  Decided(node, event, entry) {
    this.decided.set(event.question, { word: event.allow ? "Allowed" : "Denied", by: event.by, at: entry.at });
    dropQuestion(node, event);
  },
  Merged(node, event) {
    for (const merge of event.merges ?? []) {
      const writer = this.nodes.get(merge.run);
      if (merge.state !== "conflict" || !writer) continue;
      const paths = merge.conflicts ?? [];
      const shown = paths.slice(0, 3).map((path) => oneLine(path, 60)).join(", ");
      writer.conflict = `conflict in ${shown}${paths.length > 3 ? ` and ${paths.length - 3} more` : ""}, not merged`;
      this.touch(writer);
    }
  },
  CancelAsked(node) {
    node.isCancelling = true;
  },
  Recovered(node) {
    Object.assign(node, { writing: "", isTakenUp: true });
  },
  Woke(node, event, entry) {
    if (node.wait && (node.wait.retryAt === null || entry.at >= node.wait.retryAt)) node.wait = null;
  },
  ChildEnded(node, event) {
    const child = this.nodes.get(event.child);
    if (!child || child.isOver) return;
    child.isGone = true;
    this.settle(child);
  },
};

function stateOf(node) {
  const at = node.run?.state;
  if (!at) {
    if (node.isGone) return "completed";
    return node.isCancelling ? "cancelling" : "queued";
  }
  if (at.is === "Ended") return at.ending.state;
  if (node.isGone) return "completed";
  if (at.is === "Stopping" || node.isCancelling) return "cancelling";
  if (node.questions.length && node.order.questions !== "deny") return "needs_input";
  if (node.askedOf.size) return "needs_input";
  if (at.is === "Asking") return node.questions.length ? "waiting" : "running";
  if (at.is === "Thinking" && (node.wait || node.held)) return "waiting";
  return shownState(at.is.toLowerCase());
}

function markOf(node) {
  const wait = node.wait || node.held;
  if (wait && ["running", "waiting"].includes(node.state)) return wait.mark;
  return markName(node.state, { stop: node.ending?.stop, isThinking: node.run?.state.is === "Thinking" });
}

function holdsSlots(run) {
  const is = run?.state.is;
  return is === "Thinking" || (is === "Working" && run.state.seated !== false);
}

function providerWait(state, spec) {
  if (state.retry_at === undefined || !state.waits_kind) return null;
  return waitOf(state.waits_kind, state.trouble, spec.model, state.retry_at, state.tries ?? 0, spec.order.retry?.attempts ?? 6);
}

function waitOf(kind, trouble, model = "", retryAt = null, tries = 0, of = 6) {
  const provider = trouble?.provider || (model.includes(":") ? model.split(":")[0] : "");
  const mark = ["auth", "quota"].includes(kind) ? "waiting" : kind === "rate_limit" ? "rate_limited" : "retrying";
  return { kind, provider, answer: trouble?.answer ?? "", retryAt, tries, of, mark };
}

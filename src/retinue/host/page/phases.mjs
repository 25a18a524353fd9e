// What a run spent its time on, from its events alone: a list of segments, each with its kind
// (model, tool, children, you, queue, provider, budget) and its times. The row of a run is only how
// it stands now, so that a tree that is read again from its log has the same segments.

import { oneLine } from "./words.mjs";

export class Phases {
  constructor(spec) {
    this.segments = [];
    this.turns = [];
    this.mails = [];
    this.open = new Set();
    this.joined = new Set();
    this.endedAt = null;
    this.standing = "";
    this.enter(spec.order.lanes?.length ? "queue" : "model", spec.created_at ?? 0);
  }

  get last() {
    return this.segments.at(-1);
  }

  enter(kind, at, said = "") {
    const words = oneLine(said, 200);
    if (this.endedAt !== null && at >= this.endedAt) return;
    const last = this.last;
    if (last?.kind === kind) {
      if (words) last.words = words;
      return;
    }
    if (last) last.to = at;
    if (last && last.to <= last.from && last.kind !== "you") this.segments.pop();
    if (this.last?.kind === kind) this.last.to = this.endedAt;
    else this.segments.push({ kind, from: at, to: this.endedAt, words });
  }

  take(event, at, node) {
    TAKE[event.event]?.call(this, event, at, node);
  }

  // How it stands now, which no event says: that it is queued, asks a person or waits for budget.
  stand(state) {
    this.standing = { Asking: "you", Queued: "queue", Short: state.asks ? "you" : "budget" }[state.is] ?? "";
  }

  // The kind of a segment; of the last one, how the run stands.
  kindOf(segment) {
    return segment === this.last && segment.to === null && this.standing ? this.standing : segment.kind;
  }

  end(ending) {
    this.standing = "";
    if (this.endedAt !== null) return;
    const last = this.last;
    if (last) last.to = Math.max(last.from, ending.at ?? last.from);
    this.endedAt = ending.at || last?.to || 0;
  }

  // After a call has come back: on with the others, or with the model.
  next(at) {
    if (this.open.size) this.enter("tool", at);
    else this.enter(this.joined.size ? "children" : "model", at);
  }

  // What the time since the last step was, where no event had said so.
  was(kind, at) {
    const last = this.last;
    if (last && last.from < at && last.kind !== "queue") last.kind = kind;
  }
}

const returned = function (event, at) {
  this.open.delete(event.index ?? 0);
  const turn = this.turns.at(-1);
  if (turn) turn.done[event.index ?? 0] = at;
  this.next(at);
};

const TAKE = {
  Admitted(event, at) {
    if (!this.turns.length) this.was("queue", at);
    if (this.last?.kind === "queue") this.next(at);
  },
  Afforded(event, at) {
    this.was("budget", at);
    this.enter("model", at);
  },
  Replied({ reply, attempt }, at) {
    const calls = reply.message.calls ?? [];
    const from = this.last?.kind === "model" ? this.last.from : at;
    if (this.last && this.last.kind !== "model") this.enter("model", at);
    this.turns.push({ n: this.turns.length + 1, attempt, from, at, usage: reply.usage ?? {}, model: reply.model, done: [] });
    for (const mail of this.mails) {
      if (mail.readIn || mail.at > from) continue;
      mail.deliveredAt = from;
      mail.readIn = this.turns.length;
    }
    this.open = new Set(calls.keys());
    this.joined = new Set();
    if (calls.length) this.enter("tool", at, calls.map((call) => call.name).join(", "));
    else this.enter("children", at);
  },
  ModelFailed(event, at) {
    this.enter("provider", at, event.message);
  },
  Woke(event, at) {
    if (this.last?.kind === "provider") this.enter("model", at);
  },
  ToolReturned: returned,
  Submitted: returned,
  Ordered(event, at) {
    this.open.delete(event.index ?? 0);
    if ((event.orders?.spawns ?? []).length) this.joined.add(event.index ?? 0);
    this.next(at);
  },
  Composed(event, at) {
    for (const [index] of event.calls) this.joined.delete(index);
    this.next(at);
  },
  ChildEnded(event, at, node) {
    const isWaiting = node.children.some((child) => child.id !== event.child && !child.isGone && child.phases.endedAt === null);
    if (this.last?.kind === "children" && !isWaiting) {
      this.joined.clear();
      this.next(at);
    }
  },
  Asked(event, at) {
    this.enter("you", at, event.question);
  },
  Answered(event, at) {
    if (this.last?.kind === "you") this.open.delete(event.index ?? 0);
    this.next(at);
  },
  Decided(event, at) {
    this.was("you", at);
    this.next(at);
  },
  Posted(event, at) {
    const { mail } = event;
    if (!mail.sender && (mail.kind ?? "mail") === "mail") this.mails.push({ at, text: mail.text ?? "", steer: Boolean(mail.steer), cuts: ["model", "tool"].includes(this.last?.kind), deliveredAt: null, readIn: 0 });
    if (this.last?.kind === "children" && !this.joined.size && !this.open.size) this.enter("model", at);
  },
};

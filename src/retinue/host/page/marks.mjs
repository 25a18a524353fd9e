// How a state is marked: a class that gives glyph and colour, and a word.

export const MARKS = {
  needs_input: ["you", "Needs you"],
  failed: ["failed", "Failed"],
  working: ["working", "Working"],
  thinking: ["thinking", "Thinking"],
  rate_limited: ["held", "Rate limited"],
  retrying: ["held", "Retrying"],
  at_limit: ["limit", "Stopped at limit"],
  cancelling: ["stopping", "Stopping"],
  waiting: ["waiting", "Waiting"],
  queued: ["queued", "Queued"],
  completed: ["done", "Done"],
  cancelled: ["cancelled", "Cancelled"],
};
export const LOUDNESS = Object.keys(MARKS);
export const ENDS = ["completed", "incomplete", "failed", "timed_out", "cancelled", "interrupted"];
const FAILURES = ["failed", "timed_out", "interrupted", "incomplete"];
const LIMITS = ["budget", "turn_limit", "length"];
const LOUD = ["needs_input", "rate_limited", "retrying", "working", "thinking"];
const SHOWN = { thinking: "running", short: "waiting", working: "running", asking: "needs_input", stopping: "cancelling" };

export const shownState = (name) => SHOWN[name] ?? name;
export const isOver = (state) => ENDS.includes(state);
export const kindOf = (mark) => MARKS[mark][0];
export const wordOf = (mark) => MARKS[mark][1];

// The mark of a state of the record; `stop` is why a run has ended.
export function markName(state, { stop = "", isThinking = false } = {}) {
  if (state === "running") return isThinking ? "thinking" : "working";
  if (state === "incomplete" && LIMITS.some((word) => stop.includes(word))) return "at_limit";
  if (FAILURES.includes(state)) return "failed";
  return MARKS[state] ? state : "waiting";
}

// The mark of a run that stands for its tree: who only waits shows what goes on below it.
export function loudest(own, others) {
  if (own !== "waiting" && own !== "queued") return own;
  return LOUD.find((name) => others.has(name)) ?? own;
}

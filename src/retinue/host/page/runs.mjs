// The list of runs, as plain data: one line for each tree, from its steps while it is open and from
// its summary afterwards; filters as text; what today has cost.

import { ENDS, loudest, markName, wordOf } from "./marks.mjs";
import { failureWords } from "./row_words.mjs";
import { heading, oneLine, shortId, titleOf } from "./words.mjs";

// A line about a tree that is being watched.
export function lineOfTree(view, top, now) {
  const counts = {};
  let loud = null;
  const seen = new Set();
  for (const node of view.walk([top])) {
    counts[node.mark] = (counts[node.mark] ?? 0) + 1;
    seen.add(node.mark);
  }
  const mark = loudest(top.mark, seen);
  if (mark !== top.mark) loud = [...view.walk([top])].find((node) => node.mark === mark);
  const row = view.row(top, now);
  const words = loud ? `${loud.title}: ${view.row(loud, now).now}` : row.now;
  return {
    id: top.id, resumes: top.spec.resumes ?? "", mark, words, counts, isOpen: !top.isOver, isLive: true, state: top.state,
    title: top.title, agent: row.agent, model: row.model,
    created: top.spec.created_at, elapsed: row.elapsed_ms, tokens: row.tree_tokens,
    usd: row.tree_usd, estimated: row.tree_usd_estimated, bound: row.tree_usd_estimated > 0, saved: 0,
    n: Object.values(counts).reduce((a, b) => a + b, 0), nDone: counts.completed ?? 0, nFailed: (counts.failed ?? 0) + (counts.at_limit ?? 0),
  };
}

// A line about a tree that is on record.
export function lineOfSummary(run, now) {
  const began = run.started_at ?? run.created_at;
  const ending = { state: run.state, stop: run.stop, text: run.text, error: run.state === "completed" ? "" : run.text, at: run.ended_at, by: run.by, reason: run.reason, along: run.is_along };
  const isEnded = ENDS.includes(run.state);
  const words = run.state === "completed" ? heading(run.text) : failureWords(ending, began);
  return {
    id: run.id, resumes: run.resumes, mark: markName(run.state, { stop: run.stop }), words: isEnded ? oneLine(words, 300) : "", counts: {}, isOpen: !isEnded, isLive: false, state: run.state,
    title: titleOf(run.label, run.agent, run.task), agent: oneLine(run.agent, 200), model: oneLine(run.model, 200), created: run.created_at,
    elapsed: (run.ended_at ?? now) - began, tokens: run.tokens, usd: run.usd, estimated: run.usd_estimated, bound: run.usd_estimated > 0, saved: run.saved_usd,
    n: run.n_agents, nDone: run.n_done, nFailed: run.n_failed, shares: run.shares,
  };
}

const UNITS = { m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };
const STATES = { working: ["working", "thinking"], failed: ["failed"], done: ["completed"], open: null };

function compares(value, text) {
  const [, sign, number] = /^([<>]?)=?\$?([\d.]+)$/.exec(text) ?? [];
  if (number === undefined) return false;
  if (sign === "<") return value < Number(number);
  return sign === ">" ? value > Number(number) : value >= Number(number);
}

const TESTS = {
  state: (line, value) => value.split(",").some((name) => (name === "open" ? line.isOpen : (STATES[name] ?? [name]).includes(line.mark) || wordOf(line.mark).toLowerCase().replaceAll(" ", "-") === name)),
  agent: (line, value) => line.agent.toLowerCase().includes(value),
  model: (line, value) => line.model.toLowerCase().includes(value),
  cost: (line, value) => line.usd !== null && compares(line.usd, value),
  since: (line, value, now) => {
    const [, n, unit] = /^(\d+)([mhdw])$/.exec(value) ?? [];
    return n !== undefined && now - line.created <= Number(n) * UNITS[unit];
  },
};

export const words = (query) => query.trim().toLowerCase().split(/\s+/).filter(Boolean);

export function matches(line, query, now) {
  const everything = `${line.title} ${shortId(line.id)} ${line.id} ${wordOf(line.mark)} ${line.words} ${line.agent} ${line.model}`.toLowerCase();
  return words(query).every((word) => {
    const [key, ...rest] = word.split(":");
    const value = rest.join(":");
    return value && TESTS[key] ? TESTS[key](line, value, now) : everything.includes(word);
  });
}

// Which single word is in the way, when nothing matches: how many lines match without it.
export function inTheWay(lines, query, now) {
  const all = words(query);
  const counts = all.map((word) => [word, lines.filter((line) => matches(line, all.filter((other) => other !== word).join(" "), now)).length]);
  return counts.sort((a, b) => b[1] - a[1])[0] ?? null;
}

const dayOf = (ms) => new Date(ms).toDateString();

// What lines have cost together: what is known for sure, what it is at most, and whether a price is
// not known, which is not nothing.
export function paid(lines) {
  const known = lines.filter((line) => line.usd !== null);
  const sum = (cost) => known.reduce((total, line) => total + cost(line), 0);
  return { sure: sum(sureOf), most: sum((line) => line.usd), isPartial: known.length < lines.length };
}

const sureOf = (line) => Math.max(0, (line.usd ?? 0) - (line.estimated ?? 0));

// Lines by day, newest first.
export function byDay(lines, now) {
  const days = [];
  for (const line of [...lines].sort((a, b) => b.created - a.created || (a.id < b.id ? 1 : -1))) {
    const name = dayOf(line.created);
    if (days.at(-1)?.name !== name) days.push({ name, title: dayTitle(line.created, now), lines: [] });
    days.at(-1).lines.push(line);
  }
  return days;
}

function dayTitle(ms, now) {
  if (dayOf(ms) === dayOf(now)) return "Today";
  if (dayOf(ms) === dayOf(now - UNITS.d)) return "Yesterday";
  return new Date(ms).toLocaleDateString("en", { weekday: "long", day: "numeric", month: "long" });
}

// Today in numbers. What a run is known to have cost is counted at the hour of its start.
export function today(lines, now) {
  const mine = lines.filter((line) => dayOf(line.created) === dayOf(now));
  const hours = Array(24).fill(0);
  for (const line of mine) hours[new Date(line.created).getHours()] += sureOf(line);
  return {
    ...paid(mine),
    saved: mine.reduce((sum, line) => sum + line.saved, 0),
    nRuns: mine.length,
    hours,
    nWorking: lines.reduce((sum, line) => sum + (line.counts.working ?? 0) + (line.counts.thinking ?? 0), 0),
  };
}


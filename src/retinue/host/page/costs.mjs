// What was spent, as plain numbers: by day, by agent and by model, each counted where it was spent.

import { NANOS } from "./tree.mjs";

const DAY = 86_400_000;
const FREE = 1e-9;

// Where in a tree that is watched it was spent: by agent and model.
export function sharesOf(view, top) {
  const groups = new Map();
  for (const node of view.walk([top])) {
    const row = view.row(node, 0);
    const { input = 0, output = 0, estimated = 0, cache_read: cached = 0 } = node.run?.usage ?? {};
    const key = `${row.agent}\n${row.model}`;
    const sum = groups.get(key) ?? { agent: row.agent, model: row.model, n_runs: 0, input: 0, cached: 0, output: 0, usd: 0, usd_estimated: 0 };
    sum.n_runs++;
    sum.input += input + estimated;
    sum.cached += cached;
    sum.output += output;
    sum.usd = sum.usd === null || node.isUnpriced ? null : sum.usd + node.nanos / NANOS;
    sum.usd_estimated += node.guess / NANOS;
    groups.set(key, sum);
  }
  return [...groups.values()];
}

// Lines of the last `n` days, by day of start, oldest first; days without any are there, too.
export function daysOf(lines, now, n) {
  const today = new Date(now).setHours(12, 0, 0, 0);
  return Array.from({ length: n }, (_, back) => {
    const at = new Date(today - (n - 1 - back) * DAY);
    return { at, lines: lines.filter((line) => new Date(line.created).toDateString() === at.toDateString()) };
  });
}

// Shares of these lines by `key`, the most expensive first; what has no price is counted in tokens.
export function groupsOf(lines, key) {
  const groups = new Map();
  for (const share of lines.flatMap((line) => line.shares)) {
    const name = share[key] || "none";
    const sum = groups.get(name) ?? { name, n: 0, input: 0, cached: 0, output: 0, usd: 0, isPriced: true, isBound: false };
    sum.n += share.n_runs;
    sum.input += share.input;
    sum.cached += share.cached;
    sum.output += share.output;
    sum.usd += share.usd ?? 0;
    sum.isPriced &&= share.usd !== null;
    sum.isBound ||= (share.usd_estimated ?? 0) > 0;
    groups.set(name, sum);
  }
  return [...groups.values()].sort((a, b) => b.usd - a.usd || b.input - a.input);
}

// The first of them, and one for all others.
export function mostOf(groups, n) {
  if (groups.length <= n) return groups;
  const rest = groups.slice(n - 1);
  const sum = (key) => rest.reduce((total, one) => total + one[key], 0);
  const others = { name: `${rest.length} others`, n: sum("n"), input: sum("input"), cached: sum("cached"), output: sum("output"), usd: sum("usd"), isPriced: rest.every((one) => one.isPriced), isBound: rest.some((one) => one.isBound) };
  return [...groups.slice(0, n - 1), others];
}

// Sums of a day by model, in the order of `models`; those behind the fourth are one.
export function stackOf(lines, models) {
  const sums = new Map(groupsOf(lines, "model").map(({ name, usd }) => [name, usd]));
  const parts = models.slice(0, 3).map(({ name }) => sums.get(name) ?? 0);
  const rest = models.slice(3).reduce((total, { name }) => total + (sums.get(name) ?? 0), 0);
  return [...parts, rest];
}

// Even steps of an axis up to a sum: 1, 2 or 5 times a power of ten, at most five of them.
export function stepsTo(most) {
  const least = Math.max(most, FREE) / 5;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((n) => n * power).find((value) => value >= least * 0.999);
  return Array.from({ length: Math.ceil(most / step - 0.001) + 1 || 1 }, (_, n) => n * step);
}

export function csvOf(lines) {
  const cell = (value) => `"${String(value ?? "").replace(/^([=+\-@\t\r])/, "'$1").replaceAll('"', '""')}"`;
  const rows = lines.flatMap((line) => line.shares.map((share) => [new Date(line.created).toISOString(), line.id, line.title, share.agent, share.model, share.n_runs, share.input, share.cached, share.output, share.usd ?? ""]));
  return [["started", "run", "task", "agent", "model", "runs", "input", "cached", "output", "usd"], ...rows].map((row) => row.map(cell).join(",")).join("\n");
}

// Sums of costs on the page: a bound is never among the facts.

import assert from "node:assert/strict";
import test from "node:test";

import { lineOfSummary, paid, today } from "../../src/retinue/host/page/runs.mjs";
import { sumText } from "../../src/retinue/host/page/words.mjs";

const NOW = new Date(2026, 10, 18, 12).getTime();
const summary = (usd, usd_estimated) => ({
  id: "r", resumes: "", label: "a", agent: "a", task: "t", model: "m", state: "completed", stop: "", text: "x",
  created_at: NOW - 1_000, started_at: NOW - 900, ended_at: NOW, tokens: 10, usd, usd_estimated, saved_usd: 0, n_agents: 1, n_done: 1, n_failed: 0,
});
const lines = (...costs) => costs.map(([usd, estimated]) => lineOfSummary(summary(usd, estimated), NOW));

test("the sum of today has only facts, and what it is at most", () => {
  const told = today(lines([0.5, 0.25], [0.25, 0]), NOW);
  assert.deepEqual([told.sure, told.most, told.isPartial], [0.5, 0.75, false]);
  assert.equal(told.hours.reduce((a, b) => a + b), 0.5);
  assert.equal(sumText(told), "$0.50, ≤$0.75");
});

test("what has no price is in no sum, and said", () => {
  assert.equal(sumText(paid(lines([0.5, 0], [null, 0.25]))), "$0.50, more n/a");
  assert.equal(sumText(paid(lines([null, 0]))), "n/a");
  assert.equal(sumText(paid(lines([0.5, 0]))), "$0.50");
  assert.equal(sumText(paid([])), "$0.00");
});

// What was spent is counted where it was spent, and drawn on an even axis.

import assert from "node:assert/strict";
import test from "node:test";

import { csvOf, daysOf, groupsOf, mostOf, sharesOf, stackOf, stepsTo } from "../../src/retinue/host/page/costs.mjs";
import { lineOfTree } from "../../src/retinue/host/page/runs.mjs";
import { TreeView } from "../../src/retinue/host/page/tree.mjs";
import { items, feed } from "./recordings.mjs";

const NOON = new Date(2026, 10, 19, 12).getTime();
const share = (agent, model, usd, n_runs = 1) => ({ agent, model, usd, n_runs, input: 100, cached: 50, output: 10 });
const line = (days, ...shares) => ({ id: `r${days}`, title: "=1+1", created: NOON - days * 86_400_000, shares });

test("each agent and model has what its own runs took", () => {
  const lines = [line(0, share("lead", "big", 1), share("coder", "small", 0.5, 4)), line(1, share("coder", "big", 2), share("coder", "local", null))];
  const agents = groupsOf(lines, "agent").map(({ name, n, usd, isPriced }) => [name, n, usd, isPriced]);
  assert.deepEqual(agents, [["coder", 6, 2.5, false], ["lead", 1, 1, true]]);
  const models = groupsOf(lines, "model");
  assert.deepEqual(models.map(({ name, usd, input }) => [name, usd, input]), [["big", 3, 200], ["small", 0.5, 100], ["local", 0, 100]]);
  assert.deepEqual(mostOf(models, 2).map(({ name, usd, n }) => [name, usd, n]), [["big", 3, 2], ["2 others", 0.5, 5]]);
  assert.deepEqual(stackOf(lines, models), [3, 0.5, 0, 0]);
});

test("every day of a period is there, the last one is today", () => {
  const days = daysOf([line(0), line(2), line(9)], NOON, 7);
  assert.deepEqual(days.map(({ lines }) => lines.length), [0, 0, 0, 0, 1, 0, 1]);
  assert.equal(days.at(-1).at.getDate(), 19);
});

test("an axis has at most six even steps and reaches the top", () => {
  for (const most of [0, 0.0003, 0.05, 1, 7.3, 13.5, 1_234]) {
    const steps = stepsTo(most);
    assert.ok(steps.length >= 1 && steps.length <= 6, `${most}: ${steps}`);
    assert.ok(steps.at(-1) >= most * 0.99, `${most}: ${steps}`);
  }
});

test("a tree that is watched adds up to its line", () => {
  const view = new TreeView();
  for (const item of items("tree")) feed(view, item);
  const [top] = view.tops;
  const shares = sharesOf(view, top);
  assert.ok(shares.length > 1);
  assert.equal(shares.reduce((sum, one) => sum + one.n_runs, 0), view.nodes.size);
  const tokens = shares.reduce((sum, one) => sum + one.input + one.output, 0);
  const { usd, tokens: all } = lineOfTree(view, top, 0);
  assert.equal(tokens, all);
  assert.ok(Math.abs(shares.reduce((sum, one) => sum + one.usd, 0) - usd) < 1e-9);
});

test("a table for other programs holds no formula", () => {
  const rows = csvOf([line(0, share("@lead", "big", 1))]).split("\n");
  assert.equal(rows.length, 2);
  assert.match(rows[1], /"'=1\+1","'@lead","big","1","100","50","10","1"$/);
});

// What a run spent its time on, as a page that opens late sees it: how the run stands now comes with
// its first step, before the steps that are over.

import assert from "node:assert/strict";
import test from "node:test";

import { Phases } from "../../src/retinue/host/page/phases.mjs";
import { priceOf } from "../../src/retinue/host/page/words.mjs";
import { itemsOf } from "../../src/retinue/host/page/conversation.mjs";
import { bars, gaps, scaleOf, slowestPath, ticks, within } from "../../src/retinue/host/page/timeline.mjs";

const HOUR = 3_600_000;
const run = (at = 0) => new Phases({ order: {}, created_at: at });
const reply = (attempt, ...names) => ({ event: "Replied", attempt, reply: { message: { calls: names.map((name) => ({ name })) }, usage: {} } });

test("a run that asks is drawn as asking, whenever that is heard", () => {
  const phases = run();
  phases.stand({ is: "Asking" });
  phases.take({ event: "Admitted" }, 10, {});
  phases.take(reply(1, "edit"), 20, {});
  phases.take({ event: "Decided", index: 0 }, 30, {});
  phases.take({ event: "ToolReturned", index: 0 }, 40, {});
  phases.take(reply(2, "edit"), 50, {});
  assert.deepEqual(phases.segments.map((one) => [phases.kindOf(one), one.from, one.to]), [["queue", 0, 10], ["model", 10, 20], ["you", 20, 30], ["tool", 30, 40], ["model", 40, 50], ["you", 50, null]]);
});

test("a run that waits for its turn is queued", () => {
  const phases = run();
  phases.stand({ is: "Queued" });
  assert.equal(phases.kindOf(phases.last), "queue");
});

test("times in which nothing ran are folded, and the scale goes over them both ways", () => {
  const phases = run();
  phases.take(reply(1, "sleep"), 1_000, {});
  phases.was("children", 10 * HOUR);
  phases.enter("model", 10 * HOUR);
  phases.end({ at: 10 * HOUR + 1_000 });
  const node = { id: "a", phases, children: [] };
  const whole = { from: 0, to: 10 * HOUR + 1_000 };
  const folded = gaps([node], whole, whole.to);
  assert.deepEqual(folded, [{ from: 1_000, to: 10 * HOUR }]);
  const scale = scaleOf(whole, folded);
  for (const t of [0, 500, 5 * HOUR, 10 * HOUR + 500]) assert.ok(Math.abs(scale.t(scale.x(t)) - t) < 1, `${t}`);
  assert.equal(Math.round(scale.x(10 * HOUR) - scale.x(1_000)), 5);
  assert.ok(ticks(scale).every(({ x }) => x >= 0 && x <= 100));
});

test("the slowest path goes through the child that came back last", () => {
  const quick = { id: "quick", children: [], phases: run(10) };
  const slow = { id: "slow", children: [], phases: run(10) };
  quick.phases.end({ at: 20 });
  slow.phases.end({ at: 90 });
  const top = { id: "top", children: [quick, slow], phases: run(0) };
  top.phases.enter("children", 10);
  top.phases.enter("model", 90);
  top.phases.end({ at: 100 });
  assert.deepEqual(slowestPath(top, 100), [{ id: "top", from: 90, to: 100 }, { id: "slow", from: 10, to: 90 }, { id: "top", from: 0, to: 10 }]);
});

test("bars that are too small to be seen are merged, and 1,000 of them fit the lane", () => {
  const phases = run();
  for (let n = 1; n <= 1_000; n++) phases.enter(n % 2 ? "tool" : "model", n * 10);
  phases.end({ at: 10_010 });
  const shown = bars(phases, scaleOf({ from: 0, to: 10_010 }), 10_010);
  assert.ok(shown.length <= 400, `${shown.length}`);
  const last = shown.at(-1);
  assert.ok(last.x + last.width > 99);
});

test("a run that continues another shows its turns without numbers and its messages without receipts", () => {
  const phases = run();
  phases.take({ event: "Posted", mail: { text: "hurry" } }, 5, {});
  phases.take(reply(1), 10, {});
  const says = (role, text, more = {}) => ({ role, text, ...more });
  const before = [says("user", "first", { kind: "task" }), says("user", "hurry up", { kind: "mail" }), says("assistant", "one")];
  const items = itemsOf([...before, says("user", "next", { kind: "task" }), says("user", "hurry", { kind: "mail" }), says("assistant", "two")], phases);
  assert.deepEqual(items.filter((item) => item.kind === "turn").map((item) => [item.n, Boolean(item.turn), item.at]), [[0, false, 2], [1, true, 5]]);
  assert.deepEqual(items.filter((item) => item.kind === "mail").map((item) => item.mail?.text ?? null), [null, "hurry"]);
});

test("the part of the time that is shown stays within the whole, from milliseconds to days", () => {
  const whole = { from: 1_000, to: 1_000 + 26 * HOUR };
  assert.deepEqual(within({ from: 0, to: 5 }, whole), { from: 1_000, to: 1_010 });
  assert.deepEqual(within({ from: 50 * HOUR, to: 51 * HOUR }, whole), { from: 1_000 + 25 * HOUR, to: 1_000 + 26 * HOUR });
  assert.deepEqual(within({ from: -Infinity, to: Infinity }, whole), whole);
  const close = scaleOf({ from: 61_000, to: 61_010, start: 1_000 });
  assert.deepEqual(ticks(close).map(({ text }) => text).slice(0, 2), ["60.000s", "60.002s"]);
  assert.ok(ticks(close).length > 4 && ticks(close).every(({ x }) => x >= 0 && x <= 100));
});

test("what a call of a model cost counts its cached part at its own price", () => {
  const model = { price_in: 3_000, price_out: 15_000, price_cache_read: 300 };
  assert.equal(priceOf(model, { input: 1_000, cache_read: 900, output: 10 }), (100 * 3_000 + 900 * 300 + 10 * 15_000) / 1e9);
  assert.equal(priceOf({ price_in: 3_000 }, { input: 1_000 }), null);
  assert.equal(priceOf(undefined, { input: 1_000 }), null);
  assert.equal(priceOf({ price_in: 0, price_out: 0 }, { input: 1_000 }), 0);
});

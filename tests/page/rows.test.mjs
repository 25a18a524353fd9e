// The page's fold against the terminal's: the same recordings, row by row, after each item.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { TreeView } from "../../src/retinue/host/page/tree.mjs";
import { feed, items } from "./recordings.mjs";

const EXPECTED = JSON.parse(readFileSync(process.env.RETINUE_ROWS, "utf8"));

for (const [name, moments] of Object.entries(EXPECTED)) {
  test(`${name}: the rows are those of the terminal`, () => {
    const view = new TreeView((call) => call.name);
    items(name).forEach((item, n) => {
      feed(view, item);
      const [at, expected] = moments[n];
      const rows = view.rows(at);
      assert.equal(rows.length, expected.length);
      rows.forEach((row, i) => {
        const shown = Object.fromEntries(Object.keys(expected[i]).map((key) => [key, row[key]]));
        assert.deepEqual(shown, expected[i], `item ${n}, row ${i}`);
      });
    });
  });

  test(`${name}: a page that opens later sees how each run stands`, () => {
    // It gets all steps from the beginning, with the first of a run how that stands now.
    const all = items(name);
    const stands = (view) => view.rows(0).map(({ id, state, mark, tokens, tree_usd }) => ({ id, state, mark, tokens, tree_usd }));
    const live = new TreeView();
    all.forEach((item, n) => {
      feed(live, item);
      if (item.is !== "state" || all[n + 1]?.is === "state") return;
      const told = all.slice(0, n + 1);
      const records = new Map(told.filter((one) => one.is === "state").map((one) => [one.row.run.id, one.row.run]));
      const late = new TreeView();
      for (const one of told) {
        if (one.is !== "state") feed(late, one);
        if (one.is === "run" && records.has(one.spec.id)) late.stand(records.get(one.spec.id));
      }
      assert.deepEqual(stands(late), stands(live), `after item ${n}`);
    });
  });
}

test("what is told of the past does not end a wait of today", () => {
  const view = new TreeView();
  view.begin({ id: "a", root: "a", order: { agent: "a", task: "t" }, model: "anthropic:m" });
  view.stand({ id: "a", attempt: 2, turn: 1, state: { is: "Thinking", attempt: 2, tries: 1, retry_at: 24_000, waits_kind: "rate_limit" } });
  const past = [{ event: "Asked", turn: 0, call_id: "c", name: "ask", question: "Which?" }, { event: "ModelFailed", attempt: 1 }, { event: "Replied", attempt: 1, reply: { message: { text: "Earlier." } } }];
  for (const event of past) {
    view.step({ run: "a", at: 0, event });
    const [row] = view.rows(0);
    assert.deepEqual([row.state, row.mark], ["waiting", "rate_limited"], event.event);
    assert.match(row.now, /24 s, 2 of 6$/);
  }
});

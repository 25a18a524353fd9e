// The page's fold against the terminal's: the same recordings, row by row, after each item.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { TreeView } from "../../src/retinue/host/page/tree.mjs";

const FIXTURES = new URL("../cli/fixtures/", import.meta.url);
const EXPECTED = JSON.parse(readFileSync(process.env.RETINUE_ROWS, "utf8"));

export function items(name) {
  return readFileSync(new URL(`${name}.jsonl`, FIXTURES), "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

export function feed(view, item) {
  if (item.is === "run") view.begin(item.spec);
  else if (item.is === "step") view.step(item.entry);
  else if (item.is === "state") view.stand(item.row.run);
  else if (item.is === "delta") view.delta(item, 0);
  else if (item.is === "held") view.hold(item.calls ?? []);
}

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

  test(`${name}: in the other direction of time nothing is missing`, () => {
    // A page that opens later gets the rows as they are at the end, with the first step of each run.
    const all = items(name);
    const last = new Map(all.filter((item) => item.is === "state").map((item) => [item.row.run.id, item.row.run]));
    const live = new TreeView();
    const late = new TreeView();
    for (const item of all) {
      feed(live, item);
      if (item.is === "state") continue;
      feed(late, item);
      if (item.is === "run" && last.has(item.spec.id)) late.stand(last.get(item.spec.id));
    }
    const now = all.findLast((item) => item.is === "step").entry.at;
    const essence = (view) => view.rows(now).map(({ label, state, mark, tokens, tree_usd, elapsed_ms }) => ({ label, state, mark, tokens, tree_usd, elapsed_ms }));
    assert.deepEqual(essence(late), essence(live));
  });
}

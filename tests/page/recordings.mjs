// What was told of real runs, which terminal and page are tested on.

import { readFileSync } from "node:fs";

const FIXTURES = new URL("../cli/fixtures/", import.meta.url);

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

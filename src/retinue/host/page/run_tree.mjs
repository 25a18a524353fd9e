// One tree as a page watches it.

import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { get, Stream } from "./client.mjs";
import { LiveTree } from "./live.mjs";

// The tree of a run, from its whole log and then as it moves. `moved` is called with its root when
// the run is not one itself.
export function useTree(run, moved) {
  const tree = useMemo(() => new LiveTree(), [run]);
  const problem = useSignal(null);
  useEffect(() => {
    let stream = null;
    let isGone = false;
    problem.value = null;
    get(`runs/${encodeURIComponent(run)}`).then(
      (shown) => {
        if (isGone) return;
        if (shown.root !== run) return moved(shown.root);
        stream = new Stream(`runs/${run}/events`, { deltas: true }, ["step", "delta", "end", "problem"], (name, value) => {
          if (name === "problem") problem.value = value;
          else tree.hear(name, value);
        });
      },
      (error) => (problem.value = error),
    );
    return () => {
      isGone = true;
      stream?.close();
      tree.close();
    };
  }, [run]);
  return [tree, problem];
}

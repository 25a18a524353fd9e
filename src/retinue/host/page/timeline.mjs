// A tree on an axis of time, as plain numbers: where a moment lies, which gaps are folded, which
// bars a run has, and which path was the slowest.

const GAP_MS = 30_000;
const GAP_SHARE = 0.1;
const GAP_WIDTH = 5;
export const LEAST = 0.5; // percent of a lane: about two pixels
const RUNS = ["model", "tool", "provider"];
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1.5e4, 3e4, 6e4, 1.2e5, 3e5, 6e5, 9e5, 1.8e6, 3.6e6, 7.2e6, 1.08e7, 2.16e7, 4.32e7, 8.64e7, 1.728e8, 4.32e8];

// From when to when a tree lasted; an open one lasts until now.
export function extent(nodes, now) {
  let from = Infinity;
  let to = -Infinity;
  for (const { phases } of nodes) {
    from = Math.min(from, phases.segments[0]?.from ?? Infinity);
    to = Math.max(to, phases.endedAt ?? now);
  }
  return from === Infinity ? { from: now, to: now + 1 } : { from, to: Math.max(to, from + 1) };
}

// The times in which nothing ran in the whole tree, when they are long.
export function gaps(nodes, { from, to }, now) {
  const busy = [];
  for (const { phases } of nodes) for (const s of phases.segments) if (RUNS.includes(phases.kindOf(s))) busy.push([s.from, s.to ?? now]);
  busy.sort((a, b) => a[0] - b[0]);
  const found = [];
  let at = from;
  for (const [start, end] of [...busy, [to, to]]) {
    if (start - at >= Math.max(GAP_MS, GAP_SHARE * (to - from))) found.push({ from: at, to: start });
    at = Math.max(at, end);
  }
  return found;
}

// A scale from times to percent of the lane; times are told from `start` on. Folded gaps have a fixed width.
export function scaleOf({ from, to, start = from }, folded = []) {
  const inside = folded.filter((gap) => gap.to > from && gap.from < to);
  const lost = inside.reduce((sum, gap) => sum + Math.min(gap.to, to) - Math.max(gap.from, from), 0);
  const room = 100 - GAP_WIDTH * inside.length;
  const rate = room / Math.max(1, to - from - lost);
  const x = (t) => {
    let at = 0;
    let last = from;
    for (const gap of inside) {
      const start = Math.max(gap.from, from);
      const end = Math.min(gap.to, to);
      if (t <= start) break;
      at += (start - last) * rate;
      if (t < end) return at + (GAP_WIDTH * (t - start)) / (end - start);
      at += GAP_WIDTH;
      last = end;
    }
    return at + (t - last) * rate;
  };
  const t = (percent) => {
    let low = from;
    let high = to;
    for (let n = 0; n < 50; n++) x((low + high) / 2) < percent ? (low = (low + high) / 2) : (high = (low + high) / 2);
    return (low + high) / 2;
  };
  return { x, t, from, to, start, gaps: inside };
}

// The part of `whole` that is shown after a wish for another: never shorter than `least`, never
// outside of it.
export function within({ from, to }, whole, least = 10) {
  const length = Math.min(whole.to - whole.from, Math.max(least, to - from));
  const start = Math.max(whole.from, Math.min(from, whole.to - length));
  return { from: start, to: start + length };
}

// Ticks at even times, about `most` of them; none within a folded gap.
export function ticks(scale, most = 8) {
  const length = scale.to - scale.from - scale.gaps.reduce((sum, gap) => sum + gap.to - gap.from, 0);
  const step = STEPS.find((ms) => length / ms <= most) ?? Math.ceil(length / most / 8.64e7) * 8.64e7;
  const out = [];
  for (let at = Math.ceil((scale.from - scale.start) / step) * step; at <= scale.to - scale.start; at += step) {
    const t = scale.start + at;
    const gap = scale.gaps.find((g) => t > g.from && t < g.to);
    if (gap) at = Math.ceil((gap.to - scale.start) / step) * step - step;
    else out.push({ x: scale.x(t), text: axisText(at, step) });
  }
  return out;
}

export function axisText(ms, step = 1_000) {
  if (step < 1_000) return ms < 1_000 ? `${ms}ms` : `${(ms / 1_000).toFixed(3 - Math.trunc(Math.log10(step)))}s`;
  const s = Math.round(ms / 1_000);
  const two = (n) => String(n).padStart(2, "0");
  if (s >= 86_400) return `${Math.trunc(s / 86_400)}d ${Math.trunc((s % 86_400) / 3_600)}h`;
  if (s >= 3_600) return `${Math.trunc(s / 3_600)}:${two(Math.trunc((s % 3_600) / 60))}:${two(s % 60)}`;
  return `${Math.trunc(s / 60)}:${two(s % 60)}`;
}

// The bars of one run within a scale: what is too small to be seen is merged with its neighbour.
export function bars(phases, scale, now, least = LEAST) {
  const out = [];
  for (const segment of phases.segments) {
    const end = segment.to ?? Math.max(segment.from, phases.endedAt ?? now);
    if (end < scale.from || segment.from > scale.to) continue;
    const x = Math.max(0, scale.x(segment.from));
    const width = Math.min(100, scale.x(end)) - x;
    const last = out.at(-1);
    if (last && x + width <= last.x + least) {
      if (end - segment.from > last.ms) Object.assign(last, { kind: phases.kindOf(segment), ms: end - segment.from, words: segment.words });
    } else out.push({ kind: phases.kindOf(segment), x, width: Math.max(least, width), ms: end - segment.from, from: segment.from, to: end, words: segment.words });
  }
  return out;
}

// The slowest path: from the end of the tree back, through the child that came back last.
export function slowestPath(top, now) {
  const path = [];
  follow(top, Infinity, path, now);
  return path;
}

function follow(node, until, path, now) {
  const segments = [...node.phases.segments].reverse();
  let at = Math.min(until, node.phases.endedAt ?? now);
  for (const segment of segments) {
    if (segment.from >= at) continue;
    const end = Math.min(segment.to ?? now, at);
    if (segment.kind === "children") {
      const back = node.children
        .map((child) => [child, child.phases.endedAt ?? now])
        .filter(([child, over]) => over > segment.from && (child.phases.segments[0]?.from ?? Infinity) < end);
      const last = back.sort((a, b) => b[1] - a[1])[0];
      if (last) follow(last[0], end, path, now);
    } else path.push({ id: node.id, from: segment.from, to: end });
    at = segment.from;
  }
}

// How many agents were busy, in `n` equal parts of the time.
export function activity(nodes, scale, now, n = 80) {
  const out = Array.from({ length: n }, () => ({ model: 0, tool: 0 }));
  for (const { phases } of nodes) {
    for (const s of phases.segments) {
      const kind = phases.kindOf(s);
      if (kind !== "model" && kind !== "tool") continue;
      const first = Math.max(0, Math.trunc((scale.x(s.from) / 100) * n));
      const last = Math.min(n - 1, Math.trunc((scale.x(Math.min(s.to ?? now, scale.to)) / 100) * n));
      for (let i = first; i <= last; i++) out[i][kind]++;
    }
  }
  return out;
}

// What a run was doing at a moment of the past: the kind of its segment, or how it stood before and
// after it.
export function phaseAt(phases, t) {
  if (t < (phases.segments[0]?.from ?? Infinity)) return "none";
  if (phases.endedAt !== null && t >= phases.endedAt) return "ended";
  const segment = phases.segments.findLast((s) => s.from <= t);
  return segment ? phases.kindOf(segment) : "none";
}

// A flame: each run as wide as its share of `size` within its parent's.
export function flame(top, size) {
  const out = [];
  const place = (node, x, width, depth) => {
    const total = size(node, true);
    out.push({ node, x, width, depth, own: total ? (width * size(node, false)) / total : width });
    let at = x + (total ? (width * size(node, false)) / total : 0);
    for (const child of node.children) {
      const share = total ? (width * size(child, true)) / total : 0;
      if (share > 0) place(child, at, share, depth + 1);
      at += share;
    }
  };
  place(top, 0, 100, 0);
  return out;
}

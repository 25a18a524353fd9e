// Any past moment of the whole tree: a slider over how many agents were busy.

import { useMemo, useRef } from "preact/hooks";
import { Glyph, html, Icon } from "./icons.mjs";
import { now } from "./live.mjs";
import { useKeys } from "./shell.mjs";
import { activity, axisText } from "./timeline.mjs";
import { span } from "./words.mjs";

const PARTS = 80;

export function Scrubber({ tree, scale, whole, past, isLive }) {
  const ref = useRef(null);
  const at = past.value ?? whole.to;
  const moments = useMemo(() => activity(tree.view.nodes.values(), scale, now.value, PARTS), [scale]);
  const most = Math.max(1, ...moments.map(({ model, tool }) => model + tool));
  const x = Math.min(100, Math.max(0, scale.x(at)));
  const set = (t) => (past.value = t >= whole.to ? null : Math.max(whole.from, t));
  // To the next moment at which a turn of any agent ended.
  const turn = (by) => {
    const marks = [...tree.view.nodes.values()].flatMap(({ phases }) => phases.turns.map((one) => one.at)).filter((t) => (by < 0 ? t < at - 1 : t > at + 1));
    set(by < 0 ? Math.max(whole.from, ...marks) : Math.min(whole.to, ...marks));
  };
  const step = (share) => set(at + share * (scale.to - scale.from));
  const drag = (event) => {
    if (event.type === "pointerdown") ref.current.setPointerCapture(event.pointerId);
    else if (!event.buttons) return;
    const box = ref.current.getBoundingClientRect();
    set(scale.t((100 * (event.clientX - box.left)) / box.width));
  };
  const keys = { ArrowLeft: -0.01, ArrowRight: 0.01, PageDown: -0.1, PageUp: 0.1, Home: -2, End: 2 };
  const onKey = (event) => {
    if (!(event.key in keys)) return;
    event.preventDefault();
    event.stopPropagation();
    step(keys[event.key]);
  };
  useKeys({ "[": () => step(-0.01), "]": () => step(0.01), "{": () => turn(-1), "}": () => turn(1), l: () => (past.value = null) });
  return html`<div class="trow scrub"><div class="line">
      ${past.value === null ? html`<span class="follow" role="status"><${Glyph} kind=${isLive ? "working" : "done"} colored/>${isLive ? "Following live" : "At the end"}</span>` : html`<button class="btn" onClick=${() => (past.value = null)}><${Icon} name="play" small/>${isLive ? "Back to live" : "To the end"}</button>`}</div>
    <svg class="mini" ref=${ref} role="slider" tabindex="0" aria-label="Moment shown" aria-valuemin="0" aria-valuemax=${Math.round((whole.to - whole.from) / 1000)} aria-valuenow=${Math.round((at - whole.from) / 1000)} aria-valuetext=${past.value === null ? `Now, ${span(at - whole.from)}` : span(at - whole.from)} onPointerDown=${drag} onPointerMove=${drag} onKeyDown=${onKey}>
      <rect class="hit" width="100%" height="100%"/>
      ${moments.map(({ model, tool }, n) => [["act", model, tool], ["act-tool", tool, 0]].filter((part) => part[1]).map(([name, value, below]) => html`<rect class=${name} x=${`${(n * 100) / PARTS}%`} width=${`${95 / PARTS}%`} y=${28 - (22 * (value + below)) / most} height=${(22 * value) / most}/>`))}
      <line class="base" x1="0" x2="100%" y1="28.5" y2="28.5"/><line class="now-line" x1=${`${x}%`} x2=${`${x}%`} y1="0" y2="100%"/><circle class="handle" cx=${`${x}%`} cy="16" r="4.5"/></svg>
    <span class="end faint">${past.value === null ? "drag to look back" : `at ${axisText(at - whole.from)}`}</span></div>`;
}

// Glyphs of states and icons of actions, as paths; and the patterns that bars are filled with.

import { h } from "preact";
import htm from "htm";

export const html = htm.bind(h);

const SHAPES = {
  "g-cancelled": html`<circle cx="8" cy="8" r="5.25"/><path d="m4.4 11.6 7.2-7.2"/>`,
  "g-done": html`<path d="m3 8.6 3.3 3.3L13 4.8" stroke-width="1.9"/>`,
  "g-failed": html`<path d="m3.9 3.9 8.2 8.2m0-8.2-8.2 8.2" stroke-width="1.9"/>`,
  "g-held": html`<circle cx="8" cy="8" r="5.75"/><path d="M8 4.9V8l2.1 1.5"/>`,
  "g-limit": html`<circle cx="8" cy="8" r="5.25"/><path d="M8 2.75a5.25 5.25 0 0 1 0 10.5Z" fill="currentColor" stroke="none"/>`,
  "g-queued": html`<circle cx="8" cy="8" r="5.25" stroke-dasharray="1.6 2.5"/>`,
  "g-stopping": html`<circle cx="8" cy="8" r="5.75"/><rect x="5.75" y="5.75" width="4.5" height="4.5" fill="currentColor" stroke="none"/>`,
  "g-thinking": html`<circle cx="8" cy="8" r="5.25"/><circle class="beat" cx="8" cy="8" r="2.5" fill="currentColor" stroke="none"/>`,
  "g-waiting": html`<circle cx="8" cy="8" r="5.25"/><path d="M6.5 6v4M9.5 6v4"/>`,
  "g-working": html`<circle class="beat" cx="8" cy="8" r="5" fill="currentColor" stroke="none"/>`,
  "g-you": html`<path d="M8 .9 15.1 8 8 15.1.9 8Z" fill="currentColor" stroke-width="1"/><path class="cut-out" d="M6.2 6.6A1.85 1.85 0 1 1 8 8.5v.6"/><circle class="cut-dot" stroke="none" cx="8" cy="11.2" r=".95"/>`,
  "i-check": "m3.5 8.5 3 3 6-7",
  "i-coin": html`<circle cx="8" cy="8" r="5.5"/><path d="M9.8 6.2C9.3 5.6 8.7 5.4 8 5.4c-1 0-1.8.5-1.8 1.3 0 1.8 3.7.8 3.7 2.7 0 .8-.8 1.3-1.9 1.3-.8 0-1.5-.3-2-.9M8 4.3v1.1M8 10.7v1"/>`,
  "i-copy": html`<rect x="5.5" y="5.5" width="7.5" height="7.5" rx="1"/><path d="M10.5 3H4a1 1 0 0 0-1 1v6.5"/>`,
  "i-down": "m3.5 6 4.5 4.5L12.5 6",
  "i-file": "M4 2h5l3 3v9H4Z M9 2v3h3",
  "i-fork": html`<circle cx="4.5" cy="3.5" r="1.5"/><circle cx="11.5" cy="3.5" r="1.5"/><circle cx="8" cy="12.5" r="1.5"/><path d="M4.5 5v1.5C4.5 8 8 8 8 9.5V11M11.5 5v1.5C11.5 8 8 8 8 9.5"/>`,
  "i-gear": html`<path d="M2.5 4.5h6M12 4.5h1.5M2.5 11.5H4M7.5 11.5h6"/><circle cx="10.2" cy="4.5" r="1.75"/><circle cx="5.8" cy="11.5" r="1.75"/>`,
  "i-inbox": "M2.5 9.5 4.5 3h7l2 6.5V13h-11ZM2.5 9.5h3l1 1.7h3l1-1.7h3",
  "i-keyi": html`<circle cx="5.2" cy="10.8" r="2.7"/><path d="m7.2 8.8 6-6M11 5l1.8 1.8"/>`,
  "i-list": "M5.5 4h8M5.5 8h8M5.5 12h8M2.5 4h.01M2.5 8h.01M2.5 12h.01",
  "i-mail": "M2.5 3.5h11v7.5h-6L4.5 13.5V11h-2Z",
  "i-map": html`<circle cx="8" cy="3.5" r="1.6"/><circle cx="3.5" cy="12.5" r="1.6"/><circle cx="8" cy="12.5" r="1.6"/><circle cx="12.5" cy="12.5" r="1.6"/><path d="M8 5.1v5.8M8 8H3.5v2.9M8 8h4.5v2.9"/>`,
  "i-more": html`<path d="M3.5 8h.01M8 8h.01M12.5 8h.01" stroke-width="2.2"/>`,
  "i-off": "M2 6a9 9 0 0 1 4-1.9M10.5 4.3A9 9 0 0 1 14 6M4.3 8.6a5.6 5.6 0 0 1 2-1.1M11.7 8.6l-.8-.5M8 12.4v.01M2.5 2.5l11 11",
  "i-play": "M5 3.5v9l7-4.5Z",
  "i-plus": "M8 3v10M3 8h10",
  "i-right": "m6 3.5 4.5 4.5L6 12.5",
  "i-ring": html`<circle cx="8" cy="8" r="4.5"/>`,
  "i-search": html`<circle cx="7" cy="7" r="4.25"/><path d="m10.3 10.3 3.2 3.2"/>`,
  "i-stop": html`<rect x="4" y="4" width="8" height="8" rx="1"/>`,
  "i-sun": html`<circle cx="8" cy="8" r="2.75"/><path d="M8 1.5v1.2M8 13.3v1.2M1.5 8h1.2M13.3 8h1.2M3.4 3.4l.9.9M11.7 11.7l.9.9M12.6 3.4l-.9.9M4.3 11.7l-.9.9"/>`,
  "i-term": html`<rect x="2" y="3" width="12" height="10" rx="1.2"/><path d="m4.8 6.2 2 1.8-2 1.8M8.5 10h2.7"/>`,
  "i-warn": html`<path d="M8 2.5 14.3 13.5H1.7Z"/><path d="M8 6.5v3M8 11.6v.01"/>`,
};

// A state: each has an outline of its own, so that it reads without colour.
export const Glyph = ({ kind, colored = false }) =>
  html`<svg class=${"glyph" + (colored ? ` is-${kind}` : "")} viewBox="0 0 16 16" aria-hidden="true">${SHAPES["g-" + kind]}</svg>`;

export const Icon = ({ name, small = false, more = "" }) =>
  html`<svg class=${`icon ${small ? "s" : ""} ${more}`} viewBox="0 0 16 16" aria-hidden="true">${typeof SHAPES["i-" + name] === "string" ? html`<path d=${SHAPES["i-" + name]}/>` : SHAPES["i-" + name]}</svg>`;

export const Patterns = () => html`<svg class="defs" aria-hidden="true"><defs>
  <pattern id="p-tool" width="4" height="4" patternUnits="userSpaceOnUse"><rect class="p-tool-bg" width="4" height="4"/><path class="p-tool" d="M3.5 0v4"/></pattern>
  <pattern id="p-you" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="p-you-bg" width="7" height="7"/><path class="p-you" d="M0 0v7"/></pattern>
  <pattern id="p-queue" width="6" height="4" patternUnits="userSpaceOnUse" y="18"><circle class="p-queue" cx="2" cy="2" r="1.25"/></pattern>
  <pattern id="p-queue-s" width="6" height="4" patternUnits="userSpaceOnUse" y="4"><circle class="p-queue" cx="2" cy="2" r="1.25"/></pattern>
  <pattern id="p-prov" width="8" height="8" patternUnits="userSpaceOnUse"><rect class="p-prov-bg" width="8" height="8"/><path class="p-prov" d="M0 0l8 8M8 0 0 8"/></pattern>
  <pattern id="p-budget" width="4" height="4" patternUnits="userSpaceOnUse"><path class="p-budget" d="M0 1h4"/></pattern>
  <pattern id="p-m3" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="m3-bg" width="6" height="6"/><path class="m3" d="M1 0v6"/></pattern>
  <pattern id="p-res" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="hatch-bg" width="4" height="4"/><path class="hatch-ink" d="M.8 0v4"/></pattern>
</defs></svg>`;

// The frame of every page: the bar, the connection, notices, dialogs, keys.

import { computed, signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { go, link, place } from "./client.mjs";
import { Glyph, html, Icon, Patterns } from "./icons.mjs";
import { announced, connection, isStale, notice, now, questions, tryNow } from "./live.mjs";
import { kindOf, wordOf } from "./marks.mjs";
import { clock, span } from "./words.mjs";

const PAGES = [["", "Runs"], ["needs-you", "Needs you"], ["chat", "Chat"], ["agents", "Agents"], ["models", "Models"], ["costs", "Costs"], ["deliveries", "Deliveries"], ["health", "Health"]];
const TABS = [["", "Runs", "list"], ["needs-you", "Needs you", "inbox"], ["chat", "Chat", "mail"], ["costs", "Costs", "coin"], ["settings", "More", "more"]];
const KEYS = [
  ["j k", "Next, previous row"], ["g n", "Next that needs you"], ["← →", "Fold, unfold"], ["/", "Filter"],
  ["↵", "Open"], ["Ctrl K", "Find or do anything"], ["a", "Allow, or answer"], ["[ ]", "Earlier, later moment"], ["{ }", "Turn before, turn after"], ["+ - 0", "Closer, further, all"],
  ["m", "Message"], ["l", "Back to live"], ["x", "Stop, with a question first"], ["v", "Dense rows"],
  ["r R", "Retry one, all that failed"], ["n", "New run"], ["⇧ click", "Choose several"], ["g c", "Chat"], ["f", "Fork"], ["?", "This list"],
];

export const dialog = signal(null);
export const settings = signal({ theme: "", keys: true, ...stored("settings") });
export const nAsked = computed(() => questions.value.length);

export function stored(name) {
  try {
    return JSON.parse(localStorage.getItem(`retinue.${name}`) ?? "{}");
  } catch {
    return {};
  }
}

export function store(name, value) {
  try {
    localStorage.setItem(`retinue.${name}`, JSON.stringify(value));
  } catch {
    // A browser that keeps nothing still shows everything.
  }
}

export function change(more) {
  settings.value = { ...settings.value, ...more };
  store("settings", settings.value);
}

// What needs a person is said by the browser, too, if that is asked for and no one looks.
export function notify() {
  const text = announced.value;
  if (text && settings.peek().notifies && document.hidden && globalThis.Notification?.permission === "granted") new Notification("Retinue", { body: text });
}

export function applyTheme() {
  const { theme } = settings.value;
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

function toggleTheme() {
  const isDark = settings.value.theme ? settings.value.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  change({ theme: isDark ? "light" : "dark" });
}

const Brand = () => html`<a class="brand" ...${link("")}>
  <svg viewBox="0 0 18 18" aria-hidden="true"><path d="M9 5v4M9 9H3.5v3M9 9h5.5v3M9 9v3" fill="none" stroke="currentColor" stroke-width="1.4"/><circle cx="9" cy="3.4" r="2.4" fill="currentColor"/><circle cx="3.5" cy="14" r="2" fill="currentColor"/><circle cx="9" cy="14" r="2" fill="currentColor"/><circle cx="14.5" cy="14" r="2" fill="currentColor"/></svg>Retinue</a>`;

function current(path) {
  const [head] = place.value.parts;
  return path === head || (path === "" && head === "r") ? "page" : undefined;
}

const Count = () => (nAsked.value ? html` <span class="count">${nAsked.value}</span>` : null);

function LinkState() {
  const { isLive, since, isSignedOut } = connection.value;
  now.value;
  const seconds = Math.trunc((Date.now() - since) / 1_000);
  const text = isSignedOut ? "Signed out" : `Offline ${Math.trunc(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
  return html`<span class=${`link-state ${isLive ? "" : "lost"}`} role="status"><span class="dot"></span>${isLive ? "Live" : text}</span>`;
}

const Bar = () => html`<header class="bar"><${Brand}/>
  <nav aria-label="Main">${PAGES.map(([path, title]) => html`<a ...${link(path)} aria-current=${current(path)}>${title}${path === "needs-you" && html`<${Count}/>`}</a>`)}</nav>
  <span class="push"></span>
  <button class="find" aria-label="Find or do anything" onClick=${() => (dialog.value = "palette")}><${Icon} name="search" small/><span>Find or do anything</span><kbd>Ctrl K</kbd></button>
  <${LinkState}/>
  <button class="btn quiet square" data-theme-toggle aria-label="Switch between dark and light" onClick=${toggleTheme}><${Icon} name="sun"/></button>
  <a class="btn quiet square" ...${link("settings")} aria-label="Settings"><${Icon} name="gear"/></a>
</header>`;

const Tabbar = () => html`<nav class="tabbar" aria-label="Main, small screen">
  ${TABS.map(([path, title, icon]) => html`<a ...${link(path)} aria-current=${current(path)}><${Icon} name=${icon}/><span>${title}</span>${path === "needs-you" && html`<${Count}/>`}</a>`)}
</nav>`;

// The red line while the connection is lost, and the line of what was just done.
function Notices() {
  const { since, isSignedOut } = connection.value;
  const said = notice.value;
  const age = span(Date.now() - since);
  if (isSignedOut) {
    return html`<div class="notice bad" role="alert"><${Icon} name="off"/><span class="grow cut"><b>This browser is no longer signed in.</b> Runs go on without this page. Open it again with <code>retinue dashboard</code>.</span></div>`;
  }
  if (isStale.value) {
    return html`<div class="notice bad" role="alert"><${Icon} name="off"/><span class="grow cut"><b>Connection lost ${age} ago.</b> Runs go on without this page. Showing ${clock(since, true)}.</span><button class="btn" onClick=${tryNow}>Try now</button></div>`;
  }
  if (!said) return null;
  const mark = said.kind === "bad" ? html`<${Icon} name="warn"/>` : html`<${Glyph} kind="done" colored/>`;
  return html`<div class=${`notice ${said.kind === "bad" ? "bad" : ""}`} role=${said.kind === "bad" ? "alert" : "status"}>${mark}<span class="grow">${said.text}</span><button class="btn quiet" onClick=${() => (notice.value = null)}>Close</button></div>`;
}

export function Shell({ children, isFull = false }) {
  useEffect(() => {
    document.body.className = isFull ? "fill" : "";
  }, [isFull]);
  return html`<a class="skip" href="#main">Skip to content</a><${Patterns}/><${Bar}/><${Notices}/>
    <main id="main" tabindex="-1">${children}</main><${Tabbar}/>
    <div class="hide" role="status" aria-live="polite">${announced.value}</div>`;
}

// The title of the tab begins with the number of those who need a person.
export const setTitle = (title) =>
  useEffect(() => {
    document.title = `${nAsked.value ? `(${nAsked.value}) ` : ""}${title} · Retinue`;
  });

export const Pill = ({ mark }) => html`<span class=${`pill is-${kindOf(mark)}`}><${Glyph} kind=${kindOf(mark)}/>${wordOf(mark)}</span>`;

// A dialog that closes with Escape and gives the focus back.
export function Dialog({ title, sub, children, footer, label = title, kind = "" }) {
  const ref = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    ref.current.showModal();
    return () => before?.focus?.();
  }, []);
  const close = () => (dialog.value = null);
  return html`<dialog class=${`dialog float ${kind}`} ref=${ref} aria-label=${label} onClose=${close} onClick=${(event) => event.target === ref.current && close()}>
    ${title && html`<header><h3>${title}</h3>${sub && html`<p class="soft">${sub}</p>`}</header>`}
    ${children}${footer && html`<footer>${footer}</footer>`}
  </dialog>`;
}

export const KeyList = () => html`<${Dialog} title="Keys" footer=${html`<button class="btn" onClick=${() => (dialog.value = null)}>Close</button>`}>
  <div class="body"><div class="keys">${KEYS.map(([key, text]) => html`<span class="num"><kbd>${key}</kbd></span><span>${text}</span>`)}</div></div><//>`;

export const Empty = ({ title, children }) => html`<div class="page"><div class="empty"><div class="stack"><h1>${title}</h1></div>${children}</div></div>`;

// What went wrong, what was kept, and what to do.
export const Trouble = ({ title, cause, kept, next, children }) => html`<div class="panel trouble is-failed"><${Icon} name="warn"/><div class="stack"><h3>${title}</h3>
  <dl><dt>Cause</dt><dd>${cause}</dd>${kept && html`<dt>Kept</dt><dd>${kept}</dd>`}<dt>Next</dt><dd>${next}</dd></dl>${children && html`<div class="line wrap">${children}</div>`}</div></div>`;

// Keys of the page that is shown; single letters are off where one can write.
const handlers = [];
export function useKeys(map) {
  const ref = useRef(map);
  ref.current = map;
  useEffect(() => {
    handlers.push(ref);
    return () => handlers.splice(handlers.indexOf(ref), 1);
  }, []);
}

let prefix = "";
export function onKey(event) {
  const { target, key } = event;
  if ((event.ctrlKey || event.metaKey) && key.toLowerCase() === "k") {
    event.preventDefault();
    dialog.value = "palette";
    return;
  }
  const isWriting = target.closest?.("input, textarea, select, [contenteditable]") || document.querySelector("dialog[open]");
  if (isWriting || event.ctrlKey || event.metaKey || event.altKey) return;
  if (key.length === 1 && !settings.value.keys) return;
  const name = prefix + (event.shiftKey && key.length > 1 ? `Shift ${key}` : key);
  prefix = "";
  if (name === "g") {
    prefix = "g ";
    return;
  }
  const found = handlers.findLast((ref) => ref.current[name])?.current[name] ?? GLOBAL[name];
  if (found && found(event) !== false) event.preventDefault();
}

const GLOBAL = {
  "?": () => (dialog.value = "keys"),
  n: () => (dialog.value = "new"),
  "g n": () => go("needs-you"),
  "g r": () => go(""),
  "g c": () => go("chat"),
};

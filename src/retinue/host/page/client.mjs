// How the page talks to its host: requests, streams that continue where they were cut, addresses.

import { signal } from "@preact/signals";
import { oneLine } from "./words.mjs";

export const ROOT = new URL("../", import.meta.url);
const RETRY_MS = 1_000;

// What went wrong, in the host's own words.
export class Problem extends Error {
  constructor(status, document) {
    super(oneLine(document.detail || document.title || "The host did not answer.", 1_000));
    this.status = status;
    this.kind = document.kind ?? "";
  }
}

const apiUrl = (path, query = {}) => {
  const url = new URL(`api/v1/${path}`, ROOT);
  for (const [key, value] of Object.entries(query)) if (value !== "" && value !== null && value !== undefined) url.searchParams.set(key, value);
  return url;
};

async function reply(response) {
  const text = await response.text();
  let value = {};
  try {
    value = text ? JSON.parse(text) : {};
  } catch {
    value = { detail: text.slice(0, 400) };
  }
  if (!response.ok) throw new Problem(response.status, value);
  return value;
}

const unreachable = () => {
  throw new Problem(0, { detail: "The host cannot be reached. Nothing was sent." });
};
export const get = async (path, query) => reply(await fetch(apiUrl(path, query)).catch(unreachable));
export async function post(path, body = {}, headers = {}) {
  const request = { method: "POST", headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body) };
  return reply(await fetch(apiUrl(path), request).catch(unreachable));
}

// Whether the host answers at all within so many milliseconds.
export const isReachable = (ms) => fetch(apiUrl("health"), { signal: AbortSignal.timeout(ms) }).then(() => true, () => false);

// A stream of events. It is opened again when it is cut, from the last position that was heard.
export class Stream {
  constructor(path, query, names, hear, tell = () => {}) {
    Object.assign(this, { path, query, names, hear, tell, after: null, isDone: false });
    this.open();
  }

  open() {
    clearTimeout(this.timer);
    this.source?.close();
    this.heardAt = Date.now();
    const more = this.after === null ? {} : { after: this.after };
    this.source = new EventSource(apiUrl(this.path, { ...this.query, ...more }));
    for (const name of this.names) {
      this.source.addEventListener(name, (event) => {
        this.heardAt = Date.now();
        if (event.lastEventId) this.after = event.lastEventId;
        if (name === "end") this.close();
        this.hear(name, JSON.parse(event.data));
      });
    }
    this.source.onopen = () => this.tell(true);
    this.source.onerror = () => this.lose();
  }

  lose() {
    if (this.isDone) return;
    this.source.close();
    this.tell(false);
    this.timer = setTimeout(() => this.open(), RETRY_MS);
  }

  close() {
    this.isDone = true;
    clearTimeout(this.timer);
    this.source.close();
  }
}

// Where the page is: its path below the root, in parts, and its query.
function whereNow() {
  const path = location.pathname.slice(ROOT.pathname.length).replace(/\/$/, "");
  return { path, parts: path.split("/").map(decodeURIComponent), query: new URLSearchParams(location.search) };
}

export const place = signal(whereNow());
addEventListener("popstate", () => (place.value = whereNow()));

export const href = (path, query = {}) => {
  const url = new URL(path, ROOT);
  for (const [key, value] of Object.entries(query)) if (value) url.searchParams.set(key, value);
  return url.pathname + url.search;
};

export function go(path, query = {}, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", href(path, query));
  place.value = whereNow();
}

// Properties of a link that is followed within the page.
export const link = (path, query = {}) => ({
  href: href(path, query),
  onClick: (event) => {
    if (event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go(path, query);
  },
});

// How things are said: text of others made safe to show, numbers, times, money, names.

const SEQUENCE = new RegExp(
  "(?:\\x1b\\[|\\x9b)[0-?]*[ -/]*(?:[@-~]|$)" +
    "|(?:\\x1b[\\]PX^_]|[\\x90\\x98\\x9d-\\x9f])[^\\x07\\x1b\\x90\\x98\\x9c-\\x9f]*(?:\\x07|\\x1b\\\\|\\x9c)" +
    "|\\x1b[\\]PX^_]|\\x1b[ -/]*[0-~]",
  "g",
);
const BREAK = /\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]/g;
const UNSEEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Cn}\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\ufe00-\ufe0f]/gu;
const TOWER = /(\p{M}{4})\p{M}+/gu;

// Several lines as they may be shown: nothing that steers, hides or turns text around.
export function severalLines(text) {
  if (/^[\n\t -~]*$/.test(text)) return text;
  const plain = text.replace(SEQUENCE, "").replace(BREAK, "\n");
  const seen = plain.replace(UNSEEN, (c) => ("\n\t\u200c\u200d".includes(c) ? c : ""));
  return seen.replace(TOWER, "$1");
}

export function oneLine(text, most = 0) {
  const flat = severalLines(String(text ?? "")).split(/\s+/).filter(Boolean).join(" ");
  return most && flat.length > most ? flat.slice(0, most - 1) + "…" : flat;
}

export const plural = (n, one, more = one + "s") => `${n.toLocaleString("en")} ${n === 1 ? one : more}`;
export const shortId = (id) => (id.length === 36 ? id.slice(24, 30) : id);
export const agentLabel = (name) => name.replace(/-[0-9a-f]{8}(?=\.|$)/, "");

// The first line that says something, without the signs of Markdown before it.
export function heading(text) {
  for (const line of (text || "").split("\n")) {
    const title = line.trim().replace(/^[#>*\-= ]+/, "").trim();
    if (title) return title;
  }
  return "";
}

// What a run is called: the name it was given, or the words of its task.
export const titleOf = (label, agent, task) => oneLine((label !== agent && label !== "main" && label) || heading(task) || label, 300);

// Words without the signs of Markdown, for a line.
export const bare = (text) => text.replace(/\*\*|__|`/g, "");

export function count(n) {
  if (n < 1_000) return String(Math.trunc(n));
  return n < 999_950 ? (n / 1_000).toFixed(1) + "k" : (n / 1_000_000).toFixed(1) + "M";
}

const two = (n) => String(n).padStart(2, "0");

// A time in a column: `850ms`, `31s`, `2m 02s`, `1h 58m`, `3d 4h`.
export function span(ms) {
  if (ms < 1_000) return Math.max(0, Math.trunc(ms)) + "ms";
  const s = Math.trunc(ms / 1000 + 0.5);
  if (s < 60) return s + "s";
  if (s < 3_600) return `${Math.trunc(s / 60)}m ${two(s % 60)}s`;
  if (s < 86_400) return `${Math.trunc(s / 3_600)}h ${two(Math.trunc((s % 3_600) / 60))}m`;
  return `${Math.trunc(s / 86_400)}d ${Math.trunc((s % 86_400) / 3_600)}h`;
}

// A time in a sentence: `2.4 s`, `90 s`, `2m 10s`.
export function spanText(ms) {
  if (ms < 1_000) return Math.max(0, Math.trunc(ms)) + " ms";
  if (ms < 9_950) return (ms / 1000).toFixed(1) + " s";
  return ms < 99_500 ? Math.trunc(ms / 1000 + 0.5) + " s" : span(ms);
}

// Dollars; a price that no one knows is n/a, and a bound is marked and never rounded down.
export function money(usd, isBound = false) {
  if (usd === null || usd === undefined) return "n/a";
  if (isBound) return "≤" + dollars(Math.ceil(Math.round(usd * 1e8) / 1e6) / 100);
  return dollars(usd);
}

// A sum of costs, as `paid` has it: `$0.40, ≤$0.58, more n/a`.
export function sumText({ sure, most, isPartial }) {
  const parts = sure || most || !isPartial ? [money(sure)] : [];
  if (most - sure > 1e-9) parts.push(money(most, true));
  if (isPartial) parts.push(parts.length ? "more n/a" : "n/a");
  return parts.join(", ");
}

function dollars(usd) {
  if (usd === 0 || usd >= 0.005) return "$" + usd.toFixed(2);
  return usd >= 0.00005 ? "$" + usd.toFixed(4) : "<$0.0001";
}

// What a call of a model cost, in dollars; null when its price is not known.
export function priceOf(model, usage) {
  if (usage.nanos) return usage.nanos / 1e9;
  if (!model || model.price_in === undefined || model.price_out === undefined) return null;
  const { input = 0, output = 0, cache_read: read = 0, cache_write: written = 0 } = usage;
  const rest = Math.max(0, input - read - written) * model.price_in;
  return (rest + read * (model.price_cache_read ?? model.price_in) + written * (model.price_cache_write ?? model.price_in) + output * model.price_out) / 1e9;
}

export const clock = (ms, seconds = false) => {
  const d = new Date(ms);
  const text = `${two(d.getHours())}:${two(d.getMinutes())}`;
  return seconds ? `${text}:${two(d.getSeconds())}` : text;
};

export function size(text) {
  const bytes = new TextEncoder().encode(text).length;
  if (bytes < 1_000) return bytes + " B";
  return bytes < 1_000_000 ? (bytes / 1_000).toFixed(1) + " KB" : (bytes / 1_000_000).toFixed(1) + " MB";
}

export function parsed(text) {
  try {
    const value = JSON.parse(text);
    return value && typeof value === "object" && !Array.isArray(value) ? value : {};
  } catch {
    return {};
  }
}

const STARTS = { spawn_agents: "tasks", delegate_tasks: "tasks", agent_spawn: "task", agent_fork: "task", sessions_spawn: "task", subagent: "task" };
const MAIN = ["command", "path", "pattern", "query", "url", "question", "task", "name"];

// The main argument of a call, in one line.
export function mainArgument(call) {
  const args = parsed(call.args ?? "{}");
  const started = args[STARTS[call.name]];
  if (Array.isArray(started)) return plural(started.length, "agent");
  const keys = [...MAIN, ...Object.keys(args)];
  const found = keys.map((key) => args[key]).find((value) => ["string", "number"].includes(typeof value) && String(value).trim());
  return found === undefined ? "" : oneLine(found, 160);
}

// One line about a call: what it is, and what it is about.
export function describeCall(call) {
  const about = mainArgument(call);
  if (STARTS[call.name]) return about ? `starts ${about}` : "starts an agent";
  if (call.name === "shell" && about) return about;
  return oneLine(about ? `${call.name} ${about}` : call.name, 160);
}

// What a call wants to do, in the fewest true words; "" for an unknown tool.
export function wants(call) {
  const { path, command, patch, old, new: fresh, content, url } = parsed(call.args ?? "{}");
  if (call.name === "shell" && typeof command === "string") return oneLine(`run \`${command}\``, 160);
  if (call.name === "edit" && patch) return "apply a patch";
  if (call.name === "edit" && path) return oneLine(`change ${path}`, 160);
  if (call.name === "write" && path) return oneLine(`write ${path}`, 160);
  if (call.name === "fetch" && url) return oneLine(`fetch ${url}`, 160);
  return "";
}

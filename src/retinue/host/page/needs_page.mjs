// Needs you: all questions, oldest first, and the one that is open with everything that a decision
// needs: who, why, what exactly, and what it holds up.

import { useEffect, useState } from "preact/hooks";
import { go, link, place, post } from "./client.mjs";
import { html, Icon, Glyph } from "./icons.mjs";
import { all, attempt, connection, isAsked, now, questions } from "./live.mjs";
import { Diff, DiffView } from "./diff.mjs";
import { Output, Prose } from "./prose.mjs";
import { answer, askedAt, isDiff, QuestionTitle } from "./questions.mjs";
import { lineOfTree } from "./runs.mjs";
import { setTitle, Shell, useKeys } from "./shell.mjs";
import { clock, money, oneLine, parsed, plural, severalLines, span } from "./words.mjs";

const SAFE_MS = 400;

const titleOfRoot = (q) => {
  const root = all.view.nodes.get(q.root);
  return root ? lineOfTree(all.view, root, now.value).title : "";
};

export function NeedsPage() {
  const list = questions.value;
  const id = place.value.query.get("q");
  const [answered, setAnswered] = useState([]);
  const [known, setKnown] = useState(null);
  const open = list.find((q) => q.id === id) ?? (id ? null : list[0]);
  useEffect(() => {
    if (open) setKnown(open);
  }, [open?.id]);
  setTitle("Needs you");
  const shown = open ?? (known && (known.id === id || !id) ? known : null);
  const done = (q, text) => setAnswered((before) => [{ q, text, at: now.value }, ...before].slice(0, 20));
  return html`<${Shell} isFull=${Boolean(shown)}>${!shown && !list.length ? isAsked.value && html`<${Nothing}/>` : html`<h1 class="hide">Needs you</h1><div class="inbox">
    <section class="inbox-list" aria-label="Waiting for you"><h2 class="list-title">Needs you</h2><h3>Waiting, oldest first</h3>
      ${!list.length && html`<p class="soft letter-none">No one waits for you.</p>`}
      ${list.map((q) => html`<a class="letter" key=${q.id} ...${link("needs-you", { q: q.id })} aria-current=${q.id === shown?.id ? "true" : undefined}><${Icon} name=${q.kind === "budget" ? "coin" : q.kind === "question" ? "mail" : isDiff(q) ? "file" : "term"}/><span class="cut strong"><${QuestionTitle} q=${q}/></span><span class="age">${age(q)}</span><span class="sub cut"><bdi>${titleOfRoot(q)}</bdi></span></a>`)}
      ${answered.length > 0 && html`<h3>Answered here</h3>${answered.map(({ q, text, at }) => html`<a class="letter" ...${link(`r/${q.root}/${q.run}`)}><${Glyph} kind=${text.startsWith("Denied") ? "failed" : "done"} colored/><span class="cut strong"><${QuestionTitle} q=${q}/></span><span class="age">${clock(at)}</span><span class="sub cut">${text}</span></a>`)}`}
    </section>${shown && html`<${Decide} key=${shown.id} q=${shown} isOpen=${Boolean(open)} done=${done} next=${list.find((q) => q.id !== shown.id)}/>`}</div>`}<//>`;
}

const age = (q) => (askedAt(q) ? span(now.value - askedAt(q)) : "");

const Nothing = () => html`<div class="page"><div class="empty"><div class="stack"><h1>No one waits for you</h1><p>When an agent asks something, wants to change a file or run a command, or reaches its limit, it shows up here and on Runs. Nothing happens until you answer.</p></div><div class="line"><a class="btn" ...${link("")}>Back to Runs</a></div></div></div>`;

function howDecided(q) {
  const { word, by, at } = all.view.decided.get(q.id) ?? {};
  return word ? `${word} by ${oneLine(by || "the user", 80)}, ${clock(at)}.` : "This was answered.";
}

// Buttons ignore keys and clicks for a moment after they appear, so that no one allows by accident.
function useSafe() {
  const [isSafe, setSafe] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setSafe(true), SAFE_MS);
    return () => clearTimeout(timer);
  }, []);
  return isSafe;
}

function Decide({ q, isOpen, done, next }) {
  const [text, setText] = useState("");
  const isSafe = useSafe() && connection.value.isLive;
  const act = async (body, words) => {
    if (!isSafe || !isOpen || !connection.value.isLive) return;
    const reply = await attempt(() => answer(q, body));
    if (!reply) return;
    done(q, words);
    if (next) go("needs-you", { q: next.id }, { replace: true });
  };
  const allow = () => act({ allow: true, text }, "Allowed once by you");
  const always = () => act({ allow: true, always: true, text }, "Allowed for this run by you");
  const deny = () => act({ allow: false, text }, text ? `Denied by you: ${text}` : "Denied by you");
  useKeys(q.kind === "permission" ? { a: allow, A: always, d: deny } : {});
  return html`<section class="decide" aria-label="What is asked"><div class="decide-scroll" tabindex="0"><div class="decide-col">
      <div class="stack"><div class="crumb"><a class="link cut" ...${link(`r/${q.root}`)}><bdi>${titleOfRoot(q) || "run"}</bdi></a><span>/</span><a class="link" ...${link(`r/${q.root}/${q.run}`)}><bdi>${oneLine(q.label, 60)}</bdi></a><span class="push tab-nums">${askedAt(q) ? `asked ${clock(askedAt(q), true)}, waiting ${age(q)}` : ""}</span></div>
        <div class="line"><h2><${QuestionTitle} q=${q}/></h2></div></div>
      ${q.why && html`<div class="why"><span class="label">In its words, turn ${q.turn}</span><${Prose} text=${q.why}/></div>`}
      <${Facts} q=${q}/><${Thing} q=${q}/></div></div>
    <div class="answer"><div class="decide-col">${isOpen ? html`<${Answers} q=${q} act=${act} allow=${allow} always=${always} deny=${deny} text=${text} setText=${setText} isSafe=${isSafe} done=${done}/>` : html`<p><b>${howDecided(q)}</b> The first answer counts. <a class="link" ...${link(`r/${q.root}/${q.run}`)}>See how it went on</a></p>`}</div></div></section>`;
}

function Facts({ q }) {
  const files = q.preview?.files ?? [];
  const command = q.preview?.command;
  const added = files.reduce((sum, file) => sum + (file.added ?? 0), 0);
  const removed = files.reduce((sum, file) => sum + (file.removed ?? 0), 0);
  const tag = q.price_tag;
  const facts = [
    files.length > 0 && ["Changes", html`${plural(files.length, "file")}, <span class="plus">+${added}</span> <span class="minus">−${removed}</span>`],
    command && ["Sandbox", command.sandbox ? `${command.sandbox}, ${command.network ? "with network" : "no network"}` : "none: runs with your rights"],
    (q.preview?.directory || command?.directory) && ["Where", q.preview?.isolated ? "its own copy, not your files" : html`<bdi>${oneLine(q.preview?.directory || command.directory)}</bdi>`],
    ["Held up by this", q.holds_up?.length ? q.holds_up.map((name) => oneLine(name, 40)).join(", ") : "no one else"],
    q.asked_by && ["Asked by", oneLine(q.asked_by, 200)],
    tag && ["Would cost", `${plural(tag.n ?? 1, "agent")}, input about ${money(tag.usd)}`],
    ["While it waits", "costs nothing"],
  ].filter(Boolean).slice(0, 4);
  return html`<dl class="terms">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

// The thing itself: the change, the command, or the call with every argument.
function Thing({ q }) {
  const { preview } = q;
  if (q.kind !== "permission") return html`<${Prose} text=${restOf(q)}/>`;
  return html`${preview?.problem && html`<p class="badge bad">As things are now it would fail: ${oneLine(preview.problem, 400)}</p>`}
    ${(preview?.files ?? []).map((file) => html`<div class="diff" key=${file.path}><div class="diff-head"><${Icon} name="file" small/><span class="mono cut"><bdi>${oneLine(file.path)}</bdi></span><span class="plus">+${file.added ?? 0}</span><span class="minus">−${file.removed ?? 0}</span><span class="push"></span><${DiffView}/><button class="btn quiet square" aria-label="Copy the diff" onClick=${() => navigator.clipboard?.writeText(file.diff ?? "")}><${Icon} name="copy" small/></button></div>
      ${file.diff ? html`<${Diff} diff=${file.diff}/>` : html`<p class="soft note-line">${file.note || "nothing to show"}</p>`}${file.n_hidden > 0 && html`<p class="soft note-line">${plural(file.n_hidden, "line")} more are not shown</p>`}</div>`)}
    ${!preview?.files?.length && html`<${Output} text=${preview?.command ? `$ ${preview.command.command}` : severalLines(q.shown || q.text)}/>`}`;
}

// A question without its first line, which is the title, and without the choices, which are buttons.
function restOf(q) {
  const [, ...lines] = q.text.split("\n");
  const choices = choicesOf(q);
  while (lines.length && choices.some((choice) => lines.at(-1).trim().endsWith(choice.trim()))) lines.pop();
  return lines.join("\n").trim();
}

function choicesOf(q) {
  const { options } = parsed(q.call?.args ?? "{}");
  return (q.choices?.length ? q.choices : Array.isArray(options) ? options : []).map(String).slice(0, 9);
}

function Answers({ q, act, allow, always, deny, text, setText, isSafe }) {
  const note = (name, more = {}) => html`<label class="field grow note"><input aria-label=${name} placeholder=${name} value=${text} onInput=${(event) => setText(event.target.value)} ...${more}/></label>`;
  if (q.kind === "budget") return html`<${BudgetAnswer} q=${q} act=${act}/>`;
  if (q.kind === "question") return html`<${QuestionAnswer} q=${q} act=${act} text=${text} note=${note}/>`;
  return html`<div class="line"><button class="btn main big" disabled=${!isSafe} onClick=${allow}>Allow once <kbd>a</kbd></button><button class="btn big" disabled=${!isSafe} onClick=${always}>Allow this call in this run <kbd>⇧A</kbd></button><button class="btn big danger" disabled=${!isSafe} onClick=${deny}>Deny <kbd>d</kbd></button>${note("Say why, or what to do instead (optional)")}</div>
    <p class="label">The first answer counts, wherever it is given; the others see who gave it.</p>`;
}

function QuestionAnswer({ q, act, text, note }) {
  const choices = choicesOf(q);
  const say = (words) => words.trim() && act({ text: words }, `“${oneLine(words, 80)}”, by you`);
  useKeys(Object.fromEntries(choices.map((choice, n) => [String(n + 1), () => say(choice)])));
  return html`${choices.length > 0 && html`<div class="choices">${choices.map((choice, n) => html`<button class="choice" onClick=${() => say(choice)}><kbd>${n + 1}</kbd><span class="grow"><bdi>${oneLine(choice)}</bdi></span></button>`)}</div>`}
    <form class="line" onSubmit=${(event) => { event.preventDefault(); say(text); }}>${note(choices.length ? "Or answer in your own words" : "Your answer")}<button class="btn main big" type="submit">Answer</button></form>
    <p class="label">Without an answer ${oneLine(q.label, 40)} waits${q.holds_up?.length ? `, and ${q.holds_up.map((name) => oneLine(name, 40)).join(", ")} with it` : ""}.</p>`;
}

function BudgetAnswer({ q, act }) {
  const limit = q.limit || "usd";
  const [amount, setAmount] = useState(String(q.suggested?.[limit] ?? ""));
  const raise = async () => {
    const reply = await attempt(() => post(`runs/${q.run}/budget`, { [limit]: Number(amount), question: q.id, by: "you in the dashboard" }), "The limit is raised, and the run goes on.");
    if (reply) go("needs-you", {}, { replace: true });
  };
  return html`<div class="line"><label class="field"><input aria-label=${`More ${limit === "usd" ? "dollars" : limit}`} inputmode="decimal" value=${amount} onInput=${(event) => setAmount(event.target.value)}/></label><button class="btn main big" disabled=${!(Number(amount) > 0)} onClick=${raise}>Raise by ${limit === "usd" ? money(Number(amount) || 0) : amount}</button><button class="btn big" onClick=${() => act({ allow: false }, "Finishes as it is")}>Finish as it is</button></div>
    <p class="label">Without an answer the run waits and spends nothing more.</p>`;
}

// Costs: what was spent in some days, on what, by whom; and what was saved and wasted.

import { useEffect } from "preact/hooks";
import { go, link, place as address } from "./client.mjs";
import { csvOf, daysOf, groupsOf, mostOf, sharesOf, stackOf, stepsTo } from "./costs.mjs";
import { Glyph, html } from "./icons.mjs";
import { all, allLines, loadRuns, now, pages } from "./live.mjs";
import { kindOf, wordOf } from "./marks.mjs";
import { Head } from "./reading_pages.mjs";
import { paid } from "./runs.mjs";
import { setTitle, Shell } from "./shell.mjs";
import { count, money, oneLine, plural, sumText } from "./words.mjs";

const PERIODS = [["1", "Today"], ["", "7 days"], ["30", "30 days"]];
const FILLS = [{ class: "m1" }, { class: "m2" }, { class: "m3-edge", fill: "url(#p-m3)" }, { class: "m4" }];
const MOST = 6;
const HEIGHT = 160;
const LEFT = 8;

const sum = (some, value = (line) => line.usd ?? 0) => some.reduce((total, line) => total + value(line), 0);
const percent = (part, whole) => (whole ? `${Math.round((100 * part) / whole)}%` : "–");

// The lines of the period, each with where in its tree it was spent.
function useLines(nDays) {
  const { next, isLoading } = pages.value;
  const lines = allLines().map((line) => ({ ...line, shares: line.shares ?? sharesOf(all.view, all.view.nodes.get(line.id)) }));
  const first = daysOf(lines, now.value, nDays)[0].at.getTime() - 43_200_000;
  const oldest = Math.min(...lines.map((line) => line.created), Infinity);
  const isWhole = (!next && !isLoading) || oldest < first;
  useEffect(() => {
    if (!isWhole && !isLoading) loadRuns();
  }, [isWhole, isLoading]);
  return [lines.filter((line) => line.created >= first), isWhole];
}

export function CostsPage() {
  const period = address.value.query.get("days") ?? "";
  const nDays = Number(period || 7);
  const [lines, isWhole] = useLines(nDays);
  setTitle("Costs");
  const failed = lines.filter((line) => line.mark === "failed");
  const models = groupsOf(lines, "model");
  const priced = models.filter((one) => one.isPriced);
  const unpriced = sum(lines.flatMap((line) => line.shares).filter((share) => share.usd === null), ({ input, output }) => input + output);
  const spent = sum(lines);
  const kpi = (label, value, note) => html`<div class="kpi"><span class="label">${label}</span><b>${value}</b><span class="label">${note}</span></div>`;
  const cached = percent(sum(models, (one) => one.cached), sum(models, (one) => one.input));
  return html`<${Shell}><div class="page"><div class="page-head"><h1>Costs</h1><span class="push soft" role="status">${isWhole ? plural(lines.length, "run") : "Reading older runs"}</span>
      <div class="seg" role="group" aria-label="Period">${PERIODS.map(([value, title]) => html`<button aria-pressed=${String(period === value)} onClick=${() => go("costs", { days: value }, { replace: true })}>${title}</button>`)}</div>
      <button class="btn" onClick=${() => download(csvOf(lines))}>Export CSV</button></div>
    <div class="panel kpis">${kpi("Spent", sumText(paid(lines)), `${money(spent / nDays)} a day`)}${kpi("Saved by cache", money(sum(lines, (line) => line.saved)), `${cached} of input tokens came from the cache`)}${kpi("Spent on work that failed", sumText(paid(failed)), html`${percent(sum(failed), spent)} of all, ${plural(failed.length, "run")}${failed.length > 0 && html`. <a class="link" ...${link("", { q: "state:failed" })}>Show them</a>`}`)}${kpi("Without a price", count(unpriced), "tokens")}</div>
    <div class="two-col"><${ByDay} days=${daysOf(lines, now.value, nDays)} models=${priced.filter((one) => one.usd > 0)}/><${ByAgent} groups=${groupsOf(lines, "agent")}/></div>
    <div class="two-col"><${ByModel} models=${models} priced=${priced}/><${Dearest} lines=${lines}/></div></div><//>`;
}

function download(text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  Object.assign(document.createElement("a"), { href: address, download: "retinue-costs.csv" }).click();
  URL.revokeObjectURL(address);
}

const Section = ({ title, note, children }) => html`<section class="panel" aria-label=${title}><div class="panel-head"><h2>${title}</h2>${note}</div>${children}</section>`;
const Rows = ({ name, head, children, fixed = false }) => html`<div class="scrollx" tabindex="0" role="region" aria-label=${name}><table class=${`table ${fixed ? "fixed" : ""}`}><thead><${Head} names=${head}/></thead><tbody>${children}</tbody></table></div>`;
const Mark = ({ n }) => html`<svg class="mk" width="20" height="12" aria-hidden="true"><rect x=".5" y="1.5" width="19" height="9" ...${FILLS[Math.min(3, n)]}/></svg>`;
const Share = ({ share }) => html`<td class="num"><svg class="share" aria-hidden="true"><rect width=${`${(100 * share).toFixed(0)}%`} height="100%"/></svg></td>`;

function ByDay({ days, models }) {
  const totals = days.map(({ lines }) => sum(lines));
  const steps = stepsTo(Math.max(...totals));
  const y = (usd) => 24 + HEIGHT - (HEIGHT * usd) / (steps.at(-1) || 1);
  const width = (100 - LEFT) / days.length;
  const names = models.length > 4 ? [...models.slice(0, 3).map((one) => one.name), "others"] : models.map((one) => one.name);
  const dayText = (at) => (days.length > 7 ? String(at.getDate()) : `${at.toLocaleDateString("en", { weekday: "short" })} ${at.getDate()}`);
  const bar = ({ lines }, n) => {
    let from = 0;
    return stackOf(lines, models).map((usd, kind) => {
      if (!usd) return null;
      from += usd;
      return html`<rect ...${FILLS[kind]} x=${`${LEFT + (n + 0.2) * width}%`} width=${`${0.6 * width}%`} y=${y(from)} height=${Math.max(1, y(from - usd) - y(from) - 1)}/>`;
    });
  };
  return html`<${Section} title="By day and model" note=${html`<span class="push"></span><span class="legend">${names.map((name, n) => html`<span><${Mark} n=${n}/><bdi>${oneLine(name, 40)}</bdi></span>`)}</span>`}>
    <svg class="chart" role="img" aria-label=${`Spending by day of start: ${days.map(({ at }, n) => `${dayText(at)} ${money(totals[n])}`).join(", ")}`}>
      ${steps.map((usd) => html`<line class="grid" x1=${`${LEFT}%`} x2="100%" y1=${y(usd)} y2=${y(usd)}/><text class="axis" x=${`${LEFT - 1}%`} y=${y(usd) + 4} text-anchor="end">${money(usd)}</text>`)}
      ${days.map((day, n) => html`${bar(day, n)}${totals[n] > 0 && days.length <= 7 && html`<text class="total" x=${`${LEFT + (n + 0.5) * width}%`} y=${y(totals[n]) - 6} text-anchor="middle">${money(totals[n])}</text>`}<text class="axis" x=${`${LEFT + (n + 0.5) * width}%`} y=${HEIGHT + 44} text-anchor="middle">${n === days.length - 1 && days.length <= 7 ? "Today" : dayText(day.at)}</text>`)}</svg><//>`;
}

function ByAgent({ groups }) {
  const most = Math.max(1e-9, groups[0]?.usd ?? 0);
  return html`<${Section} title="By agent" note=${html`<span class="push label">counted once, where it was spent</span>`}><${Rows} name="By agent" head=${["Agent", "Runs#", "Per run#", "Cost#", "#"]}>${mostOf(groups, MOST).map((one) => html`<tr key=${one.name}><td class="cut"><bdi>${oneLine(one.name, 80)}</bdi></td><td class="num">${one.n}</td><td class="num">${price(one, one.usd / one.n)}</td><td class="num">${price(one)}</td><${Share} share=${one.usd / most}/></tr>`)}<//><//>`;
}

// What is known of a price; nothing known is not nothing.
const price = (one, usd = one.usd) => (one.isPriced || one.usd ? money(usd, one.isBound) : "n/a");

function ByModel({ models, priced }) {
  const whole = sum(priced);
  const place = ({ name }) => priced.findIndex((other) => other.name === name) >>> 0; // others are drawn as the last
  const amounts = (one) => [one.input, one.cached, one.output].map((n) => html`<td class="num">${count(n)}</td>`);
  return html`<${Section} title="By model"><${Rows} name="By model" head=${["Model", "Input#", "From cache#", "Output#", "Cost#", "Share#"]}>${mostOf(models, MOST).map((one) => html`<tr key=${one.name}><td><span class="line">${one.usd > 0 && html`<${Mark} n=${place(one)}/>`}<bdi>${oneLine(one.name, 80)}</bdi>${!one.isPriced && html` <span class="badge">no price set</span>`}</span></td>${amounts(one)}<td class="num">${price(one)}</td><td class="num soft">${one.isPriced ? percent(one.usd, whole) : "–"}</td></tr>`)}
    <tr class="sum"><td>All priced models</td>${amounts({ input: sum(priced, (one) => one.input), cached: sum(priced, (one) => one.cached), output: sum(priced, (one) => one.output) })}<td class="num">${money(whole)}</td><td class="num">${whole ? "100%" : "–"}</td></tr><//><//>`;
}

function Dearest({ lines }) {
  const cache = (line) => percent(sum(line.shares, (share) => share.cached), sum(line.shares, (share) => share.input));
  const most = [...lines].sort((a, b) => (b.usd ?? 0) - (a.usd ?? 0)).slice(0, MOST);
  return html`<${Section} title="Most expensive runs"><${Rows} name="Most expensive runs" fixed head=${["Run", "Agents#", "Cache#", "Cost#"]}>${most.map((line) => html`<tr key=${line.id}><td><a class="line" ...${link(`r/${line.id}`)}><${Glyph} kind=${kindOf(line.mark)} colored/><span class="cut"><bdi>${line.title}</bdi></span><span class="hide">${wordOf(line.mark)}</span></a></td><td class="num">${line.n}</td><td class="num">${cache(line)}</td><td class="num">${money(line.usd, line.bound)}</td></tr>`)}<//><//>`;
}

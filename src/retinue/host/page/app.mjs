// The page: which part of it an address shows.

import { effect } from "@preact/signals";
import { render } from "preact";
import { ChatPage } from "./chat.mjs";
import { place } from "./client.mjs";
import { CostsPage } from "./costs_page.mjs";
import { Dialogs } from "./dialogs.mjs";
import { html } from "./icons.mjs";
import { start } from "./live.mjs";
import { NeedsPage } from "./needs_page.mjs";
import { AgentsPage, DeliveriesPage, HealthPage, ModelsPage, SettingsPage } from "./reading_pages.mjs";
import { RunPage } from "./run_page.mjs";
import { RunsPage } from "./runs_page.mjs";
import { applyTheme, Empty, notify, onKey, Shell } from "./shell.mjs";

const PAGES = { "": RunsPage, r: RunPage, "needs-you": NeedsPage, chat: ChatPage, agents: AgentsPage, models: ModelsPage, costs: CostsPage, deliveries: DeliveriesPage, health: HealthPage, settings: SettingsPage };

function App() {
  const Page = PAGES[place.value.parts[0]] ?? Nowhere;
  return html`<${Page}/><${Dialogs}/>`;
}

const Nowhere = () => html`<${Shell}><${Empty} title="Nothing is here"><p>This address shows nothing. The bar above has every page.</p><//><//>`;

effect(applyTheme);
effect(notify);
document.addEventListener("keydown", onKey);
start();
render(html`<${App}/>`, document.body);

// The official TypeScript client, whose server or host is killed in the middle of an agent's work:
// node typescript_kills.mjs ERA FOLDER COMMAND... Writes the process of its server on a line, and
// what came of its task on the last one.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [era, folder, command, ...args] = process.argv.slice(2);
const load = createRequire(`${folder}/`);
const { Client } = await import(pathToFileURL(load.resolve("@modelcontextprotocol/client")));
const stdio = load.resolve("@modelcontextprotocol/client/stdio");
const { StdioClientTransport } = await import(pathToFileURL(stdio));
const mode = era === "modern" ? { pin: "2026-07-28" } : "legacy";

const connected = async () => {
  const options = { capabilities: {}, versionNegotiation: { mode } };
  const client = new Client({ name: "typescript", version: "1" }, options);
  const parameters = { command, args, env: process.env, cwd: process.cwd() };
  const transport = new StdioClientTransport(parameters);
  await client.connect(transport);
  return [client, transport.pid];
};
const call = async (client, name, given) => {
  const result = await client.callTool({ name, arguments: given }, { timeout: 120_000 });
  return result.structuredContent.agents;
};

let [client, pid] = await connected();
console.log(JSON.stringify({ pid }));
let reconnected = false;
let agents;
try {
  agents = await call(client, "delegate", { tasks: ["think"] });
} catch (error) {
  reconnected = true;
  [client] = await connected();
  const [{ id }] = await call(client, "agents", {});
  agents = await call(client, "result", { ids: [id] });
}
const listed = await call(client, "agents", {});
await client.close();
const [{ state, text }] = agents;
console.log(JSON.stringify({ reconnected, state, text, agents: listed.length }));

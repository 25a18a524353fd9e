// The official TypeScript client against `retinue mcp serve`: node typescript_client.mjs ERA FOLDER
// COMMAND... ERA is legacy or modern, FOLDER the node_modules with the client. Ends with one line
// of JSON.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [era, folder, command, ...args] = process.argv.slice(2);
const load = createRequire(`${folder}/`);
const { Client } = await import(pathToFileURL(load.resolve("@modelcontextprotocol/client")));
const stdio = load.resolve("@modelcontextprotocol/client/stdio");
const { StdioClientTransport } = await import(pathToFileURL(stdio));

const seen = { era, roots: 0, forms: 0, progress: [], updated: 0 };
const check = (is, what) => {
  if (!is) throw new Error(what);
};
const isModern = era === "modern";
const client = new Client(
  { name: `typescript-${era}`, version: "1" },
  {
    capabilities: { roots: {}, elicitation: { form: {} } },
    versionNegotiation: { mode: isModern ? { pin: "2026-07-28" } : "legacy" },
  },
);
client.setRequestHandler("roots/list", () => {
  seen.roots += 1;
  return { roots: [{ uri: pathToFileURL(process.cwd()).href, name: "project" }] };
});
client.setRequestHandler("elicitation/create", (request) => {
  seen.forms += 1;
  check(request.params.message.includes("made.txt"), "the form says what is asked");
  return { action: "accept", content: { allow: true } };
});
client.setNotificationHandler("notifications/resources/updated", () => {
  seen.updated += 1;
});

const transport = new StdioClientTransport({ command, args, env: process.env, cwd: process.cwd() });
const since = Date.now();
await client.connect(transport);
seen.connected_ms = Date.now() - since;
seen.version = client.getNegotiatedProtocolVersion?.() ?? "";
const { tools } = await client.listTools();
seen.tools = tools.length;
check(tools.every((tool) => tool.outputSchema && tool.annotations), "schemas and annotations");

const call = async (name, given, options) => {
  const result = await client.callTool({ name, arguments: given }, options);
  check(!result.isError, `${name}: ${JSON.stringify(result.content)}`);
  return result.structuredContent.agents[0];
};
const onprogress = (told) => seen.progress.push(told.message);
const done = await call("delegate", { tasks: ["write it"] }, { onprogress, timeout: 120_000 });
check(done.state === "completed", JSON.stringify(done));
check((await call("result", { ids: [done.id] })).text === done.text, "the same result again");

const uri = `retinue://runs/${done.id}/transcript`;
const { resources } = await client.listResources();
check(resources.some((resource) => resource.uri === uri), "the transcript is listed");
const { contents } = await client.readResource({ uri });
check(contents[0].text.includes("write it"), "the transcript is read");
const prompt = await client.getPrompt({ name: "delegate", arguments: { goal: "a release" } });
check(prompt.messages[0].content.text.includes("a release"), "the prompt has its goal");

const wrong = await client.callTool({ name: "delegate", arguments: { tasks: [] } });
check(wrong.isError && wrong.structuredContent.error, "a mistake is a result to act on");
const background = await call("delegate", { tasks: ["write it"], background: true });
check(background.id !== done.id, "a second agent");
if (isModern) {
  const uris = [`retinue://runs/${background.id}/transcript`];
  const stream = await client.listen({ resourceSubscriptions: uris });
  check(stream, "changes are told");
  await stream.close?.();
} else {
  await client.subscribeResource({ uri: `retinue://runs/${background.id}/transcript` });
}
const stopped = await call("cancel", { ids: [background.id] });
check(["cancelled", "completed"].includes(stopped.state), JSON.stringify(stopped));
check(seen.roots >= 1 && seen.forms >= 1, "the client's user was asked");
await client.close();
console.log(JSON.stringify({ ...seen, ok: true }));

// The official TypeScript client, given calls to make; asked and told like with_python.py beside it.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(pathToFileURL(process.env.NPM_FOLDER + "/package.json"));
const load = (name) => import(pathToFileURL(require.resolve("@modelcontextprotocol/sdk/" + name)));
const { Client } = await load("client/index.js");
const { StdioClientTransport } = await load("client/stdio.js");
const { StreamableHTTPClientTransport } = await load("client/streamableHttp.js");
const { ElicitRequestSchema } = await load("types.js");

const asked = JSON.parse(process.argv[2]);
const capabilities = asked.elicits ? { elicitation: { url: {}, form: {} } } : {};
const client = new Client({ name: "typescript", version: "1" }, { capabilities });
const opened = [];
if (asked.elicits) {
  client.setRequestHandler(ElicitRequestSchema, async (request) => {
    opened.push(request.params.url);
    process.stderr.write("opened\n");
    return { action: asked.elicits };
  });
}
const transport = asked.url
  ? new StreamableHTTPClientTransport(new URL(asked.url))
  : new StdioClientTransport({ command: asked.command[0], args: asked.command.slice(1), env: process.env });
await client.connect(transport);
const tools = (await client.listTools()).tools.map((tool) => tool.name);
const told = [];
for (const [name, args] of asked.calls) {
  const result = await client.callTool({ name, arguments: args }, undefined, { timeout: 100000, onprogress: () => {}, resetTimeoutOnProgress: true });
  told.push([result.content.map((one) => one.text ?? "").join(" "), Boolean(result.isError)]);
}
if (transport.terminateSession) await transport.terminateSession();
await client.close();
console.log(JSON.stringify({ version: transport.protocolVersion ?? "", tools, told, opened }));

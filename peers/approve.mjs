// Makes one tool call that waits for a person, with the official TypeScript SDKs: node approve.mjs v1|v2
// none|url|form TOOL ARGUMENTS (--url URL | -- COMMAND ARGS…). Prints what the user was asked and what came
// of the call, and on standard error when the user is asked.

import * as v1 from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as V1Stdio } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as V1HTTP } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { implementation } from "./lib/answers.mjs";

const [sdk, way, tool, args, flag, ...rest] = process.argv.slice(2);
const capabilities = way === "none" ? {} : { elicitation: { [way]: {} } };
const asked = [];

function answer({ params }) {
  asked.push(params);
  process.stderr.write("the user is asked\n");
  return params.mode === "url" ? { action: "accept" } : { action: "accept", content: { approve: true, reason: "it is mine" } };
}

function transport(HTTP, Stdio) {
  if (flag === "--url") return new HTTP(new URL(rest[0]));
  return new Stdio({ command: rest[0], args: rest.slice(1), env: { ...process.env }, stderr: "inherit" });
}

async function connect() {
  if (sdk === "v1") {
    const client = new v1.Client(implementation, { capabilities });
    if (way !== "none") client.setRequestHandler(ElicitRequestSchema, answer);
    await client.connect(transport(V1HTTP, V1Stdio));
    return client;
  }
  const client = new Client(implementation, { capabilities, versionNegotiation: { mode: "auto" } });
  if (way !== "none") client.setRequestHandler("elicitation/create", answer);
  await client.connect(transport(StreamableHTTPClientTransport, StdioClientTransport));
  return client;
}

const client = await connect();
const call = { name: tool, arguments: JSON.parse(args) };
let outcome;
try {
  outcome = { result: sdk === "v1" ? await client.callTool(call) : await client.callTool(call, {}) };
} catch (error) {
  outcome = { error: `${error.code ?? error.name}: ${error.message}` };
}
process.stdout.write(JSON.stringify({ era: client.getProtocolEra?.() ?? "legacy", asked, ...outcome }) + "\n");
await client.close();
process.exit(0);

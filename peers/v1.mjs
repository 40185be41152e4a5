// Drives a server with the official TypeScript SDK, version 1.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
  CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema, ResultSchema,
} from "@modelcontextprotocol/sdk/types.js";
import * as answers from "./lib/answers.mjs";
import { main } from "./lib/main.mjs";

class V1 {
  name = "v1";

  constructor(client, transport, capture) {
    Object.assign(this, { client, transport, capture });
  }

  era() { return "legacy"; }

  list(kind, params) {
    const lists = {
      tools: "listTools", resources: "listResources",
      resourceTemplates: "listResourceTemplates", prompts: "listPrompts",
    };
    return this.client[lists[kind]](params);
  }

  call(name, args, options) { return this.client.callTool({ name, arguments: args }, undefined, options); }
  read(uri) { return this.client.readResource({ uri }); }
  prompt(name, args) { return this.client.getPrompt({ name, arguments: args }); }
  complete(params) { return this.client.complete(params); }
  level(level) { return this.client.setLoggingLevel(level); }
  ping() { return this.client.ping(); }
  subscribe(uri) { return this.client.subscribeResource({ uri }); }
  unsubscribe(uri) { return this.client.unsubscribeResource({ uri }); }
  rootsChanged() { return this.client.sendRootsListChanged(); }
  request(method, params) { return this.client.request({ method, params }, ResultSchema); }

  async close() {
    await this.transport.terminateSession?.();
    await this.client.close();
  }
}

await main(async (options, capture) => {
  const client = new Client(answers.implementation, { capabilities: answers.capabilities });
  client.setRequestHandler(CreateMessageRequestSchema, () => answers.sampled);
  client.setRequestHandler(ElicitRequestSchema, ({ params }) => answers.elicited(params));
  client.setRequestHandler(ListRootsRequestSchema, () => answers.roots);
  const transport = options.url
    ? new StreamableHTTPClientTransport(options.url)
    : new StdioClientTransport({ command: options.command, args: options.args, env: options.env, stderr: "inherit" });
  await client.connect(transport);
  return new V1(client, transport, capture);
});

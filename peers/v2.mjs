// Drives a server with the official TypeScript SDK, version 2, which offers 2026-07-28 and falls back.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import * as z from "zod/v4";
import * as answers from "./lib/answers.mjs";
import { main } from "./lib/main.mjs";

class V2 {
  name = "v2";
  #listening = new Map();

  constructor(client, transport, capture) {
    Object.assign(this, { client, transport, capture });
  }

  era() { return this.client.getProtocolEra(); }

  list(kind, params) {
    const methods = {
      tools: "tools/list", resources: "resources/list",
      resourceTemplates: "resources/templates/list", prompts: "prompts/list",
    };
    return this.request(methods[kind], params);
  }

  call(name, args, options) { return this.client.callTool({ name, arguments: args }, options); }
  read(uri) { return this.client.readResource({ uri }, { cacheMode: "bypass" }); }
  prompt(name, args) { return this.client.getPrompt({ name, arguments: args }); }
  complete(params) { return this.client.complete(params); }
  level(level) { return this.client.setLoggingLevel(level); }
  ping() { return this.client.ping(); }

  async subscribe(uri) {
    if (this.era() === "legacy") return this.client.subscribeResource({ uri });
    this.#listening.set(uri, await this.client.listen({ resourceSubscriptions: [uri] }));
  }

  async unsubscribe(uri) {
    if (this.era() === "legacy") return this.client.unsubscribeResource({ uri });
    await this.#listening.get(uri).close();
  }

  rootsChanged() { return this.client.sendRootsListChanged(); }

  request(method, params) { return this.client.request({ method, params }, z.looseObject({})); }

  async close() {
    await this.transport.terminateSession?.();
    await this.client.close();
  }
}

await main(async (options, capture) => {
  const client = new Client(answers.implementation, {
    capabilities: answers.capabilities,
    versionNegotiation: { mode: "auto" },
  });
  client.setRequestHandler("sampling/createMessage", () => answers.sampled);
  client.setRequestHandler("elicitation/create", ({ params }) => answers.elicited(params));
  client.setRequestHandler("roots/list", () => answers.roots);
  const transport = options.url
    ? new StreamableHTTPClientTransport(options.url)
    : new StdioClientTransport({ command: options.command, args: options.args, env: options.env, stderr: "inherit" });
  await client.connect(transport);
  return new V2(client, transport, capture);
});

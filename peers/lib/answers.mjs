// What the client's side answers to requests of the server, the same in every driver.

export const implementation = { name: "peer", version: "1.0.0" };

export const capabilities = {
  sampling: {},
  elicitation: { form: {}, url: {} },
  roots: { listChanged: true },
};

export const roots = { roots: [{ uri: "file:///srv/one", name: "one" }, { uri: "file:///srv/two", name: "two" }] };

export const sampled = {
  role: "assistant", model: "fixed", stopReason: "endTurn",
  content: { type: "text", text: "a sampled answer" },
};

export function elicited(params) {
  if (params.mode === "url") return { action: "accept" };
  return { action: "accept", content: { name: "Ada", check: true, integer: 7, number: 2.5 } };
}

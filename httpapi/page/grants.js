// The standing grants that hold, and the button that ends one.
import { ask } from "./api.js";
import { el, text, time, version } from "./dom.js";

export async function grants(act) {
  const list = await ask("GET", "/v1/grants?active=true");
  const parts = [el("h1", {}, "Standing grants")];
  if (list.grants.length === 0) return Object.assign([...parts, el("p", { id: "nothing" }, "No call is approved in advance.")], { version: version(list) });
  const reason = el("input", { type: "text", id: "reason", placeholder: "Why one ends: kept in the log", "aria-label": "Reason", autocomplete: "off" });
  const missing = el("p", { class: "warn", id: "missing", role: "status" });
  const revoke = g => {
    missing.textContent = reason.value.trim() ? "" : "Say why it ends.";
    if (!missing.textContent) act(`/v1/grants/${g.id}/revoke`, JSON.stringify({ reason: reason.value }));
  };
  return Object.assign([
    ...parts, el("p", {}, "These calls run without being asked about, each time, until the grant ends."), reason, missing,
    el("ul", { class: "effects", id: "standing" }, ...list.grants.map(g => row(g, revoke))),
  ], { version: version(list) });
}

function row(g, revoke) {
  return el("li", { class: "grant", "data-id": g.id },
    el("div", {}, el("strong", { class: "text" }, g.tool), " on ", text(g.server), " for ", g.principal ? text(g.principal) : "any caller"),
    el("div", {}, ...covers(g)),
    el("div", { class: "dim" }, "given by ", text(g.by), " at ", time(g.createdAt), g.reason ? [": ", g.reason].join("") : "",
      "; holds until ", g.expiresAt ? time(g.expiresAt) : "it is revoked"),
    el("div", { class: "actions" }, el("button", { type: "button", class: "stop", onclick: () => revoke(g) }, "Revoke")));
}

// covers says which calls of the tool a grant is for.
function covers(g) {
  if (g.kind === "where") return ["where ", el("code", { class: "text" }, g.where)];
  if (g.kind === "exact") return ["with exactly the arguments of ", el("code", {}, g.digest)];
  return ["every call"];
}

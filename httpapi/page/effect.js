// One effect, and what a person can say about one whose outcome was lost.
import { ask } from "./api.js";
import { history } from "./approval.js";
import { el, list, text, time, version } from "./dom.js";

export async function effect(id, act) {
  const e = await ask("GET", "/v1/effects/" + encodeURIComponent(id));
  return Object.assign([
    el("h1", {}, text(e.tool), " on ", text(e.server)),
    el("p", {}, el("span", { class: "state", id: "state" }, e.state.replaceAll("_", " ")), e.by ? ` by ${e.by}` : "", e.reason ? `: ${e.reason}` : ""),
    ...resolving(e, act),
    el("h2", {}, "Arguments"), el("pre", { id: "arguments", class: "text" }, e.text),
    list([["caller", text(e.principal || "")], ["run", e.run && text(e.run)], ["tier", e.tier], ["begun", time(e.at)],
      ["approval", e.approval && el("a", { href: "/approvals/" + e.id, "data-here": true }, "the request for it")]]),
    ...(e.answerText ? [el("h2", {}, e.answer.kind === "error" || e.answer.isError ? "Answer, an error" : "Answer"), el("pre", { class: "text" }, e.answerText)] : []),
    ...history(e),
  ], { version: version(e) });
}

function resolving(e, act) {
  if (e.state !== "in_doubt" && e.state !== "waiting") return [];
  const reason = el("input", { type: "text", id: "reason", placeholder: "How you know: what you saw at the target", "aria-label": "Reason", autocomplete: "off" });
  const say = outcome => act(`/v1/effects/${e.id}/resolve`, JSON.stringify({ outcome, reason: reason.value }));
  return [
    el("p", {}, "Nobody knows whether this call took effect. Look at the target, then say what you found."), reason,
    el("div", { class: "actions" },
      el("button", { type: "button", id: "committed", class: "go", onclick: () => say("committed") }, "It took effect"),
      el("button", { type: "button", id: "notapplied", class: "stop", onclick: () => say("not_applied") }, "It did not: the same call may run")),
  ];
}

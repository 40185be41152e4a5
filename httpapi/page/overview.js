// The list of all that waits for somebody.
import { ask } from "./api.js";
import { countdown, el, text, version } from "./dom.js";

const sections = [
  ["awaiting_approval", "Waiting for approval", "/approvals/"],
  ["in_doubt", "In doubt: the outcome was lost", "/effects/"],
  ["waiting", "Waiting for a round or a task of the tool", "/effects/"],
];

export async function overview() {
  const before = new URLSearchParams(location.search).get("before");
  const pending = await ask("GET", before ? `/v1/pending?before=${encodeURIComponent(before)}` : "/v1/pending");
  const skew = Date.parse(pending.now) - Date.now();
  const parts = [el("h1", {}, "What waits for somebody")];
  for (const [state, title, path] of sections) {
    const of = pending.effects.filter(e => e.state === state);
    if (of.length === 0) continue;
    parts.push(el("h2", {}, `${title} (${of.length})`), el("ul", { class: "effects", id: state }, ...of.map(e => row(e, path, skew))));
  }
  if (pending.effects.length === 0) parts.push(el("p", { id: "nothing" }, before ? "Nothing older waits for anybody." : "Nothing waits for anybody."));
  if (pending.next) {
    parts.push(el("p", { id: "more" }, `These are ${pending.effects.length} of more that wait. `,
      el("a", { href: `/?before=${pending.next}`, "data-here": true }, "Older ones")));
  }
  return Object.assign(parts, { version: version(pending) });
}

function row(e, path, skew) {
  return el("li", { "data-id": e.id }, el("a", { href: path + e.id, "data-here": true },
    el("div", {}, el("strong", { class: "text" }, e.tool), " on ", text(e.server), " for ", text(e.principal || "somebody unknown")),
    el("div", {}, el("code", { class: "text" }, e.preview)),
    el("div", { class: "dim" }, ...standing(e, skew))));
}

function standing(e, skew) {
  const a = e.approval;
  if (!a || e.state !== "awaiting_approval") return [`since ${new Date(e.changedAt).toLocaleString()}`];
  if (a.useUntil) return ["approved, not used yet; void in ", countdown(a.useUntil, skew)];
  const votes = a.quorum > 1 ? `${a.quorum - a.missing} of ${a.quorum} have approved; ` : "";
  return [votes, a.last?.kind === "edit" ? "edited; " : "", "time left: ", countdown(a.decideUntil, skew)];
}

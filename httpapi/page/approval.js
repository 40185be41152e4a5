// One request for approval: all that a person needs to decide, and the buttons.
import { ask } from "./api.js";
import { diff } from "./diff.js";
import { countdown, el, list, text, time, version } from "./dom.js";

// approval shows a request. act sends what a person decides.
export async function approval(id, act) {
  const a = await ask("GET", "/v1/approvals/" + encodeURIComponent(id));
  const skew = Date.parse(a.now) - Date.now();
  return Object.assign([
    el("h1", {}, text(a.tool), " on ", text(a.server)),
    el("p", {}, el("span", { class: "state", id: "state" }, a.state.replaceAll("_", " ")), " ", ...clocks(a, skew)),
    ...last(a),
    ...buttons(a, act),
    el("h2", {}, a.approval.edited ? "Arguments, as they were edited" : "Arguments"),
    argumentsOf(a),
    el("h2", {}, "Who asks, and why"),
    list([
      ["caller", text(a.principal || "")], ["run", a.run && text(a.run)], ["why", a.approval.why && text(a.approval.why)],
      ["tier", a.tier], ["asked", time(a.approval.requestedAt)],
      ["approvals", `${a.approval.quorum - a.approval.missing} of ${a.approval.quorum}`],
      ["who may", a.approval.approvers && a.approval.approvers.join(", ")],
    ]),
    ...votes(a), ...tool(a), ...recent(a), ...history(a),
  ], { digest: a.approval.digest, version: version(a) });
}

function clocks(a, skew) {
  if (a.state !== "awaiting_approval") return [];
  if (a.approval.useUntil) return ["approved; void in ", countdown(a.approval.useUntil, skew)];
  return ["time left: ", countdown(a.approval.decideUntil, skew)];
}

// last says what was decided last, by whom and when.
function last(a) {
  const v = a.approval.last;
  if (!v) return [];
  return [el("p", { id: "last" }, `${past[v.kind]} by `, text(v.by), " at ", time(v.at), v.reason && [": ", v.reason].join(""))];
}

const past = { approve: "approved", deny: "denied", edit: "edited", extend: "extended", reopen: "reopened", withdraw: "withdrawn" };

function argumentsOf(a) {
  if (!a.originalText) return el("pre", { id: "arguments", class: "text" }, a.text);
  const mark = { " ": "", "-": "del", "+": "add" };
  return el("pre", { id: "arguments", class: "text" }, ...diff(a.originalText, a.text).map(([k, line]) => el("span", { class: mark[k] }, line || " ")));
}

function buttons(a, act) {
  const reason = el("input", { type: "text", id: "reason", placeholder: "Reason: the agent is told", "aria-label": "Reason", autocomplete: "off" });
  const send = (kind, more = "") => act(`/v1/approvals/${a.id}/${kind}`,
    `{"request":${JSON.stringify(a.approval.id)},"reason":${JSON.stringify(reason.value)}${more}}`);
  const digest = `,"digest":${JSON.stringify(a.approval.digest)}`;
  const button = (id, label, kind, onclick) => el("button", { type: "button", id, class: kind, onclick }, label);
  if (a.state === "denied") return [el("div", { class: "actions" }, reason, button("reopen", "Reopen", "", () => send("reopen")))];
  if (a.state !== "awaiting_approval") return [];
  if (a.approval.useUntil) {
    return [reason, el("div", { class: "actions" }, button("withdraw", "Take the approval back", "stop", () => send("withdraw")))];
  }
  const editor = editing(a, edited => send("edit", `${digest},"arguments":${edited}`));
  return [
    a.whyNot ? el("p", { class: "warn", id: "whynot" }, a.whyNot) : null, reason,
    el("div", { class: "actions" },
      button("approve", "Approve", "go", () => send("approve", digest)), button("deny", "Deny", "stop", () => send("deny", digest)),
      button("edit", "Edit…", "", () => { editor.hidden = false; editor.querySelector("textarea").focus(); }),
      button("extend", "One more day to decide", "", () => send("extend", `,"for":"24h"`))),
    editor,
  ].filter(Boolean);
}

// editing lets a person write other arguments. They are sent as they are written: numbers keep their digits.
function editing(a, save) {
  const area = el("textarea", { id: "edited", spellcheck: "false", "aria-label": "Arguments" });
  area.value = a.text;
  const wrong = el("p", { class: "warn", id: "notjson" });
  const box = el("div", { id: "editor", hidden: true }, area, wrong,
    el("div", { class: "actions" },
      el("button", { type: "button", id: "save", onclick: () => check() && save(area.value) }, "Save, to be approved"),
      el("button", { type: "button", id: "cancel", onclick: () => { area.value = a.text; box.hidden = true; } }, "Cancel")));
  const check = () => {
    wrong.textContent = "";
    try {
      const v = JSON.parse(area.value);
      if (v !== null && typeof v === "object" && !Array.isArray(v)) return true;
      wrong.textContent = "The arguments must be a JSON object.";
    } catch (e) {
      wrong.textContent = `This is no JSON: ${e.message}`;
    }
    return false;
  };
  area.oninput = check;
  return box;
}

function votes(a) {
  if (!a.approval.votes) return [];
  return [el("h2", {}, "Votes"), el("ul", { id: "votes" }, ...a.approval.votes.map(v => el("li", {}, text(v.by), " at ", time(v.at), v.reason ? `: ${v.reason}` : "")))];
}

function tool(a) {
  const d = a.definition || {};
  const hints = Object.entries(d.annotations || {}).filter(([, v]) => typeof v === "boolean").map(([k, v]) => `${k}: ${v}`).join(", ");
  return [
    el("h2", {}, "What the tool is, as its server says"),
    a.definitionChanged && el("p", { class: "warn" }, "The tool's definition has changed since approval was asked for."),
    list([["title", d.title && text(d.title)], ["description", d.description && text(d.description)], ["annotations", hints]]),
    !a.definition && el("p", { class: "dim" }, "Its definition is not known."),
  ].filter(Boolean);
}

function recent(a) {
  if (a.recent.length === 0) return [];
  return [el("h2", {}, a.run ? "What the run did before" : "What the caller did there lately"), el("ul", { class: "effects", id: "recent" },
    ...a.recent.map(r => el("li", {}, el("a", { href: "/effects/" + r.id, "data-here": true },
      time(r.at), " ", el("strong", { class: "text" }, r.tool), " ", el("code", { class: "text" }, r.preview), ` ${r.state}`))))];
}

export function history(a) {
  return [el("h2", {}, "History"), el("ul", { id: "history" }, ...a.transitions.map(t =>
    el("li", {}, time(t.at), ` ${t.state}`, t.by ? ` by ${t.by}` : "", t.reason ? `: ${t.reason}` : "")))];
}

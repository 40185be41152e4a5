import { approval } from "./approval.js";
import { ask, listen } from "./api.js";
import { el } from "./dom.js";
import { effect } from "./effect.js";
import { grants } from "./grants.js";
import { codeOf, enter, form } from "./login.js";
import { overview } from "./overview.js";

const main = document.getElementById("main");
const live = document.getElementById("live");
const user = document.getElementById("user");
const standing = document.getElementById("grants");
const leave = document.getElementById("leave");

let stop;    // ends the stream of changes
let said;    // what came of the last click: { kind, message }
let digest;  // of the arguments that are shown
let drawing = 0;

// draw shows what the address names, as it is now.
async function draw() {
  const turn = ++drawing;
  const [, kind, id] = location.pathname.split("/");
  let parts;
  try {
    if (kind === "approvals") parts = await approval(id, act);
    else if (kind === "effects") parts = await effect(id, act);
    else if (kind === "grants") parts = await grants(act);
    else parts = await overview();
  } catch (e) {
    if (e.status === 401) return login(e.message);
    if (e.status !== 404) return say("wrong", e.message);
    parts = [el("h1", {}, "Not found"), el("p", {}, "Nothing of that id is on record for you.")];
  }
  if (turn !== drawing) return; // a newer drawing is under way
  show(parts);
}

let version; // of what is shown, and what was said beside it

// show puts parts in the place of those that were there, and keeps what a person is writing.
function show(parts) {
  const next = location.pathname + location.search + parts.version + said?.message;
  if (parts.version && next === version) return;
  version = next;
  const kept = keep();
  main.replaceChildren(el("div", { id: "said", role: "status", class: said?.kind }, said?.message || ""), ...parts);
  restore(kept);
  if (digest && parts.digest && digest !== parts.digest) hesitate();
  digest = parts.digest;
}

function keep() {
  const editor = document.getElementById("editor");
  return { reason: document.getElementById("reason")?.value, edited: editor && !editor.hidden && document.getElementById("edited").value, focus: document.activeElement?.id };
}

function restore({ reason, edited, focus }) {
  const input = document.getElementById("reason"), editor = document.getElementById("editor");
  if (input && reason) input.value = reason;
  if (editor && edited) {
    editor.hidden = false;
    document.getElementById("edited").value = edited;
  }
  if (focus) document.getElementById(focus)?.focus();
}

// hesitate keeps a click from approving arguments that changed the moment before.
function hesitate() {
  const button = document.getElementById("approve");
  if (!button) return;
  button.disabled = true;
  setTimeout(() => { button.disabled = false; }, 1500);
}

// act sends what a person decided and says what came of it. That somebody was first is no error.
async function act(path, body) {
  for (const b of main.querySelectorAll("button")) b.disabled = true;
  try {
    await ask("POST", path, body);
    said = { kind: "done", message: "Recorded." };
    clear();
  } catch (e) {
    if (e.status === 401) return login(e.message);
    said = { kind: e.outcome === "already" ? "info" : "wrong", message: e.message };
  }
  digest = version = undefined;
  await draw();
  for (const b of main.querySelectorAll("button")) b.disabled = false;
}

function clear() {
  const reason = document.getElementById("reason"), editor = document.getElementById("editor");
  if (reason) reason.value = "";
  if (editor) editor.hidden = true;
}

function say(kind, message) {
  said = { kind, message };
  const place = document.getElementById("said");
  if (!place) return show([]);
  place.className = kind;
  place.textContent = message;
}

function login(why) {
  stop?.();
  stop = undefined;
  said = digest = version = undefined;
  live.textContent = user.textContent = "";
  leave.hidden = standing.hidden = true;
  main.replaceChildren(...form(() => begin(), why));
}

let soon;

// begin shows the page to somebody who is known, and keeps it as the log is.
async function begin(why = "") {
  try {
    const who = await ask("GET", "/v1/session");
    user.textContent = who.tenant === "default" ? who.user : `${who.user}, ${who.tenant}`;
  } catch (e) {
    return login(e.status === 401 ? why : e.message);
  }
  leave.hidden = standing.hidden = false;
  await draw();
  stop?.();
  stop = listen({
    changed: () => { clearTimeout(soon); soon = setTimeout(draw, 50); },
    alive: is => {
      live.textContent = is ? "live" : "not connected: trying again…";
      if (is && said?.message === "the server does not answer") said = undefined;
    },
  });
}

leave.onclick = async () => {
  await ask("DELETE", "/v1/session").catch(() => {});
  login("");
};

document.addEventListener("click", event => {
  const link = event.target.closest("a[data-here], #home");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  said = digest = version = undefined;
  history.pushState(null, "", link.getAttribute("href"));
  main.replaceChildren();
  draw();
});

window.addEventListener("popstate", () => { said = digest = version = undefined; main.replaceChildren(); draw(); });

// start is also for a link with a code that is opened in a window which shows the page already.
async function start() {
  const code = codeOf(location);
  let why = "";
  if (code) await enter(code).catch(e => { why = e.message; });
  begin(why);
}

window.addEventListener("hashchange", () => { if (location.hash) start(); });
start();

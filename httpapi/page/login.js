// How a browser becomes known: by a link with a code that works once, or by a token.
import { ask } from "./api.js";
import { el } from "./dom.js";

// codeOf takes the code out of the address, so that it stays in no history.
export function codeOf(location) {
  const code = new URLSearchParams(location.hash.slice(1)).get("login");
  if (location.hash) window.history.replaceState(null, "", location.pathname);
  return code;
}

export const enter = token => ask("POST", "/v1/session", JSON.stringify({ token }));

export function form(entered, why) {
  const token = el("input", { type: "password", id: "token", autocomplete: "current-password", "aria-label": "Token" });
  const said = el("p", { id: "said", class: "wrong", role: "status" }, why || "");
  const onsubmit = async event => {
    event.preventDefault();
    try {
      await enter(token.value);
      entered();
    } catch (e) {
      said.textContent = e.message;
    }
  };
  return [el("h1", {}, "Log in"),
    el("p", {}, "With an approver's token, or the code of the link that the program has printed."),
    el("form", { id: "login", onsubmit }, token, el("div", { class: "actions" }, el("button", { type: "submit", id: "enter" }, "Log in"))), said];
}

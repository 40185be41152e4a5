// Making elements. Text is always text: nothing from the log is ever read as HTML.

export function el(tag, props = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name === "class") e.className = value;
    else if (name === "onclick" || name === "onsubmit" || name === "oninput") e[name] = value;
    else if (value === true) e.setAttribute(name, "");
    else if (value !== false && value !== undefined) e.setAttribute(name, value);
  }
  e.append(...children.filter(c => c !== undefined && c !== null && c !== false));
  return e;
}

export const text = s => el("span", { class: "text" }, s);

export function list(pairs) {
  return el("dl", {}, ...pairs.filter(([, v]) => v).flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]));
}

export function time(iso) {
  return el("time", { datetime: iso, title: iso }, new Date(iso).toLocaleString());
}

// left says how long it is until a time, by the server's clock.
export function left(iso, skew) {
  const seconds = Math.floor((Date.parse(iso) - Date.now() - skew) / 1000);
  if (seconds <= 0) return "over";
  if (seconds >= 172800) return `${Math.floor(seconds / 86400)} days`;
  if (seconds >= 3600) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds % 3600 / 60)} min`;
  if (seconds >= 60) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${seconds} s`;
}

export function countdown(iso, skew) {
  return el("span", { "data-until": iso, "data-skew": String(skew) }, left(iso, skew));
}

setInterval(() => {
  for (const e of document.querySelectorAll("[data-until]")) e.textContent = left(e.dataset.until, Number(e.dataset.skew));
}, 1000);

// version tells whether something is still as it was shown: what is shown anew is no more what a pointer is over.
export const version = ({ now, ...rest }) => JSON.stringify(rest);

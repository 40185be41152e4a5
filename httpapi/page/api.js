// What the page asks of the server, and what it hears of it.

export class Refused extends Error {
  constructor(status, body) {
    super(body.message || `the server answered ${status}`);
    this.status = status;
    this.outcome = body.outcome || "failed";
  }
}

// ask sends a request. body is JSON text, so that numbers keep their digits.
export async function ask(method, path, body) {
  const options = { method, headers: {} };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = body;
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Refused(0, { outcome: "unreachable", message: "the server does not answer" });
  }
  const said = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refused(response.status, said);
  return said;
}

const kinds = [
  "pending", "approval.requested", "approval.reminder", "approval.updated", "approval.decided", "approval.expired",
  "effect.in_doubt", "effect.waiting", "effect.running", "effect.ended",
];

// listen tells of changes for as long as the page is open, through restarts of the server. changed is called for
// each change, and whenever the stream is there again.
export function listen({ changed, alive }) {
  let source, retry;
  const open = () => {
    source = new EventSource("/v1/events");
    source.onopen = () => alive(true);
    source.onerror = () => {
      alive(false);
      if (source.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
      clearTimeout(retry);
      retry = setTimeout(open, 1000);
    };
    for (const kind of kinds) source.addEventListener(kind, changed);
  };
  open();
  return () => { clearTimeout(retry); source.close(); };
}

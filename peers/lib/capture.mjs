// Keeps every message of the server as the text that came, before an SDK has looked at it: unknown
// members and the spelling of numbers count. Both SDKs read messages with JSON.parse or Response.json,
// so this works for each of their transports.

const parse = JSON.parse;

export class Capture {
  #waiters = new Set();
  #awaited = new Map();
  steps = [];
  requests = [];
  notifications = [];

  install() {
    JSON.parse = (text, reviver) => {
      const value = parse(text, reviver);
      for (const message of Array.isArray(value) ? value : [value]) {
        if (message?.jsonrpc === "2.0") this.#take(message, String(text));
      }
      return value;
    };
    Response.prototype.json = async function () {
      return JSON.parse(await this.text());
    };
  }

  // begin opens the step to which responses belong from now on.
  begin(name) {
    this.steps.push({ name, messages: [], outcome: null });
    return this.steps.at(-1);
  }

  #take(message, text) {
    const step = this.steps.at(-1);
    if (message.method === undefined) step?.messages.push(text);
    else if (message.id !== undefined) this.requests.push(text);
    else if (message.method !== "notifications/progress") this.notifications.push(text);
    else if (step?.progress) step.messages.push(text);
    if (message.method !== undefined) {
      this.#awaited.set(message.method, this.#count(message.method) + 1);
      for (const wake of this.#waiters) wake();
    }
  }

  #count(method) {
    return this.#awaited.get(method) ?? 0;
  }

  // seen resolves when count messages of a method have come since the start.
  async seen(method, count) {
    const deadline = AbortSignal.timeout(20_000);
    while (this.#count(method) < count) {
      await new Promise((resolve, reject) => {
        const wake = () => (this.#waiters.delete(wake), resolve());
        this.#waiters.add(wake);
        deadline.addEventListener("abort", () =>
          reject(new Error(`only ${this.#count(method)} of ${count} ${method} came`)));
      });
    }
  }

  transcript() {
    const steps = this.steps.map(({ name, messages, outcome }) => ({ name, messages, outcome }));
    return { steps, requests: this.requests, notifications: this.notifications };
  }
}

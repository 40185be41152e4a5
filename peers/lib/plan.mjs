// Carries a plan out with one SDK's client. A plan is an array of steps, each an object whose first
// member says what to do; peers/plans holds one for each server.

const listed = { tools: "tools", resources: "resources", resourceTemplates: "resourceTemplates", prompts: "prompts" };

const operations = {
  list: (peer, step) => allPages(peer, step.list),
  call: (peer, step) => peer.call(step.call, step.arguments ?? {}, step.progress ? { onprogress: () => {} } : {}),
  cancel: (peer, step) => callAndCancel(peer, step),
  task: (peer, step) => runTask(peer, step),
  read: (peer, step) => peer.read(step.read),
  readAll: async (peer) => {
    for (const { uri } of await allPages(peer, "resources")) await peer.read(uri);
  },
  prompt: (peer, step) => peer.prompt(step.prompt, step.arguments),
  complete: (peer, step) => peer.complete(step.complete),
  level: (peer, step) => peer.level(step.level),
  ping: (peer) => peer.ping(),
  subscribe: (peer, step) => peer.subscribe(step.subscribe),
  unsubscribe: (peer, step) => peer.unsubscribe(step.unsubscribe),
  rootsChanged: (peer) => peer.rootsChanged(),
  await: (peer, step) => peer.capture.seen(step.await, step.count ?? 1),
};

export async function run(peer, plan) {
  for (const step of plan) {
    const [verb] = Object.keys(step);
    if (step.only && !step.only.includes(peer.name)) continue;
    if (step.era && step.era !== peer.era()) continue;
    const record = peer.capture.begin(JSON.stringify(step));
    record.progress = step.progress;
    try {
      await operations[verb](peer, step);
      record.outcome = "ok";
    } catch (error) {
      record.outcome = `${error.code ?? error.name}: ${error.message}`;
    }
  }
}

async function allPages(peer, kind) {
  const items = [];
  let cursor;
  do {
    const page = await peer.list(kind, cursor === undefined ? {} : { cursor });
    items.push(...page[listed[kind]]);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return items;
}

// callAndCancel gives up a call at its first progress.
async function callAndCancel(peer, step) {
  const controller = new AbortController();
  const options = { signal: controller.signal, onprogress: () => controller.abort("enough") };
  try {
    await peer.call(step.cancel, step.arguments, options);
  } catch (error) {
    if (controller.signal.aborted) return;
    throw error;
  }
  throw new Error("answered before it was cancelled");
}

// runTask starts a call as a task and fetches its result, which the server answers when it is there.
async function runTask(peer, step) {
  const { task } = await peer.request("tools/call", {
    name: step.task, arguments: step.arguments, task: { ttl: 60_000 },
  });
  await peer.request("tasks/result", { taskId: task.taskId });
  await peer.request("tasks/get", { taskId: task.taskId });
}

// The part that the drivers share: node DRIVER --plan FILE (--url URL | -- COMMAND ARGS…). Prints one
// JSON transcript on standard output.

import { readFileSync } from "node:fs";
import { Capture } from "./capture.mjs";
import { run } from "./plan.mjs";

export async function main(connect) {
  const options = parseArguments(process.argv.slice(2));
  const plan = JSON.parse(readFileSync(options.plan, "utf8"));
  const capture = new Capture();
  capture.install();
  capture.begin("connect").outcome = "ok";
  const peer = await connect(options, capture);
  await run(peer, plan);
  const transcript = JSON.stringify({ era: peer.era(), ...capture.transcript() });
  await peer.close();
  await new Promise((resolve) => process.stdout.write(transcript + "\n", resolve));
  process.exit(0);
}

function parseArguments(args) {
  const options = { env: { ...process.env }, legacy: false };
  while (args.length > 0) {
    const flag = args.shift();
    if (flag === "--plan") options.plan = args.shift();
    else if (flag === "--url") options.url = new URL(args.shift());
    else if (flag === "--") [options.command, ...options.args] = args.splice(0);
    else throw new Error(`unknown flag ${flag}`);
  }
  return options;
}

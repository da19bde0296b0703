/** Answers requests to a published model: node engine_answers.mjs SITE MODEL < requests; both are JSON, line by line. */

import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";

const [, , site, folder] = process.argv;
const { Host } = await import(`${site}/static/engine/host.js`);
const read = async (name) => new Uint8Array(await readFile(`${site}/${folder}${name}`)).buffer;
const waiting = new Map();
const host = new Host(read, (message) => waiting.get(message.id)?.(message));
let id = 0;

for await (const line of createInterface({ input: process.stdin })) {
  const message = await new Promise((done) => {
    waiting.set(++id, done);
    host.receive({ id, ...JSON.parse(line) });
  });
  const { status, content } = message;
  const bytes = content instanceof ArrayBuffer ? Buffer.from(content).toString("base64") : null;
  process.stdout.write(`${JSON.stringify({ status, json: bytes ? null : content, bytes })}\n`);
}

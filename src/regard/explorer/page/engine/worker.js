/** The Worker of a published page: it has the model, and answers every request that the server would answer. */

import { Host } from "./host.js";

let host = null;
const files = new Map();

onmessage = ({ data }) => {
  if (!data.folder) return void host.receive(data);
  host = new Host((name, progress) => readFile(new URL(name, data.folder), progress), postMessage.bind(self));
  host.loadRest().then(() => postMessage({ complete: true }), () => {}); // requests report what is missing
};

/** The bytes of a file, which is loaded once; `progress` is called with the bytes so far and the size of the file. */
function readFile(url, progress) {
  const name = url.href;
  if (!files.has(name)) {
    files.set(name, load(url, progress));
    files.get(name).catch(() => files.delete(name));
  }
  return files.get(name);
}

async function load(url, progress) {
  const response = await fetch(url).catch(() => null);
  const name = url.pathname.split("/").pop();
  if (!response) throw new Error(`${name} cannot be loaded: check the connection, then reload this page.`);
  if (!response.ok) throw new Error(`${name} cannot be loaded (${response.status}): publish the model again.`);
  if (!progress || !response.body) return response.arrayBuffer();
  const total = Number(response.headers.get("Content-Length"));
  const parts = [];
  let loaded = 0;
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    progress((loaded += value.length), total);
  }
  return new Blob(parts).arrayBuffer();
}

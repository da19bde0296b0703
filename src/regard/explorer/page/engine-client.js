/** Asks the engine of a published page, which has the model and answers as the server does. */

import { button, download, h } from "regard/dom-elements.js";
import { further, t } from "regard/strings.js";

further.push("published");

/** The folder of the model, and the names of all modules and lessons of the page. */
const { folder, modules, lessons } = JSON.parse(document.getElementById("regard-published")?.textContent ?? "{}");
const files = new Map();
const waiting = new Map();
let compared = null; // the result in words
let worker = null;
let last = 0;

/** What has computed the numbers of a run. */
export const computer = () => t("published.engine");

/** What visitors should know. */
export const note = () => h("span", { class: "note" }, t("published.inPage"), " ", compared ?? button(t("published.compare"), (event) => compare(event.currentTarget), { "data-key": "compare" }));

/** Compares the engine's numbers with those that PyTorch computed of one sentence when the page was published. */
async function compare(pressed) {
  const { delta, tensors, text } = await (await request("api/comparison")).json();
  const size = delta === null ? "∞" : delta.toExponential(1).replace("-", "−");
  compared = t("published.compared", { delta: size, tensors, text, mark: delta !== null && delta <= 1e-5 ? "✓" : "✗" });
  pressed.replaceWith(compared);
}

/** The answer to a request, as `fetch` gives it. */
export async function request(path, { body, signal } = {}) {
  if (path.startsWith("static/")) return (await file(path.slice("static/".length))).clone();
  worker ??= start();
  const id = ++last;
  return new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject });
    signal?.addEventListener("abort", () => {
      if (!waiting.delete(id)) return;
      worker.postMessage({ cancel: id });
      reject(new DOMException("", "AbortError"));
    });
    worker.postMessage({ id, path, body: body && JSON.parse(body) });
  });
}

function start() {
  const made = new Worker(new URL("./engine/worker.js", import.meta.url), { type: "module" });
  made.onmessage = ({ data }) => receive(data);
  made.onerror = (event) => {
    event.preventDefault();
    for (const { reject } of waiting.values()) reject(new Error(event.message || t("published.noEngine")));
    waiting.clear();
  };
  made.postMessage({ folder: new URL(folder, document.baseURI).href });
  return made;
}

function receive({ id, status, content, loaded, total, complete }) {
  if (complete) return void loadRest();
  if (loaded !== undefined) return showProgress(loaded, total);
  const { resolve } = waiting.get(id) ?? {};
  waiting.delete(id);
  resolve?.(new Response(content instanceof ArrayBuffer ? content : JSON.stringify(content), { status }));
}

/** A file beside the modules of the page, which is loaded once. */
function file(name) {
  if (!files.has(name)) files.set(name, fetch(new URL(`./${name}`, import.meta.url)));
  return files.get(name);
}

/** Loads all views and lessons: from then on, the page needs no network. */
async function loadRest() {
  await Promise.all([...modules.map((name) => import(`regard/${name}`)), ...lessons.map(file)]);
  document.body.dataset.complete = "true";
}

/** Shows how much of the weights is loaded, until the first view is drawn. */
function showProgress(loaded, total) {
  const main = document.getElementById("main");
  if (!main || document.body.dataset.drawn) return;
  const sizes = { loaded: (loaded / 1e6).toFixed(1), total: total ? (total / 1e6).toFixed(1) : "?" };
  main.replaceChildren(h("p", { class: "note" }, `${t("published.loading", sizes)} `, h("progress", { ...(total ? { max: total, value: loaded } : {}), "aria-label": t("published.loading", sizes) })));
}

/** Saves the file that a link of the server would lead to. */
export async function save(event) {
  event.preventDefault();
  const link = event.currentTarget;
  const response = await request(link.getAttribute("href"));
  download(link.download, await response.arrayBuffer(), "application/octet-stream");
}

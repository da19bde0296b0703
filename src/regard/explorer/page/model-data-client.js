/** Fetches descriptions, runs and tensors from the server, or reads them from this page when it is a saved file. */

import { markRareWords } from "regard/rare-words.js";
import { fromBase64, readSafetensors, Tensor } from "regard/safetensors-reader.js";
import { t } from "regard/strings.js";

const saved = (() => {
  const element = document.getElementById("regard-data");
  return element ? JSON.parse(element.textContent ?? "") : null;
})();

/** Whether this page is a file with one run in it and no server behind it. */
export const offline = saved !== null;

/** The engine that answers in place of the server in a published page, or null. */
export const engine = document.getElementById("regard-published") ? await import("regard/engine-client.js") : null;
const request = engine?.request ?? fetch;

/** What has computed the numbers of a run. */
export const computer = () => engine?.computer() ?? "PyTorch";

async function ask(path, options) {
  const response = await request(path, options).catch((error) => {
    throw error.name === "AbortError" || engine ? error : new Error(t("noServer"));
  });
  if (response.ok) return response;
  const text = await response.text();
  let told = text;
  try {
    told = JSON.parse(text).error ?? text;
  } catch {}
  throw Object.assign(new Error(told || `${response.status}`), { status: response.status });
}
const getJson = async (path) => (await ask(path)).json();
const postJson = async (path, body, signal) => (await ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal })).json();

/** Answers that never change, kept. */
const kept = new Map();

function once(key, make) {
  let found = kept.get(key);
  if (!found) {
    found = make();
    kept.set(key, found);
    found.catch(() => kept.delete(key));
  }
  return found;
}

const notSaved = () => Object.assign(new Error("offline"), { offline: true });

/** The JSON at this address, as text names it: "api/positions?side=source&n=64". */
export function get(path) {
  if (!saved) return once(path, () => getJson(path));
  const found = saved.responses[path];
  return found === undefined ? Promise.reject(notSaved()) : Promise.resolve(found);
}

export const model = () => (saved ? Promise.resolve(saved.model) : once("model", () => getJson("api/model")));

/** One run of the model: its answer, and its tensors when they are asked for. */
export class Run {
  constructor(answer, given) {
    this.answer = answer;
    this.rare = markRareWords(answer);
    this.given = given;

    this.cache = new Map();

    this.waiting = null;
  }
  tokens(text) {
    return this.answer.tokens[text] ?? [];
  }
  has(name) {
    return name in this.answer.tensors;
  }

  /** A tensor of this run; what is asked for at the same time comes in one answer. */
  tensor(name) {
    let found = this.cache.get(name);
    if (!found) {
      const own = this.given?.get(name);
      found = own ? Promise.resolve(own) : this.given ? Promise.reject(notSaved()) : new Promise((resolve, reject) => this.queue(name, resolve, reject));
      this.cache.set(name, found);
      found.catch(() => this.cache.delete(name));
    }
    return found;
  }
  tensors(names) {
    return Promise.all(names.map((name) => this.tensor(name)));
  }
  queue(name, resolve, reject) {
    if (!this.waiting) {
      this.waiting = new Map();
      queueMicrotask(() => this.fetch());
    }
    this.waiting.set(name, { resolve, reject });
  }

  async fetch() {
    const waiting = this.waiting ?? new Map();
    this.waiting = null;
    const names = [...waiting.keys()];
    const largest = Math.max(...names.map((name) => (this.answer.tensors[name]?.shape ?? [0]).reduce((a, b) => a * b, 1)));
    const dtype = largest > 2_000_000 ? "f16" : "f32"; // receipts need all digits
    try {
      const look = () => ask(`api/run/${this.answer.run}/tensors?dtype=${dtype}&names=${names.join(",")}`);
      const response = await look().catch(async (error) => {
        if (error.status !== 404) throw error;
        this.answer.run = (await postJson("api/run", this.answer.request)).run; // the server keeps the last runs only
        return look();
      });
      const found = readSafetensors(await response.arrayBuffer());
      for (const [name, { resolve, reject }] of waiting) {
        const tensor = found.get(name);
        if (tensor) resolve(tensor);
        else reject(new Error(`${name}: not in the answer`));
      }
    } catch (error) {
      for (const { reject } of waiting.values()) reject(error);
    }
  }
}

/** Runs the model, or finds the same run again. */
export async function run(request) {
  const key = JSON.stringify(request);
  if (saved) {
    const first = saved.runs.find((r) => JSON.stringify(r.answer.request.text) === JSON.stringify(request.text)) ?? saved.runs[0];
    return once("saved", async () => new Run(first.answer, readSafetensors(fromBase64(first.tensors))));
  }
  return once(`run ${key}`, async () => new Run(await postJson("api/run", request)));
}

/** Whether a run is of an earlier step of training while weights come from the final model; a saved file has those of the run. */
export const foreign = ({ answer }) => Boolean(answer.request.checkpoint) && !saved;

/** A weight, or some of its rows and columns ("0:8"). */
export function weight(name, rows = "", columns = "") {
  return once(`weight ${name} ${rows} ${columns}`, async () => {
    if (saved) {
      if (!saved.weights) throw notSaved();
      const all = await once("weights", async () => readSafetensors(fromBase64(saved.weights)));
      const whole = all.get(name);
      if (!whole) throw notSaved();
      return cut(whole, rows, columns);
    }
    const part = (rows ? `&rows=${rows}` : "") + (columns ? `&columns=${columns}` : "");
    const found = readSafetensors(await (await ask(`api/weights?name=${name}${part}`)).arrayBuffer()).get(name);
    if (!found) throw new Error(`${name}: not in the answer`);
    return found;
  });
}
function cut(tensor, rows, columns) {
  if (!rows && !columns) return tensor;
  const span = (text, size) => (text ? text.split(":").map(Number) : [0, size]);
  const [a, b] = span(rows, tensor.shape[0]);
  if (tensor.shape.length === 1) return new Tensor(tensor.name, [b - a], tensor.axes, tensor.data.slice(a, b));
  const [c, d] = span(columns, tensor.shape[1]);
  const data = new Float32Array((b - a) * (d - c));
  for (let i = a; i < b; i++) data.set(tensor.row(i).subarray(c, d), (i - a) * (d - c));
  return new Tensor(tensor.name, [b - a, d - c], tensor.axes, data);
}

/** The effect of leaving out heads or sublayers. */
export function ablate(found, what, op, signal) {
  if (saved) return saved.ablate?.[`${what} ${op}`] ? Promise.resolve(saved.ablate[`${what} ${op}`]) : Promise.reject(notSaved());
  return once(`ablate ${found.answer.run} ${what} ${op}`, () => postJson("api/ablate", { run: found.answer.run, what, op }, signal));
}

/** The lessons: [{name, language, title}]; a saved file has none. */
export const lessonIndex = () => (saved ? Promise.resolve([]) : once("lessons", async () => [...(await model()).lessons ?? [], ...(await getJson("static/lessons/index.json"))]));

/** The Markdown of a lesson in a language; a teacher's own lesson has no language. */
export async function lessonText(name, language) {
  const found = (await lessonIndex()).find((each) => each.name === name && (each.language === language || each.language === ""));
  if (!found) throw new Error(t("lesson.missing"));
  return once(`lesson ${name} ${language}`, async () => (await ask(found.language ? `static/lessons/${language}/${name}.md` : `api/lesson?name=${encodeURIComponent(name)}`)).text());
}

/** The model's own table of positions. */
export async function positionTable(side, n) {
  const path = `api/positions/tensor?side=${side}&n=${n}`;
  return once(path, async () => {
    const buffer = saved ? (saved.responses[path] ? fromBase64(saved.responses[path]) : null) : await (await ask(path)).arrayBuffer();
    const found = buffer ? readSafetensors(buffer).get("positions") : undefined;
    if (!found) throw notSaved();
    return found;
  });
}

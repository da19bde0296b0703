/** Answers the requests that the server answers, with the same addresses and the same JSON. */

import { ablate } from "./ablation.js";
import { compareWithPyTorch } from "./comparison.js";
import { embeddingMap, near, positions } from "./embedding-space.js";
import { InputError, MissingError } from "./errors.js";
import { writeSafetensors } from "./safetensors-writer.js";
import { summarize, weightSlice } from "./weight-matrices.js";

/** The answer to `path` with this body: an object for JSON, or an ArrayBuffer. `pause` is awaited during long work. */
export async function answer(model, path, body = null, pause = async () => {}) {
  const [place, search] = path.split("?");
  const [first, second, third] = place.split("/").slice(1);
  const query = Object.fromEntries(new URLSearchParams(search));
  if (first === "run" && !second) return (await model.run(body)).answer;
  if (first === "run" && third === "tensors") return pack(model.find(second), query.names);
  if (first === "run" && !third) return model.find(second).answer;
  if (first === "export") return exportRun(model, second);
  const handler = HANDLERS[place.slice("api/".length)];
  if (!handler) throw new MissingError("Not Found");
  return handler(model, query, body, pause);
}

const HANDLERS = {
  __proto__: null,
  health: () => ({ ok: true }),
  model: ({ about }) => about,
  comparison: (model) => compareWithPyTorch(model),
  ablate: (model, _, body, pause) => effects(model, body, pause),
  weights: (model, { name, rows, columns }) => writeSafetensors([[name, weightSlice(model.network, required(name, "name"), rows, columns, model.about.limits)]]),
  "weights/summary": (model, { name }) => summarize(model.network, required(name, "name")),
  "embeddings/near": (model, { side, id, k }) => near(model, required(side, "side"), whole(id, "id", 0), whole(k ?? 12, "k", 1, model.about.limits.top)),
  "embeddings/map": (model, { side, n, ids }) => embeddingMap(model, required(side, "side"), whole(n ?? 400, "n", 0, 5000), (ids ?? "").split(",").filter(Boolean).map((id) => whole(id, "ids", 0))),
  positions: (model, { side, n }) => positions(model, required(side, "side"), whole(n ?? 64, "n", 1, 1024)).about,
  "positions/tensor": (model, { side, n }) => {
    const { about, rows } = positions(model, required(side, "side"), whole(n ?? 64, "n", 1, 1024));
    if (!rows) throw new MissingError(`positions: this model has no table of positions (${about.kind})`);
    return writeSafetensors([["positions", rows]]);
  },
  lesson: (model, { name }) => model.lesson(required(name, "name")),
  source: (model, { name }) => model.source(required(name, "name")),
};

function required(value, name) {
  if (!value) throw new InputError(`${name}: is missing`);
  return value;
}

function whole(value, name, low, high = Infinity) {
  const number = Number(required(String(value ?? ""), name));
  if (!Number.isInteger(number)) throw new InputError(`${name}: must be a whole number, not text`);
  if (number < low) throw new InputError(`${name}: must be a whole number >= ${low}`);
  if (number > high) throw new InputError(`${name}: must be a whole number <= ${high}`);
  return number;
}

const pack = (run, names) => writeSafetensors([...new Set(required(names, "names").split(",").filter(Boolean))].map((name) => [name, run.tensor(name)]));

/** The effects of an ablation, which are computed once for each run. */
async function effects(model, { run: id = "", ...request }, pause) {
  const run = model.find(id);
  const key = JSON.stringify(request);
  if (!run.ablations.has(key)) run.ablations.set(key, await ablate(run.pass, request, pause));
  return run.ablations.get(key);
}

/** A run as a file: its description, or all of its tensors. */
function exportRun(model, file) {
  const [id, suffix] = file.split(".");
  const run = model.find(id);
  if (suffix === "json") return run.answer;
  if (suffix === "safetensors") return pack(run, Object.keys(run.answer.tensors).join());
  throw new MissingError(`cannot save a run as '.${suffix}' here; use .json or .safetensors`);
}

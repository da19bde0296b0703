/** A published model: its weights, vocabularies and training history, and its most recent runs. */

import { readSafetensors } from "../safetensors-reader.js";
import { derive } from "./derived-tensors.js";
import { InputError, MissingError, quoted } from "./errors.js";
import { Lexicon } from "./lexicon.js";
import { Network } from "./network.js";
import { readRequest } from "./requests.js";
import { runTask } from "./tasks.js";

/** Models of earlier training steps that stay in memory. */
const CHECKPOINTS = 4;

export class Model {
  /**
   * `about` is the answer to api/model; `details` are what only the engine needs; `vocabularies` have a tokenizer for
   * each text; `read` returns the bytes of one of the model's files.
   */
  constructor(about, details, vocabularies, weights, read) {
    Object.assign(this, { about, details, read, usage: details.usage });
    this.network = new Network(about, weights, details.embedding);
    this.positions = Math.min(about.limits.tokens, about.model.max_length);
    this.lexicons = Object.fromEntries(Object.entries(details.lexicons).map(([text, lexicon]) => [text, new Lexicon(vocabularies[text], lexicon)]));
    this.checkpoints = new Map();
    this.runs = new Map();
  }

  /** Runs a text through the model; returns the stored run if the same request was made before. */
  async run(body) {
    const { request, settings } = readRequest(body, this.details.decoding, this.about.limits);
    const direction = this.direction(request.to);
    if (direction !== null) request.to = direction;
    else delete request.to;
    const model = await this.at(request.checkpoint);
    const id = nameOf(JSON.stringify(request));
    let run = this.runs.get(id);
    if (!run) {
      const started = performance.now();
      const { pass, answer } = runTask(model, request, settings);
      run = new Run(id, pass, { ...answer, ms: performance.now() - started });
    }
    this.runs.delete(id);
    this.runs.set(id, run); // the latest run is the last
    if (this.runs.size > this.about.limits.runs) this.runs.delete(this.runs.keys().next().value);
    return run;
  }

  /** The tag of the language to translate into, or null for a model of one direction. */
  direction(to) {
    const { directions, target } = this.details;
    if (to === undefined) return directions.length ? target : null;
    if (!directions.some((each) => each.target === to) && to !== target) throw new InputError(`to: this model does not translate into ${quoted(to.slice(0, 40))}`);
    return directions.length ? to : null;
  }

  /** The model as it was at an earlier step of its training. */
  async at(checkpoint) {
    if (checkpoint === null) return this;
    if (!this.about.checkpoints.some((each) => each.id === checkpoint)) throw new MissingError(`checkpoint: unknown checkpoint ${quoted(checkpoint.slice(0, 40))}; /api/model lists all checkpoints`);
    let model = this.checkpoints.get(checkpoint);
    if (!model) {
      const weights = readSafetensors(await this.read(`history/${checkpoint}.safetensors`));
      model = Object.assign(Object.create(Model.prototype), this, { network: new Network(this.about, weights, this.details.embedding) });
    }
    this.checkpoints.delete(checkpoint);
    this.checkpoints.set(checkpoint, model);
    if (this.checkpoints.size > CHECKPOINTS) this.checkpoints.delete(this.checkpoints.keys().next().value);
    return model;
  }

  /** A stored run. */
  find(id) {
    const run = this.runs.get(id);
    if (!run) throw new MissingError(`run ${id.slice(0, 40)}: no longer stored; run the text again`);
    return run;
  }

  /** The Markdown of a teacher's own lesson. */
  lesson(name) {
    if (!Object.hasOwn(this.details.lessons, name)) throw new MissingError(`name: no lesson is called ${quoted(name)}`);
    return new TextEncoder().encode(this.details.lessons[name]).buffer;
  }

  /** The line of the server's code that makes the tensor of this name, and the function around it. */
  source(name) {
    const { places, names } = this.details.sources;
    if (!Object.hasOwn(names, name)) throw new MissingError(`name: no recorded run has computed a tensor named ${quoted(name)}; run a text that computes it`);
    return places[names[name]];
  }
}

/** One run: `answer` describes it as JSON, and `tensor` returns each tensor by its name. */
class Run {
  constructor(id, pass, answer) {
    this.pass = pass;
    this.derived = derive(pass);
    this.ablations = new Map();
    const tensors = {};
    for (const [name, { shape, axes }] of pass.trace.seen) tensors[name] = { dtype: "f32", shape, axes };
    for (const [name, { shape, axes, kind }] of this.derived) tensors[name] = { dtype: kind, shape, axes };
    this.answer = { run: id, ...answer, tensors };
  }

  tensor(name) {
    const found = this.pass.trace.seen.get(name) ?? this.derived.get(name);
    if (!found) throw new MissingError(`tensor ${name.slice(0, 100)}: this run has no tensor with that name`);
    return { shape: found.shape, axes: found.axes, data: found.compute() };
  }
}

/** A name of 16 hexadecimal digits for a text: two FNV-1a hashes of 32 bits. */
function nameOf(text) {
  const hash = (start) => [...text].reduce((value, character) => Math.imul(value ^ character.codePointAt(0), 16777619), start) >>> 0;
  return [2166136261, 84696351].map((start) => hash(start).toString(16).padStart(8, "0")).join("");
}

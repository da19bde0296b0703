/** Loads a published model and answers messages about it: in a Worker, or in the page itself. */

import { readSafetensors } from "../safetensors-reader.js";
import { answer } from "./api.js";
import { Model } from "./model.js";
import { loadVocabularies } from "./tokenizer.js";

/** Stops work whose answer nobody waits for any more. */
class Cancelled extends Error {}

export class Host {
  /** `read(name, progress)` returns the bytes of one of the model's files; `send(message, transfer)` answers. */
  constructor(read, send) {
    this.send = send;
    this.cancelled = new Set();
    const json = async (name) => JSON.parse(new TextDecoder().decode(await read(name)));
    this.about = json("model.json");
    this.model = this.load(read, json);
    for (const promise of [this.about, this.model]) promise.catch(() => {}); // each request reports it
  }

  async load(read, json) {
    const [about, details, vocabulary, weights] = await Promise.all([
      this.about, json("details.json"), json("tokenizer.json"), read("weights.safetensors", (loaded, total) => this.send({ loaded, total })),
    ]);
    const { source, target } = loadVocabularies(vocabulary);
    return new Model(about, details, { source, target, text: target }, readSafetensors(weights), read);
  }

  /** Loads what is only needed later, so that the page works without a network. */
  async loadRest() {
    const { about, read } = await this.model;
    await Promise.all(["pytorch.safetensors", ...about.checkpoints.map(({ id }) => `history/${id}.safetensors`)].map((name) => read(name)));
  }

  /** Answers {id, path, body}, or takes back a request: {cancel: id}. */
  async receive({ id, path, body, cancel }) {
    if (cancel !== undefined) return void this.cancelled.add(cancel);
    const pause = async () => {
      await new Promise((done) => setTimeout(done)); // other messages are read in between
      if (this.cancelled.delete(id)) throw new Cancelled("");
    };
    try {
      const content = path === "api/model" ? await this.about : await answer(await this.model, path, body, pause);
      this.send({ id, status: 200, content }, content instanceof ArrayBuffer ? [content] : []);
    } catch (error) {
      if (!(error instanceof Cancelled)) this.send({ id, status: error.status ?? 500, content: { error: error.message } });
    }
  }
}

// The engine in WebAssembly: searches for translations with a packed model, in one thread, without a server.
//
//   const engine = new Engine(await WebAssembly.compile(bytes of engine.wasm), bytes of a packed model);
//   engine.search([[12, 7, 2]], { limits: [26], beam: 5 }) -> [{ tokens: [...], score, logProbabilities: [...], finished }]
//
// The sources are token ids with the end, as the encoder reads them; `limits` are the most tokens of each output. The
// packed model is a file of regard/decoding/native, in float32 or int8. The bytes of the model are kept, because an
// engine that has failed starts again.

const DEFAULTS = {
  beam: 5, lengthPenalty: 0.6, powerPenalty: false, patience: 1, repetitionPenalty: 1, neverGenerated: [], begin: 1, end: 2,
};

export class Engine {
  constructor(module, model) {
    Object.assign(this, { module, model });
    this.start();
  }

  start() {
    const fail = (place) => {
      throw new Error(this.text(place));
    };
    this.run = new WebAssembly.Instance(this.module, { page: { fail } }).exports;
    this.run._initialize();
    this.attempt(() => {
      const place = this.run.regard_reserve(this.model.length);
      new Uint8Array(this.run.memory.buffer).set(this.model, place);
      this.run.regard_load(place, this.model.length);
    }, "this model cannot be used: ");
  }

  /** Returns the best output of each source. Raises an Error for sources that the model cannot read. */
  search(sources, options) {
    const o = { ...DEFAULTS, ...options }, beam = o.beam === 1 ? 0 : o.beam;
    if (!sources.length) return [];
    if (!this.run) this.start();
    return this.attempt(() => {
      const parts = [sources.flat(), sources.map((each) => each.length), o.limits, o.neverGenerated];
      const numbers = Int32Array.from(parts.flat()), place = this.run.regard_reserve(numbers.byteLength);
      new Int32Array(this.run.memory.buffer, place, numbers.length).set(numbers);
      let start = place;
      const starts = parts.map((part) => (start += 4 * part.length) - 4 * part.length);
      const found = this.run.regard_search(
        sources.length, ...starts, o.neverGenerated.length, o.begin, o.end, beam, o.powerPenalty ? 1 : 0,
        o.lengthPenalty, o.patience, o.repetitionPenalty,
      );
      this.run.regard_free(place);
      return this.outputs(found >>> 0, sources.length);
    }, "");
  }

  // The parts of these functions

  outputs(found, count) {
    const { buffer } = this.run.memory, fields = new Uint32Array(buffer, found, 7);
    const [counts, tokens, tokenCounts, gains, gainCounts, scores, finished] = fields;
    const array = (Kind, place, length) => Array.from(new Kind(buffer, place, length));
    let output = 0, token = 0, gain = 0;
    return array(Int32Array, counts, count).map((some) => {
      if (!some) return null;
      const length = new Int32Array(buffer, tokenCounts)[output], steps = new Int32Array(buffer, gainCounts)[output];
      const made = {
        tokens: array(Int32Array, tokens + 4 * token, length),
        logProbabilities: array(Float32Array, gains + 4 * gain, steps),
        score: new Float64Array(buffer, scores)[output],
        finished: new Int32Array(buffer, finished)[output] === 1,
      };
      output += 1, token += length, gain += steps;
      return made;
    });
  }

  text(place) {
    const bytes = new Uint8Array(this.run.memory.buffer, place >>> 0);
    return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0)));
  }

  /** Runs `work`; after an error, the module is in an unknown state and is dropped. */
  attempt(work, before) {
    try {
      return work();
    } catch (error) {
      this.run = null;
      const stopped = error instanceof WebAssembly.RuntimeError || error instanceof RangeError;
      throw new Error(before + (stopped ? `the engine stopped (${error.message})` : error.message));
    }
  }
}

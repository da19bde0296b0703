/** Steps of a model in a search: log-probabilities of the next token of each hypothesis. */

import { dotAt, linear, softmaxRows, sum } from "./arithmetic.js";
import { nextToken } from "./next-token.js";
import { positionRows, rotate } from "./positions.js";
import { Trace } from "./trace.js";

/** The step of a task: with cached keys and values, or, in a patched run, one that reads all tokens again. */
export function newStep(network, task, specials) {
  const kind = task.edits.size || task.keep ? UncachedStep : CachedStep;
  return new kind(network, task, specials);
}

class UncachedStep {
  /** `task` has the ids to read, the tokens that the output starts with, edits and hidden tokens. */
  constructor(network, task, specials) {
    Object.assign(this, { network, task, specials });
  }

  start() {
    const { network, task } = this;
    this.sequences = [task.start];
    if (network.twoTexts) {
      const trace = new Trace(task.edits, true);
      this.memory = network.stack("encoder", network.embed(network.about.embeddings.source, task.read, trace), { keep: task.keep }, trace);
    }
    return this.next();
  }

  advance(tokens, parents) {
    this.sequences = tokens.map((token, i) => [...this.sequences[parents[i]], token]);
    return this.next();
  }

  next() {
    const { network, task } = this;
    return this.sequences.map((tokens) => {
      const trace = new Trace(task.edits, network.twoTexts);
      const states = network.stack("decoder", network.embed(network.about.embeddings[network.written], tokens, trace), { memory: this.memory, keep: task.keep }, trace);
      return this.scores(states.subarray(-network.settings.width), tokens);
    });
  }

  scores(state, tokens) {
    const { weight, bias } = this.network.about.output;
    const logits = linear(state, this.network.weight(weight), bias && this.network.weight(bias));
    return nextToken(logits, tokens, this.specials, this.task.settings.repetition_penalty);
  }
}

/** Keeps the keys and values of earlier steps: a step costs one position instead of all. */
class CachedStep extends UncachedStep {
  start() {
    const { network, task } = this;
    const trace = new Trace(task.edits, network.twoTexts);
    this.sequences = [task.start];
    if (network.twoTexts) this.memory = network.stack("encoder", network.embed(network.about.embeddings.source, task.read, trace), {}, trace);
    const states = network.stack("decoder", network.embed(network.about.embeddings[network.written], task.start, trace), { memory: this.memory }, trace);
    this.cross = network.attentions("decoder").filter((name) => name.includes("cross")).map((name) => byPosition(trace, name));
    this.caches = [network.attentions("decoder").filter((name) => name.includes("self")).map((name) => byPosition(trace, name))];
    return [this.scores(states.subarray(-network.settings.width), task.start)];
  }

  advance(tokens, parents) {
    const { network } = this;
    const { width } = network.settings;
    const position = this.sequences[0].length;
    this.sequences = tokens.map((token, i) => [...this.sequences[parents[i]], token]);
    this.caches = parents.map((parent) => this.caches[parent].map(({ keys, values }) => ({ keys: keys.slice(), values: values.slice() })));
    const states = this.lastStates(tokens, position);
    return tokens.map((_, i) => this.scores(states.subarray(i * width, (i + 1) * width), this.sequences[i]));
  }

  /** The last states [N, D] of the tokens [N] that were appended at one position. */
  lastStates(tokens, position) {
    const { network } = this;
    const { width, embedding_norm: normed } = network.settings;
    const place = network.about.embeddings[network.written];
    let x = network.tokenRows(network.written, tokens);
    const row = positionRows(network, place, position, 1);
    if (row) x = x.map((value, i) => value + row[i % width]);
    const segments = network.weight(`${place}.segments.weight`);
    if (segments) x = x.map((value, i) => value + segments.data[i % width]);
    if (normed) x = network.norm(`${place}.norm`, x);
    const { layers, kinds } = network.about.stacks.decoder;
    for (let layer = 0; layer < layers; layer++) {
      const name = `decoder.layers.${layer}`;
      for (const kind of kinds) {
        const given = kind === "cross_attention" ? tokens.map(() => this.cross[layer]) : this.caches.map((cache) => cache[layer]);
        x = this.residual(`${name}.${kind.replace("_attention", "")}_residual`, x, (y) => this.attend(`${name}.${kind}`, y, given, kind === "cross_attention" ? null : position));
      }
      x = this.residual(`${name}.feed_forward_residual`, x, (y) => this.feedForward(`${name}.feed_forward`, y));
    }
    return network.lastNorm("decoder", x);
  }

  residual(place, x, sublayer) {
    const { network } = this;
    return network.pre ? sum(x, sublayer(network.norm(`${place}.norm`, x))) : network.norm(`${place}.norm`, sum(x, sublayer(x)));
  }

  feedForward(place, x) {
    const { network } = this;
    const gate = network.settings.activation === "swiglu" ? network.linear(`${place}.gate`, x) : null;
    return network.linear(`${place}.fall`, network.activate(network.linear(`${place}.rise`, x), gate));
  }

  /** Each row looks at its own keys and values, to which it first adds its own unless they are those of the memory. */
  attend(place, x, given, position) {
    const { network } = this;
    const { heads, query_groups: groups, head_width: width, head_value_width: valueWidth, rotary_base: base } = network.settings;
    const turn = (rows, count) => (position !== null && network.settings.positions === "rotary" ? rowsOf(rows, count * width).map((row) => rotate(row, count, width, base, position)) : rowsOf(rows, count * width));
    const queries = turn(network.linear(`${place}.query`, x), heads);
    if (position !== null) {
      const keys = turn(network.linear(`${place}.key`, x), groups);
      const values = rowsOf(network.linear(`${place}.value`, x), groups * valueWidth);
      given.forEach((cache, n) => {
        cache.keys.push(keys[n]);
        cache.values.push(values[n]);
      });
    }
    const context = new Float32Array(queries.length * heads * valueWidth);
    queries.forEach((query, n) => {
      const { keys, values } = given[n];
      for (let h = 0; h < heads; h++) {
        const group = Math.floor(h / (heads / groups));
        const weights = softmaxRows(Float32Array.from(keys, (key) => dotAt(query, h * width, key, group * width, width) / Math.sqrt(width)), keys.length);
        for (let i = 0; i < valueWidth; i++) context[(n * heads + h) * valueWidth + i] = values.reduce((total, value, s) => total + weights[s] * value[group * valueWidth + i], 0);
      }
    });
    return network.linear(`${place}.output`, context);
  }
}

const rowsOf = (x, width) => Array.from({ length: x.length / width }, (_, i) => x.subarray(i * width, (i + 1) * width));

/** The keys and values of an attention, position by position: [G * K] each. */
function byPosition(trace, site) {
  const positions = (name) => {
    const { shape: [groups, count, width] } = trace.seen.get(name);
    const data = trace.data(name);
    return Array.from({ length: count }, (_, s) => Float32Array.from({ length: groups * width }, (_, i) => data[(Math.floor(i / width) * count + s) * width + (i % width)]));
  };
  return { keys: positions(`${site}.key`), values: positions(`${site}.value`) };
}

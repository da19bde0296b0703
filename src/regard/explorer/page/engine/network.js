/** The Transformer: runs a text through the weights and records each value under the name that PyTorch's model gives it. */

import { ACTIVATIONS } from "../model-arithmetic.js";
import { attend } from "./attention.js";
import { linear, normalize, sum } from "./arithmetic.js";
import { positionRows } from "./positions.js";

/**
 * A model: `about` is its description (the answer to api/model), `weights` its parameters by name.
 * Shapes are letters in brackets: T positions that attend, S positions attended to, D width, H heads, V vocabulary.
 */
export class Network {
  constructor(about, weights, embedding = {}) {
    this.about = about;
    this.settings = about.model;
    this.task = about.task;
    this.weights = weights;
    this.pooling = embedding;
    this.pre = about.model.norm === "pre";
    this.twoTexts = "target" in about.embeddings;
    this.read = this.twoTexts ? "source" : "text";
    this.written = this.twoTexts ? "target" : "text";
  }

  /** A parameter, or null if the model does not have it. */
  weight(name) {
    return this.weights.get(name) ?? null;
  }

  linear(name, x) {
    return linear(x, this.weight(`${name}.weight`), this.weight(`${name}.bias`));
  }

  normOf(name) {
    return { weight: this.weight(`${name}.weight`), bias: this.weight(`${name}.bias`), kind: this.settings.norm_kind, epsilon: this.settings.norm_epsilon };
  }

  norm(name, x) {
    return normalize(x, this.normOf(name));
  }

  /** The norm after the last layer, which only pre-norm models have. */
  lastNorm(stack, x) {
    return this.pre ? this.norm(`${stack}.norm`, x) : x;
  }

  /** The names of the tensors at each point of a stack's residual stream. */
  points(stack) {
    const after = this.pre ? "sum" : "norm";
    const { layers, kinds, text } = this.about.stacks[stack];
    const points = { embedding: `${this.about.embeddings[text]}.${this.settings.embedding_norm ? "norm" : "sum"}` };
    for (let layer = 0; layer < layers; layer++) for (const part of [...kinds.map((kind) => kind.replace("_attention", "")), "feed_forward"]) points[`layers.${layer}.${part}`] = `${stack}.layers.${layer}.${part}_residual.${after}`;
    return points;
  }

  /** The names of all attentions of a stack, layer by layer. */
  attentions(stack) {
    const { layers, kinds } = this.about.stacks[stack];
    return Array.from({ length: layers }, (_, layer) => kinds.map((kind) => `${stack}.layers.${layer}.${kind}`)).flat();
  }

  /** The names of all sublayers of a stack in the order in which they run. */
  sublayers(stack) {
    const { layers, kinds } = this.about.stacks[stack];
    return Array.from({ length: layers }, (_, layer) => [...kinds, "feed_forward"].map((kind) => `${stack}.layers.${layer}.${kind}`)).flat();
  }

  /**
   * The logits [R, V] of the positions that are read, or null if the model computes none.
   * `from` resumes a finished pass of the same texts at a layer: {stack, layer, trace}.
   */
  forward(inputs, trace, from = null) {
    const { tokens, keep } = inputs;
    if (this.twoTexts) {
      const memory = from?.stack === "decoder" ? from.trace.data("encoder.states") : this.stack("encoder", this.start("source", inputs, trace, from), { keep }, trace, from);
      const states = this.stack("decoder", this.start("target", inputs, trace, from), { memory, keep }, trace, from);
      return this.logits(states, trace);
    }
    const states = this.stack(this.about.stacks.decoder ? "decoder" : "encoder", this.start("text", inputs, trace, from), { keep }, trace, from);
    return this.about.stacks.decoder ? this.logits(states, trace) : this.answers(states, inputs, tokens.text.length, trace);
  }

  /** The vectors that enter the first layer, or the layer where a pass is resumed. */
  start(text, inputs, trace, from) {
    const stack = Object.keys(this.about.stacks).find((name) => this.about.stacks[name].text === text);
    if (from?.stack !== stack) return this.embed(this.about.embeddings[text], inputs.tokens[text], trace, inputs.segments);
    const points = this.points(stack);
    return from.trace.data(from.layer ? points[`layers.${from.layer - 1}.feed_forward`] : points.embedding);
  }

  logits(states, trace) {
    const { weight, bias } = this.about.output;
    const size = this.weight(weight).shape[0];
    return trace.see("", "logits", "position token", [states.length / this.settings.width, size], linear(states, this.weight(weight), bias && this.weight(bias)));
  }

  /** Tokens [T] -> vectors [T, D]: a row of the table, scaled, plus the position, plus the segment. */
  embed(place, tokens, trace, segments = null) {
    const { width } = this.settings;
    const shape = [tokens.length, width];
    const text = Object.keys(this.about.embeddings).find((name) => this.about.embeddings[name] === place);
    let x = trace.see(place, "tokens", "position width", shape, this.tokenRows(text, tokens));
    const positions = positionRows(this, place, 0, tokens.length);
    if (positions) x = sum(x, trace.see(place, "positions", "position width", shape, positions));
    const table = this.weight(`${place}.segments.weight`);
    if (table) x = sum(x, trace.see(place, "segments", "position width", shape, Float32Array.from({ length: x.length }, (_, i) => table.at(segments?.[Math.floor(i / width)] ?? 0, i % width))));
    x = trace.see(place, "sum", "position width", shape, x);
    return this.settings.embedding_norm ? trace.see(place, "norm", "position width", shape, this.norm(`${place}.norm`, x)) : x;
  }

  /** The scaled rows [T, D] of the table of a text. */
  tokenRows(text, tokens) {
    const { width } = this.settings;
    const table = this.weight(this.about.tables[text]).data;
    const scale = Math.fround(this.about.scale);
    const x = new Float32Array(tokens.length * width);
    tokens.forEach((token, t) => {
      for (let i = 0; i < width; i++) x[t * width + i] = table[token * width + i] * scale;
    });
    return x;
  }

  /** [T, D] -> [T, D] through the layers of a stack. */
  stack(stack, x, { memory = null, keep = null }, trace, from = null) {
    const { layers, kinds } = this.about.stacks[stack];
    const causal = stack === "decoder";
    for (let layer = from?.stack === stack ? from.layer : 0; layer < layers; layer++) {
      const name = `${stack}.layers.${layer}`;
      for (const kind of kinds) {
        const cross = kind === "cross_attention";
        const how = { causal: causal && !cross, keep: cross || !causal ? keep : null, rotary: !cross && this.settings.positions === "rotary" };
        x = this.residual(`${name}.${kind.replace("_attention", "")}_residual`, x, (y) => attend(this, `${name}.${kind}`, y, cross ? memory : y, how, trace), trace);
      }
      x = this.residual(`${name}.feed_forward_residual`, x, (y) => this.feedForward(`${name}.feed_forward`, y, trace), trace);
    }
    return trace.see(stack, "states", "position width", [x.length / this.settings.width, this.settings.width], this.lastNorm(stack, x));
  }

  /** Post-norm: norm(x + f(x)). Pre-norm: x + f(norm(x)). */
  residual(place, x, sublayer, trace) {
    const shape = [x.length / this.settings.width, this.settings.width];
    const see = (name, data) => trace.see(place, name, "position width", shape, data);
    if (this.pre) return see("sum", sum(x, sublayer(see("norm", this.norm(`${place}.norm`, x)))));
    return see("norm", this.norm(`${place}.norm`, see("sum", sum(x, sublayer(x)))));
  }

  feedForward(place, x, trace) {
    const { width, hidden, activation } = this.settings;
    const rows = x.length / width;
    const see = (name, data) => trace.see(place, name, "position hidden", [rows, hidden], data);
    const rise = see("rise", this.linear(`${place}.rise`, x));
    const gate = activation === "swiglu" ? see("gate", this.linear(`${place}.gate`, x)) : null;
    const active = see("active", this.activate(rise, gate));
    return trace.see(place, "output", "position width", [rows, width], this.linear(`${place}.fall`, active));
  }

  /** The activation of each number; with a gate, the activation of the gate times the number. */
  activate(rise, gate = null) {
    const activation = ACTIVATIONS[this.settings.activation];
    return gate ? rise.map((x, i) => Math.fround(activation(gate[i])) * x) : rise.map(activation);
  }

  /** What an encoder computes from its states: logits of tokens or labels, or the vector of the text. */
  answers(states, inputs, length, trace) {
    const { width } = this.settings;
    const rows = (x, size) => Float32Array.from({ length: inputs.rows.length * size }, (_, i) => x[inputs.rows[Math.floor(i / size)] * size + (i % size)]);
    if (this.task === "fill") {
      const size = this.weight(this.about.output.weight).shape[0];
      return rows(trace.see("fill", "logits", "position token", [length, size], this.fill(states)), size);
    }
    if (this.task === "embed") {
      const vector = this.pooling.pooling === "mean" ? meanState(states, inputs.keep, width) : states.subarray(0, width);
      const norm = Math.max(1e-12, Math.sqrt(vector.reduce((total, x) => total + x * x, 0)));
      trace.see("", "vector", "width", [width], this.pooling.normalize ? vector.map((x) => x / norm) : vector);
      return null;
    }
    const words = this.about.carrier === "word";
    const size = this.about.labels.length;
    const logits = this.linear("label", words ? states : this.judge(states, inputs.keep));
    trace.see("label", "logits", words ? "position label" : "label", words ? [length, size] : [size], logits);
    return words ? rows(logits, size) : logits;
  }

  /** States [T, D] -> logits [T, V] of the hidden tokens. */
  fill(states) {
    const { weight, bias } = this.about.output;
    return linear(this.norm("fill.norm", this.linear("fill.dense", states).map(ACTIVATIONS[this.settings.activation])), this.weight(weight), bias && this.weight(bias));
  }

  /** States [T, D] -> one vector [D] of the whole text. */
  judge(states, keep) {
    const { pooler, width } = this.settings;
    if (pooler === "mean") return meanState(states, keep, width);
    const first = states.subarray(0, width);
    return pooler === "none" ? first : this.linear("pooler.dense", first).map(pooler === "tanh" ? Math.tanh : ACTIVATIONS.relu);
  }
}

/** The mean of the states of the tokens that are not hidden. */
function meanState(states, keep, width) {
  const rows = Array.from({ length: states.length / width }, (_, t) => t).filter((t) => !keep || keep[t]);
  return Float32Array.from({ length: width }, (_, i) => rows.reduce((total, t) => total + states[t * width + i], 0) / rows.length);
}

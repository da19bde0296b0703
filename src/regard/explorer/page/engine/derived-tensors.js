/** Derives further tensors from a pass: entropies, value-weighted attention, the residual stream and the logit lens. */

import { largest, linear } from "./arithmetic.js";
import { attribute } from "./attribution.js";
import { contributions } from "./attention.js";
import { BEST } from "./pass.js";

/** Everything that can be derived from a pass, by name: {shape, axes, kind, compute}. */
export function derive(pass) {
  const { network, inputs } = pass;
  const derived = new Map();
  const later = []; // tensors that come after those of all stacks
  const add = (name, axes, shape, compute, kind = "f32") => derived.set(name, { axes, shape, kind, compute: once(compute) });
  for (const [stack, { kinds, layers, text }] of Object.entries(network.about.stacks)) {
    for (const site of network.attentions(stack)) {
      const { shape, axes } = pass.trace.seen.get(`${site}.weights`);
      add(`${site}.entropy`, axes.slice(0, 2), shape.slice(0, 2), () => entropies(pass.trace.data(`${site}.weights`), shape[2]));
      add(`${site}.value_weighted`, axes, shape, () => valueWeighted(pass, site, shape));
    }
    const points = Object.values(network.points(stack));
    const shape = [points.length, inputs.tokens[text].length];
    const axes = ["point", `position:${text}`];
    add(`${stack}.residual.norms`, axes, shape, () => perRow(pass, points, (stream, at, width) => Math.sqrt(product(stream, stream, at, width))));
    add(`${stack}.residual.cosines`, axes, shape, () => cosines(pass, points));
    if (hasLens(network, stack)) {
      const best = [...shape, Math.min(BEST, pass.lexicon.size)];
      const read = once(() => lens(pass, stack, points, best));
      add(`${stack}.lens.ids`, [...axes, "rank"], best, () => read().ids, "i32");
      add(`${stack}.lens.probabilities`, [...axes, "rank"], best, () => read().probabilities);
      add(`${stack}.lens.rank`, axes, shape, () => read().ranks, "i32");
    }
    if (stack !== "decoder") continue;
    const parts = once(() => attribute(pass, stack));
    const sizes = { heads: { kind: kinds.length, layer: layers, head: network.settings.heads }, feed_forward: { layer: layers }, rest: { part: 2 }, logit: {} };
    for (const [name, own] of Object.entries(sizes)) later.push([`attribution.${name}`, [...Object.keys(own), axes[1]], [...Object.values(own), shape[1]], () => parts()[name]]);
  }
  for (const each of later) add(...each);
  return derived;
}

function once(make) {
  let made = null;
  return () => (made ??= make());
}

/** Weights [H, T, S] -> [H, T] entropies in nats. */
function entropies(weights, columns) {
  const result = new Float32Array(weights.length / columns);
  for (let row = 0; row < result.length; row++) {
    let total = 0;
    for (let i = row * columns; i < (row + 1) * columns; i++) if (weights[i] > 0) total -= weights[i] * Math.log(weights[i]);
    result[row] = total;
  }
  return result;
}

/** Each weight times the norm of what its value adds to the output (Kobayashi et al., 2020). */
function valueWeighted(pass, site, [heads, rows, columns]) {
  const { data, shape: [groups, , width] } = pass.trace.tensor(`${site}.value`);
  const output = pass.network.weight(`${site}.output.weight`);
  const wide = output.shape[0];
  const values = new Float32Array(heads * columns * width);
  for (let h = 0; h < heads; h++) values.set(data.subarray(Math.floor(h / (heads / groups)) * columns * width).subarray(0, columns * width), h * columns * width);
  const given = contributions(values, output, heads); // [H, S, D]
  const lengths = Float32Array.from({ length: heads * columns }, (_, i) => Math.sqrt(product(given, given, i * wide, wide)));
  return pass.trace.data(`${site}.weights`).map((weight, i) => weight * lengths[Math.floor(i / columns / rows) * columns + (i % columns)]);
}

const product = (a, b, at, count) => {
  let total = 0;
  for (let i = at; i < at + count; i++) total += a[i] * b[i];
  return total;
};

/** A number for each row of the residual stream at each point. */
function perRow(pass, points, measure) {
  const { width } = pass.network.settings;
  return Float32Array.from(points.flatMap((name, point) => {
    const stream = pass.trace.data(name);
    return Array.from({ length: stream.length / width }, (_, t) => measure(stream, t * width, width, point));
  }));
}

/** The cosine of each token's vector with the one before it in the stream; 1 at the first point. */
function cosines(pass, points) {
  return perRow(pass, points, (stream, at, width, point) => {
    if (!point) return 1;
    const before = pass.trace.data(points[point - 1]);
    const lengths = Math.max(1e-8, Math.sqrt(product(stream, stream, at, width))) * Math.max(1e-8, Math.sqrt(product(before, before, at, width)));
    return product(stream, before, at, width) / lengths;
  });
}

/** Whether the output layer can read the states of a stack as tokens. */
function hasLens(network, stack) {
  if (network.twoTexts) return stack === "decoder" || network.about.output.weight === network.about.tables.source;
  return stack === "decoder" || network.task === "fill";
}

/** Reads the residual stream after each point as if it were the last: the logit lens (nostalgebraist, 2020). */
function lens(pass, stack, points, [, rows, count]) {
  const { network } = pass;
  const { output } = network.about;
  const read = (x) => (network.task === "fill" ? network.fill(x) : linear(x, network.weight(output.weight), output.bias && network.weight(output.bias)));
  const wanted = chosenTokens(pass, network.about.stacks[stack].text);
  const size = points.length * rows;
  const result = { ids: new Int32Array(size * count), probabilities: new Float32Array(size * count), ranks: new Int32Array(size) };
  points.forEach((name, point) => {
    const logits = read(network.lastNorm(stack, pass.trace.data(name)));
    const vocabulary = logits.length / rows;
    const scores = pass.scores(logits, vocabulary);
    for (let t = 0; t < rows; t++) {
      const [start, at] = [t * vocabulary, point * rows + t];
      largest(scores, count, start, start + vocabulary).forEach((place, rank) => {
        result.ids[at * count + rank] = place - start;
        result.probabilities[at * count + rank] = Math.exp(scores[place]);
      });
      for (let i = start; i < start + vocabulary; i++) if (scores[i] > scores[start + wanted[t]]) result.ranks[at]++;
    }
  });
  return result;
}

/** The token chosen at each position of a text, or the text's own token where none was chosen. */
function chosenTokens({ inputs, network, chosen }, text) {
  const tokens = [...inputs.tokens[text]];
  if (text === network.written) inputs.rows.forEach((row, i) => (tokens[row] = chosen[i]));
  return tokens;
}

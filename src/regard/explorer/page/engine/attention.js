/** Multi-head attention, step by step: each step is recorded. */

import { dotAt, joinHeads, linear, softmaxRows, splitHeads } from "./arithmetic.js";
import { rotate } from "./positions.js";

/**
 * Positions of x [T, D] look at positions of memory [S, D] -> [T, D].
 * `how` says who may look at whom: {causal, keep, rotary}; keep is false for hidden positions of memory.
 */
export function attend(network, place, x, memory, { causal, keep, rotary }, trace) {
  const { heads, query_groups: groups, head_width: width, head_value_width: valueWidth, rotary_base: base, width: wide } = network.settings;
  const [rows, columns] = [x.length / wide, memory.length / wide];
  const see = (name, axes, shape, data) => trace.see(place, name, axes, shape, data);
  let query = splitHeads(network.linear(`${place}.query`, x), { count: heads, width });
  let key = splitHeads(network.linear(`${place}.key`, memory), { count: groups, width });
  if (rotary) [query, key] = [rotate(query, heads, width, base, 0), rotate(key, groups, width, base, 0)];
  query = see("query", "head query key_width", [heads, rows, width], query);
  key = see("key", "group key key_width", [groups, columns, width], key);
  const value = see("value", "group key value_width", [groups, columns, valueWidth], splitHeads(network.linear(`${place}.value`, memory), { count: groups, width: valueWidth }));

  const step = (name, data) => see(name, "head query key", [heads, rows, columns], data);
  const group = (head) => Math.floor(head / (heads / groups));
  const scores = step("scores", products(query, key, { heads, rows, columns, width, group }));
  const scaled = step("scaled", scores.map((score) => score / Math.sqrt(width)));
  const masked = step("masked", mask(scaled, { rows, columns, causal, keep }));
  const weights = step("weights", softmaxRows(masked, columns));
  const context = see("context", "head query value_width", [heads, rows, valueWidth], weighted(weights, value, { heads, rows, columns, valueWidth, group }));
  const output = network.weight(`${place}.output.weight`);
  trace.later(place, "contributions", "head query width", [heads, rows, wide], () => contributions(context, output, heads));
  return see("output", "query width", [rows, wide], linear(joinHeads(context, { count: heads, width: valueWidth }), output, network.weight(`${place}.output.bias`)));
}

/** query keyᵀ: [H, T, S]. */
function products(query, key, { heads, rows, columns, width, group }) {
  const scores = new Float32Array(heads * rows * columns);
  for (let h = 0, at = 0; h < heads; h++)
    for (let t = 0; t < rows; t++)
      for (let s = 0; s < columns; s++) scores[at++] = dotAt(query, (h * rows + t) * width, key, (group(h) * columns + s) * width, width);
  return scores;
}

/** Scores [H, T, S] with -Infinity where a position must not look; if it may look nowhere, nothing is masked. */
function mask(scaled, { rows, columns, causal, keep }) {
  const hides = keep?.some(Boolean) ? keep : null;
  if (!causal && !hides) return scaled.slice();
  return scaled.map((score, i) => {
    const [t, s] = [Math.floor(i / columns) % rows, i % columns];
    return (causal && s > t) || (hides && !hides[s]) ? -Infinity : score;
  });
}

/** weights value: [H, T, K]. */
function weighted(weights, value, { heads, rows, columns, valueWidth, group }) {
  const context = new Float32Array(heads * rows * valueWidth);
  const total = new Float64Array(valueWidth);
  for (let h = 0; h < heads; h++)
    for (let t = 0; t < rows; t++) {
      total.fill(0);
      for (let s = 0; s < columns; s++) {
        const share = weights[(h * rows + t) * columns + s];
        const at = (group(h) * columns + s) * valueWidth;
        for (let i = 0; i < valueWidth; i++) total[i] += share * value[at + i];
      }
      context.set(total, (h * rows + t) * valueWidth);
    }
  return context;
}

/** [H, T, K] -> [H, T, D]: what each head adds to the output. */
export function contributions(context, output, heads) {
  const [wide, inner] = output.shape;
  const width = inner / heads;
  const rows = context.length / heads / width;
  const result = new Float32Array(heads * rows * wide);
  for (let h = 0; h < heads; h++)
    for (let t = 0; t < rows; t++)
      for (let o = 0; o < wide; o++) result[(h * rows + t) * wide + o] = dotAt(context, (h * rows + t) * width, output.data, o * inner + h * width, width);
  return result;
}

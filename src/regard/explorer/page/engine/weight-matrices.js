/** Returns the parameters of a model by name, whole or in slices, and the QK and OV circuits of its heads. */

import { columnProducts, eigen } from "./eigenvalues.js";
import { InputError, MissingError, quoted, TooBigError } from "./errors.js";

/** Number of bars in a histogram, and of singular values that are shown. */
const [BARS, SINGULAR] = [40, 64];

/** A parameter, or a circuit such as `decoder.layers.0.cross_attention.1.qk`: {shape, data}. */
export function weight(network, name) {
  const known = network.weight(name);
  if (known) return known;
  const [, site, head, kind] = /^(.+)\.(\d+)\.(qk|ov)$/.exec(name) ?? [];
  const sites = Object.keys(network.about.stacks).flatMap((stack) => network.attentions(stack));
  if (sites.includes(site) && Number(head) < network.settings.heads) return circuit(network, site, Number(head), kind);
  throw new MissingError(`name: this model has no weight ${quoted(name)}; /api/model lists all weights`);
}

/**
 * A circuit [D, D] of one head (Elhage et al., 2021), without biases and rotary positions.
 * QK: the unscaled score of a query token and a key token. OV: what the head reads and writes.
 */
function circuit(network, site, head, kind) {
  const { heads, query_groups: groups, head_width: keyWidth, head_value_width: valueWidth, width } = network.settings;
  const group = Math.floor(head / (heads / groups));
  const part = (name, number, rows) => network.weight(`${site}.${name}.weight`).data.subarray(number * rows * width, (number + 1) * rows * width);
  if (kind === "qk") return { shape: [width, width], data: transposedProduct(part("query", head, keyWidth), part("key", group, keyWidth), keyWidth, width) };
  const output = network.weight(`${site}.output.weight`);
  const columns = Float32Array.from({ length: valueWidth * width }, (_, i) => output.at(i % width, head * valueWidth + Math.floor(i / width)));
  return { shape: [width, width], data: transposedProduct(part("value", group, valueWidth), columns, valueWidth, width) };
}

/** a [K, D] and b [K, D] -> aᵀ b [D, D]. */
function transposedProduct(a, b, rows, width) {
  const result = new Float64Array(width * width);
  for (let k = 0; k < rows; k++) for (let i = 0; i < width; i++) for (let j = 0; j < width; j++) result[i * width + j] += a[k * width + i] * b[k * width + j];
  return Float32Array.from(result);
}

/** The rows `a:b` and columns `a:b` of a weight, or all of them. */
export function weightSlice(network, name, rows, columns, limits) {
  const { shape, data } = weight(network, name);
  if (columns && shape.length < 2) throw new InputError(`columns: ${name} has only one axis; leave columns out`);
  const [start, end] = readSlice(rows || ":", shape[0], "rows");
  const width = shape[1] ?? 1;
  const [left, right] = columns ? readSlice(columns, width, "columns") : [0, width];
  const size = [end - start, ...(shape.length > 1 ? [right - left] : [])];
  const count = (end - start) * (right - left);
  if (count > limits.weights) throw new TooBigError(`${name} has ${count.toLocaleString("en")} numbers, more than ${limits.weights.toLocaleString("en")}: request some of its rows and columns, as in rows=0:100`);
  const part = new Float32Array(count);
  for (let row = start; row < end; row++) part.set(data.subarray(row * width + left, row * width + right), (row - start) * (right - left));
  return { shape: size, axes: [], data: part };
}

/** Reads a slice `a:b` of an axis of this size; `a` and `b` are optional. */
function readSlice(text, size, field) {
  const bounds = /^(\d{0,12}):(\d{0,12})$/.exec(text);
  if (!bounds) throw new InputError(`${field}: must be two numbers with a colon between them, such as 0:${size}`);
  const [start, end] = [Number(bounds[1] || 0), Number(bounds[2] || size)];
  if (!(start <= end && end <= size)) throw new InputError(`${field}: ${text} is outside the range 0:${size}`);
  return [start, end];
}

/** Summarizes a weight: its shape, mean, spread and histogram, and the largest singular values of a matrix. */
export function summarize(network, name) {
  const { shape, data } = weight(network, name);
  const mean = data.reduce((total, x) => total + x, 0) / data.length;
  const std = Math.sqrt(data.reduce((total, x) => total + (x - mean) ** 2, 0) / data.length);
  const [min, max] = data.reduce(([low, high], x) => [Math.min(low, x), Math.max(high, x)], [Infinity, -Infinity]);
  const [low, high] = max > min ? [min, max] : [min - 0.5, max + 0.5];
  const edges = Array.from({ length: BARS + 1 }, (_, i) => low + ((high - low) * i) / BARS);
  const counts = Array(BARS).fill(0);
  for (const x of data) counts[Math.min(BARS - 1, Math.floor(((x - low) / (high - low)) * BARS))]++;
  return { shape, mean, std, min, max, histogram: { edges, counts }, singular: shape.length === 2 ? singularValues(shape, data) : null };
}

function singularValues([rows, columns], data) {
  const flat = rows < columns ? Float32Array.from({ length: data.length }, (_, i) => data[(i % rows) * columns + Math.floor(i / rows)]) : data;
  const [long, short] = [Math.max(rows, columns), Math.min(rows, columns)];
  return eigen(columnProducts(flat, long, short), short).values.slice(0, SINGULAR).map((square) => Math.sqrt(Math.max(0, square)));
}

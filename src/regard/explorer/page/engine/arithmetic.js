/** Arithmetic on rows of numbers: they are stored in float32, as in PyTorch, and summed in float64. */

/** The dot product of `count` numbers of a, from place i on, and of b, from place j on. */
export function dotAt(a, i, b, j, count) {
  let first = 0;
  let second = 0;
  const even = count - (count % 2);
  for (let n = 0; n < even; n += 2) {
    first += a[i + n] * b[j + n];
    second += a[i + n + 1] * b[j + n + 1];
  }
  return even < count ? first + second + a[i + even] * b[j + even] : first + second;
}

/** x [T, A], weight [B, A] and bias [B] -> x weightᵀ + bias [T, B]. */
export function linear(x, weight, bias = null) {
  const [outputs, inputs] = weight.shape;
  const rows = x.length / inputs;
  const result = new Float32Array(rows * outputs);
  for (let o = 0; o < outputs; o++) {
    const shift = bias ? bias.data[o] : 0;
    for (let t = 0; t < rows; t++) result[t * outputs + o] = dotAt(x, t * inputs, weight.data, o * inputs, inputs) + shift;
  }
  return result;
}

/** LayerNorm, or RMSNorm without the mean, of rows x [T, D]. */
export function normalize(x, { weight, bias, kind, epsilon }) {
  const width = weight.data.length;
  const result = new Float32Array(x.length);
  for (let start = 0; start < x.length; start += width) {
    let mean = 0;
    if (kind === "layer") {
      for (let i = 0; i < width; i++) mean += x[start + i];
      mean /= width;
    }
    let squares = 0;
    for (let i = 0; i < width; i++) squares += (x[start + i] - mean) ** 2;
    const scale = 1 / Math.sqrt(squares / width + epsilon);
    for (let i = 0; i < width; i++) result[start + i] = (x[start + i] - mean) * scale * weight.data[i] + (bias ? bias.data[i] : 0);
  }
  return result;
}

/** The softmax of each row of `width` numbers; a row of -Infinity alone becomes NaN, as in PyTorch. */
export function softmaxRows(x, width) {
  const result = new Float32Array(x.length);
  const powers = new Float64Array(width);
  for (let start = 0; start < x.length; start += width) {
    let top = -Infinity;
    for (let i = 0; i < width; i++) top = Math.max(top, x[start + i]);
    let sum = 0;
    for (let i = 0; i < width; i++) sum += powers[i] = Math.exp(x[start + i] - top);
    for (let i = 0; i < width; i++) result[start + i] = powers[i] / sum;
  }
  return result;
}

/** The logarithm of the softmax of each row of `width` numbers. */
export function logSoftmaxRows(x, width) {
  const result = new Float32Array(x.length);
  for (let start = 0; start < x.length; start += width) {
    let top = -Infinity;
    for (let i = 0; i < width; i++) top = Math.max(top, x[start + i]);
    let sum = 0;
    for (let i = 0; i < width; i++) sum += Math.exp(x[start + i] - top);
    const shift = top + Math.log(sum);
    for (let i = 0; i < width; i++) result[start + i] = x[start + i] - shift;
  }
  return result;
}

/** The element-wise sum of two arrays. */
export function sum(a, b) {
  const result = new Float32Array(a.length);
  for (let i = 0; i < a.length; i++) result[i] = a[i] + b[i];
  return result;
}

/** [T, H * K] -> [H, T, K]. */
export function splitHeads(x, heads) {
  const result = new Float32Array(x.length);
  for (const [from, to, width] of headPlaces(x.length, heads.count, heads.width)) result.set(x.subarray(from, from + width), to);
  return result;
}

/** [H, T, K] -> [T, H * K]. */
export function joinHeads(x, heads) {
  const result = new Float32Array(x.length);
  for (const [to, from, width] of headPlaces(x.length, heads.count, heads.width)) result.set(x.subarray(from, from + width), to);
  return result;
}

/** The place of each head of each row in [T, H * K] and in [H, T, K]. */
function* headPlaces(length, count, width) {
  const rows = length / (count * width);
  for (let t = 0; t < rows; t++) for (let h = 0; h < count; h++) yield [(t * count + h) * width, (h * rows + t) * width, width];
}

/** The places of the `count` largest of numbers, the largest first; of equal ones the first. */
export function largest(numbers, count, from = 0, to = numbers.length) {
  const places = [];
  for (let i = from; i < to; i++) {
    if (places.length === count && !(numbers[i] > numbers[places[count - 1]])) continue;
    let at = places.length;
    while (at > 0 && numbers[i] > numbers[places[at - 1]]) at--;
    places.splice(at, 0, i);
    if (places.length > count) places.pop();
  }
  return places;
}

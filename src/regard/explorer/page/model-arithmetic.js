/** Computes the parts of the model again in a few lines, with which the page checks every card against PyTorch. */
export function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

/** weight [out, in] times x, plus bias. */
export const linear = (weight, x, bias) => Float64Array.from({ length: weight.shape[0] }, (_, i) => dot(weight.row(i), x) + (bias ? bias[i] : 0));
export const add = (a, b) => Float64Array.from(a, (x, i) => x + b[i]);
export const scale = (a, factor) => Float64Array.from(a, (x) => x * factor);
export function softmax(scores) {
  const top = Math.max(...Array.from(scores));
  const exps = Float64Array.from(scores, (x) => Math.exp(x - top));
  const sum = exps.reduce((a, b) => a + b, 0);
  return exps.map((x) => x / sum);
}
export const mean = (x) => Array.from(x).reduce((a, b) => a + b, 0) / x.length;
/** The mean of squared distances from the mean; of RMSNorm, from zero. */
export function variance(x, kind) {
  const middle = kind === "rms" ? 0 : mean(x);
  return mean(Array.from(x, (v) => (v - middle) ** 2));
}

/** LayerNorm or RMSNorm. */
export function norm(x, gain, shift, epsilon, kind) {
  const middle = kind === "rms" ? 0 : mean(x);
  const spread = Math.sqrt(variance(x, kind) + epsilon);
  return Float64Array.from(x, (v, i) => ((v - middle) / spread) * gain[i] + (shift ? shift[i] : 0));
}

/** Abramowitz & Stegun 7.1.26 is too coarse; this series and continued fraction is exact to 1e-12. */
function erf(x) {
  const z = Math.abs(x);
  if (z > 6) return Math.sign(x);
  if (z < 2.5) {
    let term = z;
    let sum = z;
    for (let n = 1; n < 60; n++) {
      term *= (-z * z) / n;
      sum += term / (2 * n + 1);
    }
    return (Math.sign(x) * 2 * sum) / Math.sqrt(Math.PI);
  }
  let fraction = 0;
  for (let n = 60; n > 0; n--) fraction = n / 2 / (z + fraction);
  return Math.sign(x) * (1 - Math.exp(-z * z) / ((z + fraction) * Math.sqrt(Math.PI)));
}

const silu = (x) => x / (1 + Math.exp(-x));

/** The nonlinearities of the feed-forward layer, by their names in the settings. */
export const ACTIVATIONS = {
  relu: (x) => Math.max(0, x),
  gelu: (x) => (x * (1 + erf(x / Math.SQRT2))) / 2,
  "gelu-tanh": (x) => (x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)))) / 2,
  silu,
  swiglu: silu,
};

/** A query or key turned by its position: number i goes with number i + K / 2. */
export function rotate(x, position, base) {
  const half = x.length / 2;
  const result = new Float64Array(x.length);
  for (let i = 0; i < half; i++) {
    const angle = position * base ** ((-2 * i) / x.length);
    result[i] = x[i] * Math.cos(angle) - x[i + half] * Math.sin(angle);
    result[i + half] = x[i + half] * Math.cos(angle) + x[i] * Math.sin(angle);
  }
  return result;
}

/** Nats. */
export const entropy = (p) => Array.from(p).reduce((sum, x) => sum - (x > 0 ? x * Math.log(x) : 0), 0);
export const length = (x) => Math.sqrt(dot(x, x));
export const cosine = (a, b) => dot(a, b) / (length(a) * length(b) || 1);

/** The largest distance between what the page computed and what PyTorch gave. */
export function maxDelta(a, b) {
  let worst = a.length === b.length ? 0 : Infinity;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) worst = Math.max(worst, Number.isNaN(a[i] - b[i]) ? Infinity : Math.abs(a[i] - b[i]));
  return worst;
}

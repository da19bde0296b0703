/** Reads tensors from safetensors: numbers with a shape and the meaning of each axis. */

export class Tensor {
  constructor(name, shape, axes, data) {
    this.name = name;
    this.shape = shape;
    this.axes = axes;
    this.data = data;
    this.half = false; // it came in 16 bits
    this.signed = false; // a difference: zero is the middle of its colours
  }

  /** The number at this place. */
  at(...index) {
    return this.data[this.offset(index)];
  }

  /** What lies at this place along the first axes: numbers, not copied. */
  row(...index) {
    const size = this.shape.slice(index.length).reduce((a, b) => a * b, 1);
    const start = this.offset(index);
    return this.data.subarray(start, start + size);
  }

  /** The same as a tensor of the remaining axes. */
  sub(...index) {
    const part = new Tensor(this.name, this.shape.slice(index.length), this.axes.slice(index.length), this.row(...index));
    part.signed = this.signed;
    return part;
  }
  offset(index) {
    let place = 0;
    for (let axis = 0; axis < this.shape.length; axis++) place = place * this.shape[axis] + (index[axis] ?? 0);
    return place;
  }

  /** This minus another of the same shape. */
  minus(other) {
    if (String(this.shape) !== String(other.shape)) throw new Error("shapes");
    const noise = 1e-6 * this.data.reduce((most, x) => (Number.isFinite(x) ? Math.max(most, Math.abs(x)) : most), 0); // of rounding
    const data = Float32Array.from(this.data, (x, i) => (x === other.data[i] || Math.abs(x - other.data[i]) <= noise ? 0 : x - other.data[i]));
    const result = new Tensor(this.name, this.shape, this.axes, data);
    result.signed = true;
    return result;
  }
}

/**
 * The tensors of a safetensors file: a length, a JSON header, then the numbers.
 * @param {ArrayBuffer} buffer @returns {Map<string, Tensor>}
 */
export function readSafetensors(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const notes = header.__metadata__ ?? {};
  const found = new Map();
  for (const [name, entry] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const [start, end] = entry.data_offsets.map((o) => o + 8 + length);
    const bytes = buffer.slice(start, end); // a copy is aligned
    const data = entry.dtype === "F16" ? halves(new Uint16Array(bytes)) : entry.dtype === "I32" ? new Int32Array(bytes) : new Float32Array(bytes);
    const tensor = new Tensor(name, entry.shape, (notes[`axes.${name}`] ?? "").split(" ").filter(Boolean), data);
    tensor.half = entry.dtype === "F16";
    found.set(name, tensor);
  }
  return found;
}

/** Float16 to float32. */
function halves(bits) {
  return Float32Array.from(bits, (b) => {
    const sign = b & 0x8000 ? -1 : 1;
    const exponent = (b >> 10) & 31;
    const fraction = b & 1023;
    if (exponent === 0) return sign * fraction * 2 ** -24;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
  });
}
export function fromBase64(text) {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
}

/** Writes tensors as safetensors, with the names of their axes in the metadata. */

/** @param {[string, {shape: number[], axes: string[], data: Float32Array | Int32Array}][]} tensors @returns {ArrayBuffer} */
export function writeSafetensors(tensors) {
  const header = {};
  const axes = tensors.filter(([, tensor]) => tensor.axes.length).map(([name, tensor]) => [`axes.${name}`, tensor.axes.join(" ")]);
  if (axes.length) header.__metadata__ = Object.fromEntries(axes);
  let size = 0;
  for (const [name, { shape, data }] of tensors) header[name] = { dtype: data instanceof Int32Array ? "I32" : "F32", shape, data_offsets: [size, (size += 4 * data.length)] };
  const text = JSON.stringify(header);
  const bytes = new TextEncoder().encode(text);
  const start = 8 + bytes.length + ((8 - (bytes.length % 8)) % 8); // aligns the numbers in memory
  const result = new Uint8Array(start + size).fill(0x20, 8, start);
  new DataView(result.buffer).setBigUint64(0, BigInt(start - 8), true);
  result.set(bytes, 8);
  for (const [name, { data }] of tensors) result.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), start + header[name].data_offsets[0]);
  return result.buffer;
}

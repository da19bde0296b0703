/** Position encodings: rows that are added to the embeddings, or rotations of queries and keys. */

/** The rows [N, D] from position `start` on, or null for a model that adds none. */
export function positionRows(network, place, start, count) {
  const { positions, width } = network.settings;
  if (positions === "learned") return network.weight(`${place}.positions.table`).data.slice(start * width, (start + count) * width);
  if (!positions.startsWith("sinusoidal")) return null;
  const rows = new Float32Array(count * width);
  const halves = positions === "sinusoidal-halves";
  for (let p = 0; p < count; p++)
    for (let i = 0; i < width / 2; i++) {
      const angle = (start + p) / 10_000 ** ((2 * i) / width);
      rows[p * width + (halves ? i : 2 * i)] = Math.sin(angle);
      rows[p * width + (halves ? width / 2 + i : 2 * i + 1)] = Math.cos(angle);
    }
  return rows;
}

/** Rotates queries or keys [H, T, K], the first at position `start`: number i is paired with number i + K / 2. */
export function rotate(x, heads, width, base, start, direction = 1) {
  const result = new Float32Array(x.length);
  const half = width / 2;
  const rows = x.length / heads / width;
  for (let i = 0; i < half; i++) {
    const speed = Math.fround(base ** -Math.fround((2 * i) / width));
    for (let t = 0; t < rows; t++) {
      const angle = Math.fround((start + t) * speed);
      const cos = Math.fround(Math.cos(angle));
      const sin = direction * Math.fround(Math.sin(angle));
      for (let h = 0; h < heads; h++) {
        const at = (h * rows + t) * width + i;
        result[at] = x[at] * cos - x[at + half] * sin;
        result[at + half] = x[at + half] * cos + x[at] * sin;
      }
    }
  }
  return result;
}

/** Eigenvalues and eigenvectors of symmetric matrices: Householder's tridiagonal form, then implicit QL steps. */

/** The eigenvalues of a symmetric matrix [N, N], largest first, and its eigenvectors as rows in the same order. */
export function eigen(matrix, size) {
  const vectors = Float64Array.from(matrix);
  const { diagonal, beside } = tridiagonal(vectors, size);
  iterate(diagonal, beside, vectors, size);
  const order = Array.from(diagonal.keys()).sort((a, b) => diagonal[b] - diagonal[a]);
  return { values: order.map((i) => diagonal[i]), vectors: order.map((i) => Float64Array.from({ length: size }, (_, row) => vectors[row * size + i])) };
}

/** The products of all pairs of columns of x [N, D]: xᵀ x [D, D]. */
export function columnProducts(x, rows, columns) {
  const result = new Float64Array(columns * columns);
  for (let row = 0; row < rows; row++)
    for (let i = 0; i < columns; i++) {
      const value = x[row * columns + i];
      if (value) for (let j = 0; j <= i; j++) result[i * columns + j] += value * x[row * columns + j];
    }
  for (let i = 0; i < columns; i++) for (let j = 0; j < i; j++) result[j * columns + i] = result[i * columns + j];
  return result;
}

/** Replaces a symmetric matrix by the rotation that makes it tridiagonal; returns the two diagonals. */
function tridiagonal(a, n) {
  const [diagonal, beside] = [new Float64Array(n), new Float64Array(n)];
  for (let i = n - 1; i > 0; i--) {
    let norm = 0;
    let scale = 0;
    for (let k = 0; k < i; k++) scale += Math.abs(a[i * n + k]);
    if (i === 1 || scale === 0) beside[i] = a[i * n + i - 1];
    else {
      for (let k = 0; k < i; k++) {
        a[i * n + k] /= scale;
        norm += a[i * n + k] ** 2;
      }
      const last = a[i * n + i - 1];
      const root = last >= 0 ? -Math.sqrt(norm) : Math.sqrt(norm);
      beside[i] = scale * root;
      norm -= last * root;
      a[i * n + i - 1] = last - root;
      let along = 0;
      for (let j = 0; j < i; j++) {
        a[j * n + i] = a[i * n + j] / norm;
        let total = 0;
        for (let k = 0; k <= j; k++) total += a[j * n + k] * a[i * n + k];
        for (let k = j + 1; k < i; k++) total += a[k * n + j] * a[i * n + k];
        beside[j] = total / norm;
        along += beside[j] * a[i * n + j];
      }
      const half = along / (2 * norm);
      for (let j = 0; j < i; j++) {
        const value = a[i * n + j];
        const rest = (beside[j] -= half * value);
        for (let k = 0; k <= j; k++) a[j * n + k] -= value * beside[k] + rest * a[i * n + k];
      }
    }
    diagonal[i] = norm;
  }
  for (let i = 0; i < n; i++) {
    if (diagonal[i])
      for (let j = 0; j < i; j++) {
        let total = 0;
        for (let k = 0; k < i; k++) total += a[i * n + k] * a[k * n + j];
        for (let k = 0; k < i; k++) a[k * n + j] -= total * a[k * n + i];
      }
    diagonal[i] = a[i * n + i];
    a[i * n + i] = 1;
    for (let j = 0; j < i; j++) a[j * n + i] = a[i * n + j] = 0;
  }
  return { diagonal, beside };
}

/** Rotates until the matrix is diagonal, and the vectors with it. */
function iterate(d, e, vectors, n) {
  for (let i = 1; i < n; i++) e[i - 1] = e[i];
  e[n - 1] = 0;
  for (let low = 0; low < n; low++)
    for (let round = 0; round < 60; round++) {
      let high = low;
      while (high < n - 1 && Math.abs(e[high]) > Number.EPSILON * (Math.abs(d[high]) + Math.abs(d[high + 1]))) high++;
      if (high === low) break;
      let g = (d[low + 1] - d[low]) / (2 * e[low]);
      g = d[high] - d[low] + e[low] / (g + (g >= 0 ? 1 : -1) * Math.hypot(g, 1));
      let [s, c, shift] = [1, 1, 0];
      let i = high - 1;
      for (; i >= low; i--) {
        const f = s * e[i];
        const b = c * e[i];
        const r = Math.hypot(f, g);
        e[i + 1] = r;
        if (r === 0) {
          d[i + 1] -= shift;
          e[high] = 0;
          break;
        }
        [s, c] = [f / r, g / r];
        g = d[i + 1] - shift;
        const turn = (d[i] - g) * s + 2 * c * b;
        shift = s * turn;
        d[i + 1] = g + shift;
        g = c * turn - b;
        for (let k = 0; k < n; k++) {
          const at = k * n + i;
          const value = vectors[at + 1];
          vectors[at + 1] = s * vectors[at] + c * value;
          vectors[at] = c * vectors[at] - s * value;
        }
      }
      if (i >= low) continue;
      d[low] -= shift;
      e[low] = g;
      e[high] = 0;
    }
}

/** Splits the logit of each chosen token into the contributions of heads, feed-forward layers, embedding and biases. */

/**
 * The contributions of the parts of a decoder to the logit of the chosen token at each of T positions. With the mean
 * and deviation of each norm fixed at their values in this run, the logit is exactly the sum of its parts.
 */
export function attribute(pass, stack) {
  const { network, trace, chosen } = pass;
  const { layers, kinds } = network.about.stacks[stack];
  const { width, heads } = network.settings;
  const points = Object.values(network.points(stack));
  const embedding = Float64Array.from(trace.data(points[0]));
  let parts = [embedding, new Float64Array(embedding.length)]; // the second collects the biases
  for (let layer = 0; layer < layers; layer++)
    for (const kind of [...kinds, "feed_forward"]) {
      const site = `${stack}.layers.${layer}.${kind}`;
      const own = sublayerParts(pass, site, parts[1]);
      parts.push(...own);
      const residual = `${site.replace(/_attention$/, "")}_residual`;
      if (!network.pre) throughNorm(network.normOf(`${residual}.norm`), trace.data(`${residual}.sum`), parts, width);
    }
  if (network.pre) throughNorm(network.normOf(`${stack}.norm`), trace.data(points.at(-1)), parts, width);
  const { output } = network.about;
  const table = network.weight(output.weight);
  const bias = output.bias && network.weight(output.bias).data;
  const shares = parts.map((part, p) => Float64Array.from(chosen, (token, t) => {
    const row = table.row(token);
    let total = p === 1 && bias ? bias[token] : 0;
    for (let i = 0; i < width; i++) total += part[t * width + i] * row[i];
    return total;
  }));
  const perLayer = kinds.length * heads + 1;
  const layerShares = (layer) => shares.slice(2 + layer * perLayer, 2 + (layer + 1) * perLayer);
  const all = Array.from({ length: layers }, (_, layer) => layerShares(layer));
  return {
    heads: flat(kinds.flatMap((_, kind) => all.flatMap((layer) => layer.slice(kind * heads, (kind + 1) * heads)))), // [kind, layer, head, T]
    feed_forward: flat(all.map((layer) => layer.at(-1))), // [layer, T]
    rest: flat(shares.slice(0, 2)), // [2, T]: the embedding; all biases
    logit: Float32Array.from(chosen, (token, t) => pass.answers[t * pass.size + token]),
  };
}

const flat = (rows) => Float32Array.from(rows.flatMap((row) => [...row]));

/** What a sublayer adds: each head's part, or the whole output; the bias is added to `biases`. */
function sublayerParts({ network, trace, edits }, site, biases) {
  const output = trace.data(`${site}.output`);
  if (site.endsWith("feed_forward")) return [Float64Array.from(output)];
  const contributions = trace.data(`${site}.contributions`);
  const size = output.length;
  const dropped = edits.has(`${site}.output`); // nothing of the heads is added
  const heads = Array.from({ length: network.settings.heads }, (_, h) => (dropped ? new Float64Array(size) : Float64Array.from(contributions.subarray(h * size, (h + 1) * size))));
  for (let i = 0; i < size; i++) biases[i] += heads.reduce((rest, head) => rest - head[i], output[i]);
  return heads;
}

/** Takes the parts of x through a norm with the statistics of x; its bias is added to the second part. */
function throughNorm({ weight, bias, kind, epsilon }, x, parts, width) {
  for (let start = 0; start < x.length; start += width) {
    const mean = (values) => (kind === "layer" ? values.subarray(start, start + width).reduce((a, b) => a + b, 0) / width : 0);
    const middle = mean(x);
    let squares = 0;
    for (let i = start; i < start + width; i++) squares += (x[i] - middle) ** 2;
    const scale = 1 / Math.sqrt(squares / width + epsilon);
    parts.forEach((part, p) => {
      const own = mean(part);
      for (let i = 0; i < width; i++) part[start + i] = (part[start + i] - own) * scale * weight.data[i] + (p === 1 && bias ? bias.data[i] : 0);
    });
  }
}

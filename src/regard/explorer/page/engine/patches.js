/** Checks the patches of a run, and turns them into edits of the values that a pass records. */

import { InputError, quoted } from "./errors.js";
import { rotate } from "./positions.js";

const OF_HEAD = ["zero", "mean", "uniform", "force"];
const NEEDED = { force: ["head", "query", "key"], hide: ["position"] };

/** Refuses a patch that does not fit this model. */
export function checkPatches(patches, network) {
  patches.forEach((patch, i) => {
    const field = `patch ${i + 1}`;
    const ops = possibleOps(patch.site, network);
    if (!ops.length) throw new InputError(`${field}: this model has no site ${quoted(patch.site.slice(0, 80))}`);
    if (!ops.includes(patch.op)) throw new InputError(`${field}: ${patch.site} cannot be changed by op ${quoted(patch.op.slice(0, 40))}: use ${ops.join(", ")}`);
    const ofHead = patch.site.endsWith("_attention") && OF_HEAD.includes(patch.op);
    const needed = NEEDED[patch.op] ?? (ofHead ? ["head"] : []);
    for (const name of ["head", "query", "key", "position"]) {
      const given = patch[name] !== undefined && patch[name] !== null;
      if (given && !needed.includes(name)) throw new InputError(`${field}: ${patch.op} at ${patch.site} takes no ${name}`);
      if (!given && needed.includes(name)) throw new InputError(`${field}: ${name}: must be a whole number`);
    }
    requireBelow(network.settings.heads, patch.head, `${field}: head`);
  });
}

/** Refuses a patch of a token beyond its text; `lengths` are the lengths of the texts. */
export function checkPlaces(patches, network, lengths) {
  patches.forEach((patch, i) => {
    const field = `patch ${i + 1}`;
    if (patch.op === "hide") requireBelow(lengths[patch.site], patch.position, `${field}: position`);
    if (patch.op !== "force") return;
    const [stack] = patch.site.split(".");
    const { text } = network.about.stacks[stack];
    const cross = patch.site.endsWith("cross_attention");
    requireBelow(lengths[text], patch.query, `${field}: query`);
    requireBelow(stack === "decoder" && !cross ? patch.query + 1 : lengths[cross ? "source" : text], patch.key, `${field}: key`);
  });
  const hidden = hiddenPlaces(patches);
  if (hidden.size && hidden.size >= lengths[network.read]) throw new InputError("patch: all tokens are hidden; leave at least one visible");
}

function requireBelow(limit, number, field) {
  if (number !== undefined && number !== null && number >= limit) throw new InputError(`${field}: must be from 0 to ${limit - 1}, not ${number}`);
}

/** The positions of hidden tokens. */
export const hiddenPlaces = (patches) => new Set(patches.filter((patch) => patch.op === "hide").map((patch) => patch.position));

/** The operations that are possible at a site; none if the model does not have the site. */
function possibleOps(site, network) {
  const { positions } = network.settings;
  if (site === network.read) return ["hide"];
  if (!["rotary", "none"].includes(positions) && Object.values(network.about.embeddings).some((name) => site === `${name}.positions`)) return ["zero"];
  const [stack] = site.split(".");
  if (!Object.hasOwn(network.about.stacks, stack)) return [];
  if (network.attentions(stack).includes(site)) return [...OF_HEAD, "drop"];
  if (network.sublayers(stack).includes(site)) return ["drop"];
  return site === `${stack}.rotary` && positions === "rotary" ? ["zero"] : [];
}

/** The patches as edits, by the names of the values that they change; several edits of one value apply in turn. */
export function makeEdits(patches, network) {
  const edits = new Map();
  for (const patch of patches) for (const [name, edit] of editsOf(patch, network)) addEdit(edits, name, edit);
  return edits;
}

export function addEdit(edits, name, edit) {
  const first = edits.get(name);
  edits.set(name, first ? (x, shape) => edit(first(x, shape), shape) : edit);
}

/** The edits that make one patch. */
function* editsOf(patch, network) {
  const { site, op, head } = patch;
  const [stack] = site.split(".");
  const isStack = Object.hasOwn(network.about.stacks, stack);
  if (op === "hide") {
    if (network.task === "write") for (const each of network.attentions("decoder")) yield [`${each}.masked`, (x, shape) => hide(patch.position, x, shape)];
  } else if (op === "drop") yield [`${site}.output`, zeros];
  else if (op === "zero" && !isStack) yield [site, zeros];
  else if (op === "zero" && (head ?? null) === null) {
    for (const each of network.attentions(stack).filter((name) => name.endsWith("self_attention")))
      for (const name of ["query", "key"]) yield [`${each}.${name}`, (x, shape) => rotate(x, shape[0], shape[2], network.settings.rotary_base, 0, -1)];
  } else if (op === "zero" || op === "mean") yield [`${site}.context`, changeHead(head ?? 0, replacement(op, stack === "decoder"))];
  else if (op === "uniform") yield [`${site}.masked`, changeHead(head ?? 0, (row) => row.map((x) => (x === -Infinity ? x : 0)))];
  else if (op === "force") yield [`${site}.weights`, (x, shape) => force(patch, x, shape)];
}

const zeros = (x) => new Float32Array(x.length);

/** An edit of one head of values [H, T, ...]: `change` is given the numbers of that head and the number of rows. */
export function changeHead(head, change) {
  return (x, shape) => {
    const result = x.slice();
    const size = x.length / shape[0];
    result.set(change(x.subarray(head * size, (head + 1) * size), shape[1]), head * size);
    return result;
  };
}

/** A function that replaces rows by zeros, or each row by the mean of all rows, in a causal stack of the rows so far. */
export function replacement(op, causal) {
  if (op === "zero") return zeros;
  return (x, rows) => {
    const width = x.length / rows;
    const result = new Float32Array(x.length);
    for (let i = 0; i < width; i++) {
      let total = 0;
      for (let t = 0; t < rows; t++) result[t * width + i] = (total += x[t * width + i]) / (t + 1);
      if (!causal) for (let t = 0; t < rows; t++) result[t * width + i] = total / rows;
    }
    return result;
  };
}

/** Puts all the weight of one row of [H, T, S] on one key; does nothing while the row does not exist yet. */
function force({ head, query, key }, weights, [, rows, columns]) {
  if (query >= rows) return weights;
  const result = weights.slice();
  const start = (head * rows + query) * columns;
  result.fill(0, start, start + columns);
  result[start + key] = 1;
  return result;
}

/** Masks a position in scores [H, T, T] for all tokens but itself. */
function hide(position, masked, [, rows, columns]) {
  if (position >= columns) return masked;
  return masked.map((x, i) => (i % columns === position && Math.floor(i / columns) % rows !== position ? -Infinity : x));
}

/** Explores the space of embeddings: nearest neighbours, a map of the vocabulary, and the vectors of positions. */

import { dotAt, largest } from "./arithmetic.js";
import { columnProducts, eigen } from "./eigenvalues.js";
import { InputError, MissingError, quoted } from "./errors.js";
import { positionRows, rotate } from "./positions.js";

/** Display forms of single bytes that are not a character, and of unused entries of a vocabulary. */
const NO_TEXT = /^(?:(⟨([0-9A-F]{2}|\?)⟩)+|<0x[0-9A-F]{2}>|[[<].*(unused|extra_id|reserved).*[\]>])$/;

/** Letters of writing without spaces, each of which may be a word: Chinese, Japanese, Korean, Thai and Lao. */
const WORD_LETTERS = /[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0eff]/;
const TWO_LETTERS = /[\p{L}\p{No}\p{Nl}]{2}/u; // as Python's [^\W\d_]{2}

/** The embeddings [V, D] of a text's tokens before scaling. */
function table(model, side) {
  const { lexicons, network } = model;
  if (!Object.hasOwn(lexicons, side)) throw new InputError(`side: must be ${Object.keys(lexicons).join(" or ")}, not ${quoted(side.slice(0, 40))}`);
  return network.weight(network.about.tables[side]);
}

function requireTokens(rows, ids, field) {
  for (const id of ids) if (!(id >= 0 && id < rows.shape[0])) throw new MissingError(`${field}: no token has the id ${id}; the vocabulary has ${rows.shape[0]} tokens`);
}

/** The tokens nearest to one: by cosine, by dot product, and by cosine in the other language. */
export function near(model, side, token, count) {
  const rows = table(model, side);
  const [size, width] = rows.shape;
  requireTokens(rows, [token], "id");
  const lexicon = model.lexicons[side];
  const dots = Float32Array.from({ length: size }, (_, i) => dotAt(rows.data, i * width, rows.data, token * width, width));
  const lengths = Float32Array.from({ length: size }, (_, i) => Math.max(1e-12, Math.sqrt(dotAt(rows.data, i * width, rows.data, i * width, width))));
  const cosines = dots.map((dot, i) => dot / lengths[i] / lengths[token]);
  const hidden = (id) => id === token || lexicon.special.has(id);
  const best = (values, out) => {
    const allowed = values.map((value, id) => (out(id) ? -Infinity : value));
    return largest(allowed, count).filter((id) => allowed[id] > -Infinity).map((id) => ({ id, display: lexicon.display(id), value: values[id] }));
  };
  const own = ownPieces(model, side);
  return { cosine: best(cosines, hidden), dot: best(dots, hidden), other: own && best(cosines, (id) => hidden(id) || own(id)) };
}

/** Whether the training data has a token mostly on this side; null if that is unknown. */
function ownPieces({ usage, network }, side) {
  if (!usage || network.task !== "translate" || !network.about.joint) return null;
  const other = usage.counts[side === "source" ? "target" : "source"];
  return (id) => other[id] <= usage.counts[side][id];
}

/** Maps tokens of the vocabulary and these `ids` to their first two principal components. */
export function embeddingMap(model, side, count, ids) {
  const rows = table(model, side);
  const lexicon = model.lexicons[side];
  requireTokens(rows, ids, "ids");
  const all = Array.from({ length: rows.shape[0] }, (_, id) => id);
  const counts = model.usage?.counts[side];
  let order = counts ? "frequent" : "first";
  let pieces = counts ? all.sort((a, b) => counts[b] - counts[a]).filter((id) => counts[id] > 0) : all.filter((id) => !NO_TEXT.test(lexicon.display(id)));
  pieces = pieces.filter((id) => !lexicon.special.has(id));
  if (order === "first" && pieces.length <= count) order = "all";
  else if (order === "first") {
    const letterWords = ids.some((id) => WORD_LETTERS.test(lexicon.display(id)));
    const long = pieces.map((id) => [id, lexicon.display(id)]).filter(([, form]) => (WORD_LETTERS.test(form) ? letterWords : TWO_LETTERS.test(form))).map(([id]) => id);
    if (long.length) pieces = long; // vocabularies from elsewhere begin with single letters of all kinds of writing
  }
  const shown = [...new Set([...pieces.slice(0, count), ...ids])].sort((a, b) => a - b);
  const { points, explained } = principal(shown.map((id) => rows.row(id)));
  return { ids: shown, displays: shown.map(lexicon.display), points, explained, order, usual: Math.min(count, pieces.length), pieces: pieces.length, texts: model.usage?.texts ?? null };
}

/** Rows [N, D] -> [N, 2] on the first two principal axes, and the share of the variance along each axis. */
function principal(rows) {
  const width = rows[0]?.length ?? 0;
  const mean = Float64Array.from({ length: width }, (_, i) => rows.reduce((total, row) => total + row[i], 0) / rows.length);
  const centred = Float64Array.from({ length: rows.length * width }, (_, i) => rows[Math.floor(i / width)][i % width] - mean[i % width]);
  const { values, vectors } = eigen(columnProducts(centred, rows.length, width), width);
  const axes = [0, 1].map((i) => {
    const axis = vectors[i] ?? new Float64Array(width);
    const most = axis.reduce((best, x, place) => (Math.abs(x) > Math.abs(axis[best]) ? place : best), 0);
    return axis[most] < 0 ? axis.map((x) => -x) : axis; // the largest component is positive, so that the map is the same every time
  });
  const total = Math.max(1e-30, values.reduce((sum, value) => sum + Math.max(0, value), 0));
  const points = rows.map((_, n) => axes.map((axis) => (rows.length > 1 ? dotAt(centred, n * width, axis, 0, width) : 0)));
  return { points, explained: [0, 1].map((i) => Math.max(0, rows.length > 1 ? values[i] ?? 0 : 0) / total) };
}

/** The positions of a text: their kind, the wavelength of each column, and their first rows {shape, axes, data}. */
export function positions(model, side, count) {
  table(model, side); // throws an error for an unknown side
  const { settings, about: { embeddings } } = model.network;
  const [kind, ...rest] = settings.positions.split("-");
  const about = { kind, layout: null, rows: 0, width: 0, wavelengths: null };
  let width = settings.width;
  let data = null;
  if (kind === "rotary") {
    width = settings.head_width;
    const ones = Float32Array.from({ length: count * width }, (_, i) => (i % width < width / 2 ? 1 : 0));
    data = rotate(ones, 1, width, settings.rotary_base, 0);
    const waves = Array.from({ length: width / 2 }, (_, i) => 2 * Math.PI * settings.rotary_base ** ((2 * i) / width));
    Object.assign(about, { layout: "halves", wavelengths: [...waves, ...waves] });
  } else if (kind !== "none") {
    const rows = kind === "learned" ? Math.min(count, settings.max_length) : count;
    data = positionRows(model.network, embeddings[side], 0, rows);
  }
  if (kind === "sinusoidal") {
    const waves = Array.from({ length: width / 2 }, (_, i) => 2 * Math.PI * 10_000 ** ((2 * i) / width));
    Object.assign(about, { layout: rest.join("-") || "interleaved", wavelengths: rest.length ? [...waves, ...waves] : waves.flatMap((wave) => [wave, wave]) });
  }
  if (data) Object.assign(about, { rows: data.length / width, width });
  return { about, rows: data && { shape: [data.length / width, width], axes: ["position", "width"], data } };
}

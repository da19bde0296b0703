/** Where a card of the journey stands in the model, and the small pictures that its equations are made of. */

import { color, scaleOf } from "regard/colors.js";
import { weight } from "regard/data.js";
import { fixed, fmt, h, math, shown, tick } from "regard/dom.js";
import { thumbnail } from "regard/matrix.js";
import { extra, setExtra } from "regard/state.js";
import { strips } from "regard/strip.js";
import { t } from "regard/strings.js";

/** A card's stack, layer, head and followed token, with the names of what goes in and comes out. */
export function place(ctx, card) {
  const { model, run, sel } = ctx;
  const m = model.model;
  const { stack, kind = "self_attention" } = card;
  const { layers, text } = model.stacks[stack];
  const number = Math.min(sel.layer, layers - 1);
  const part = kind === "cross_attention" ? "cross" : "self";
  const pre = m.norm === "pre";
  const after = pre ? "sum" : "norm";
  const layer = `${stack}.layers.${number}`;
  const embedding = model.embeddings[text];
  const start = `${embedding}.${m.embedding_norm ? "norm" : "sum"}`;
  const into = number ? `${stack}.layers.${number - 1}.feed_forward_residual.${after}` : start;
  const before = part === "cross" ? `${layer}.self_residual.${after}` : into;
  const keyText = part === "cross" ? "source" : text;
  const i = text === "source" ? sel.q : sel.t;
  const tokens = run.tokens(text);
  const group = Math.floor(sel.head / (m.heads / m.query_groups));
  const table = model.tables?.[text] ?? [`${embedding}.tokens.weight`, "source_embedding.tokens.weight"].find((name) => name in model.weights);
  return {
    ctx, model, m, run, sel, card, stack, kind, layers, number, part, pre, after, layer, text, keyText, i, tokens, embedding, table, start, into, before, group,
    head: sel.head, token: tokens[i], keys: run.tokens(keyText), site: `${layer}.${kind}`, residual: `${layer}.${part}_residual`,
    input: pre ? `${layer}.${part}_residual.norm` : before,
    /** What keys and values are made from, and the position shown of it. */
    memory: part === "cross" ? "encoder.states" : pre ? `${layer}.${part}_residual.norm` : before,
    j: part === "cross" ? sel.q : i,
    middle: model.stacks[stack].kinds.length > 1 ? `${layer}.cross_residual.${after}` : `${layer}.self_residual.${after}`,
    step: run.answer.steps.find((each) => each.position === i),
    causal: stack === "decoder" && part === "self",
    all: extra("all") === "1",
    get: (...names) => (names.length > 1 ? run.tensors(names) : run.tensor(names[0])),
    labels: (text === undefined ? [] : run.tokens(keyText)).map(shown),
    pick: (name, ...index) => (cell) => ctx.go("microscope", { cell: `${name}:${[...index, cell].join(",")}` }),
  };
}

/** A bias or other vector that this model may not have. */
export const vectorOf = async (p, name, rows = "") => (name in p.model.weights ? (await weight(name, rows)).data : null);

/** A weight in as many answers as its size needs. */
export async function whole(p, name) {
  const [rows, columns] = p.model.weights[name];
  const size = Math.max(1, Math.floor((p.model.limits?.weights ?? 1e6) / columns));
  if (size >= rows) return weight(name);
  const parts = await Promise.all(Array.from({ length: Math.ceil(rows / size) }, (_, n) => weight(name, `${n * size}:${Math.min(rows, (n + 1) * size)}`)));
  return { shape: [rows, columns], row: (i) => parts[Math.floor(i / size)].row(i % size) };
}

/** The numbers of a norm: gain, shift. */
export const normOf = async (p, name) => [await vectorOf(p, `${name}.weight`), await vectorOf(p, `${name}.bias`), p.m.norm_epsilon, p.m.norm_kind];

/** A matrix as a small picture: [rows, columns, at]; the followed row has a golden frame. */
export function block(rows, columns, at, how) {
  const { label, role = "x", mark = -1, unit = Math.max(0.25, Math.min(9, 150 / Math.max(rows, columns))), scale } = how;
  const high = Math.max(unit, 22 / rows < unit ? unit : Math.min(9, 22 / rows));
  const wide = Math.max(unit, Math.min(9, 10 / columns));
  const own = scale ?? scaleOf(Array.from({ length: Math.min(4000, rows * columns) }, (_, n) => at(Math.floor(n / columns), n % columns)), how.signed ?? true);
  const canvas = thumbnail(rows, columns, at, own, 1);
  Object.assign(canvas.style, { width: `${wide * columns}px`, height: `${high * rows}px` });
  canvas.toSvg = () => Array.from({ length: rows * columns }, (_, n) => ({ kind: "cell", x: (n % columns) * wide, y: Math.floor(n / columns) * high, w: wide + 0.2, h: high + 0.2, fill: color(at(Math.floor(n / columns), n % columns), own) }));
  const frame = mark >= 0 ? h("i", { class: "row", style: { top: `${mark * high - 1}px`, height: `${high + 2}px` } }) : null;
  return h("span", { class: "block", role: "img", "aria-label": `${label} ${rows} × ${columns}` }, h("span", { class: "area" }, canvas, frame), h("b", { class: role }, label), h("small", {}, `${rows} × ${columns}`));
}

/** Of a tensor [rows, columns]. */
export const blockOf = (tensor, how) => block(tensor.shape[0], tensor.shape[1], (i, j) => tensor.at(i, j), how);

/** Blocks and signs in one line: an equation of pictures. */
export const equation = (...parts) => h("div", { class: "equation" }, parts.filter(Boolean).map((part) => (typeof part === "string" ? h("span", { class: "sign" }, part) : part)));

/** Strips that show all their numbers when this is wanted. */
export const lines = (p, rows) => {
  const long = rows.some((row) => row.vector.length > 16);
  return [strips(rows.filter(Boolean), { all: p.all && rows[0].vector.length <= 256 }), long ? tick(t("j.all"), p.all, (on) => setExtra({ all: on ? 1 : 0 })) : null];
};

const kindOf = (word) => (/^[\d.,−∞e]+$/.test(word) ? "mn" : /^[=+−·×÷/()√∑≈→⊙,;|‖…]+$/.test(word) ? "mo" : "mi");
const node = (word) => (/^(softmax|concat|Norm|exp|max|log|sin|cos|mean)$/.test(word) ? `<mi mathvariant="normal">${word}</mi>` : `<${kindOf(word)}>${word}</${kindOf(word)}>`);

/** "q_i = W_Q^h x_i": words become MathML. */
export const f = (text) =>
  text.split(" ").map((word) => {
    const [, base, low, high] = /^([^_^]+)(?:_([^^]+))?(?:\^(.+))?$/.exec(word) ?? [null, word];
    if (!low && !high) return node(base);
    return low && high ? `<msubsup>${node(base)}${node(low)}${node(high)}</msubsup>` : low ? `<msub>${node(base)}${node(low)}</msub>` : `<msup>${node(base)}${node(high)}</msup>`;
  }).join("");
export const frac = (a, b) => `<mfrac><mrow>${a}</mrow><mrow>${b}</mrow></mfrac>`;
export const root = (a) => `<msqrt>${a}</msqrt>`;
export const formula = (...parts) => h("p", { class: "formula scroll" }, math(parts.join("")));

/** Arithmetic in plain digits. */
export const sums = (...text) => h("p", { class: "sums" }, ...text);

/** a · b written out: the first products, and what they add up to. */
export function products(p, a, b, bias, total) {
  const shownTerms = p.all ? Math.min(64, a.length) : Math.min(8, a.length);
  const terms = Array.from({ length: shownTerms }, (_, i) => `${fixed(a[i], 2)}·${fixed(b[i], 2)}`).join(" + ");
  const rest = a.length > shownTerms ? ` + … (${t("j.more", { n: a.length - shownTerms })})` : "";
  return sums(terms, rest, bias === undefined || bias === null ? "" : ` + ${fixed(bias, 3)}`, " = ", h("b", {}, fmt(total, 5)));
}

/** Which keys to show, when there are many: the largest, in their order. */
export function chosen(row, room = 24) {
  const order = Array.from(row, (_, i) => i);
  if (row.length <= room) return order;
  return order.sort((a, b) => (Number.isFinite(row[b]) ? Math.abs(row[b]) : -1) - (Number.isFinite(row[a]) ? Math.abs(row[a]) : -1)).slice(0, room).sort((a, b) => a - b);
}

/** Finds the place of a journey's card in the model, and draws the small pictures in its equations. */

import { scaleOf } from "regard/color-scales.js";
import { choice, fixed, fmt, h, percent, shown } from "regard/dom-elements.js";
import { formula } from "regard/math-formulas.js";
import { thumbnail } from "regard/matrix-heatmap.js";
import { linear, mean, norm, variance } from "regard/model-arithmetic.js";
import { weight } from "regard/model-data-client.js";
import { Tensor } from "regard/safetensors-reader.js";
import { extra, setExtra } from "regard/selection-in-url.js";
import { t } from "regard/strings.js";

/** A card's stack, layer, head and followed token, and ways to get at their numbers. */
export function place(ctx, card) {
  const { model, run, sel } = ctx;
  const m = model.model;
  const { stack, kind } = card;
  const { layers, text, kinds } = model.stacks[stack];
  const number = Math.min(sel.layer, layers - 1);
  const layer = `${stack}.layers.${number}`;
  const cross = kind === "cross_attention";
  const pre = m.norm === "pre";
  const after = pre ? "sum" : "norm";
  const embedding = model.embeddings[text];
  const start = `${embedding}.${m.embedding_norm ? "norm" : "sum"}`;
  const into = number ? `${stack}.layers.${number - 1}.feed_forward_residual.${after}` : start;
  const i = text === "source" ? sel.q : sel.t;
  const tokens = run.tokens(text);
  const keys = run.tokens(cross ? "source" : text);
  const p = {
    ctx, model, m, run, sel, card, stack, layers, number, layer, cross, pre, after, text, embedding, start, into, i, tokens, keys,
    head: sel.head, group: Math.floor(sel.head / (m.heads / m.query_groups)), token: tokens[i], name: shown(tokens[i]), labels: keys.map(shown),
    site: `${layer}.${kind}`, residual: `${layer}.${cross ? "cross" : "self"}_residual`, forward: `${layer}.feed_forward`,
    before: cross ? `${layer}.self_residual.${after}` : into, // the stream that attention adds to
    middle: `${layer}.${kinds.length > 1 ? "cross" : "self"}_residual.${after}`, // and the one that feed-forward adds to
    j: cross ? sel.q : i,
    causal: stack === "decoder" && !cross,
    step: run.answer.steps.find((each) => each.position === i),
    all: extra("all") === "1",
    missing: false, // weights that a saved file does not have
    /** Tensors of the run; ".query" is that of the card's attention. */
    get: (...names) => run.tensors(names.map((name) => (name[0] === "." ? p.site + name : name))),
    microscope: (tensor, index) => (cell) => ctx.go("microscope", { cell: `${tensor.name}:${[...index, cell].join(",")}` }),
    /** A strip of the picture: one vector of a tensor. */
    row: (tensor, index, label, role = "", sign = "", more = {}) => ({
      vector: tensor.row(...index),
      label,
      role,
      sign,
      onpick: p.microscope(tensor, index),
      ...more,
    }),
    weight: (name, rows = "") => weights(p, name, rows),
    /** What a linear layer gives for x. */
    async linear(name, x, rows = "") {
      const [table, bias] = await Promise.all([p.weight(`${name}.weight`, rows), p.weight(`${name}.bias`, rows)]);
      return { table, bias: bias?.data, out: linear(table, x, bias?.data) };
    },
  };
  return p;
}

/** A weight, in as many answers as its size needs; nothing if the model has none of this name. */
async function weights(p, name, rows) {
  const shape = p.model.weights[name];
  if (!shape) return null;
  const [a, b] = rows ? rows.split(":").map(Number) : [0, shape[0]];
  const rest = shape.slice(1);
  const size = Math.max(1, Math.floor((p.model.limits?.weights ?? 1e6) / (rest[0] ?? 1)));
  const data = new Float32Array((b - a) * (rest[0] ?? 1)).fill(NaN);
  try {
    for (let from = a; from < b; from += size) data.set((await weight(name, `${from}:${Math.min(b, from + size)}`)).data, (from - a) * (rest[0] ?? 1));
  } catch (error) {
    if (!error.offline) throw error;
    p.missing = true;
  }
  return new Tensor(name, [b - a, ...rest], [], data);
}

/** A matrix as a small picture; the followed row has a golden frame. "W_Q" is W with a low Q; `shape` is the tensor's, where it is drawn otherwise. */
export function block(label, role, rows, columns, at, { mark = -1, room = 150, signed = true, shape = [rows, columns] } = {}) {
  const size = Math.min(9, room / Math.max(rows, columns));
  const [high, wide] = [Math.max(size, Math.min(9, 90 / rows)), Math.max(size, Math.min(9, 48 / columns))];
  const scale = scaleOf(Array.from({ length: Math.min(4000, rows * columns) }, (_, n) => at(Math.floor(n / columns), n % columns)), signed);
  const frame = mark >= 0 && h("i", { style: { top: `${mark * high - 2}px`, height: `${high + 4}px` } });
  const [base, low] = label.split("_");
  const area = h("span", {}, thumbnail(rows, columns, at, scale, wide * columns, high * rows), frame);
  return h("span", { class: "block" }, area, h("b", { class: role }, base, h("sub", {}, low ?? "")), h("small", {}, shape.join(" × ")));
}

/** Of a tensor [rows, columns], of one turned on its side, and of a vector folded into lines. */
export const blockOf = (label, role, tensor, how) => block(label, role, ...tensor.shape, (i, j) => tensor.at(i, j), how);
export const turned = (label, role, tensor, how) => block(label, role, tensor.shape[1], tensor.shape[0], (i, j) => tensor.at(j, i), how);
export const folded = (label, role, vector, columns = vector.length, how = {}) => block(
  label,
  role,
  Math.ceil(vector.length / columns),
  columns,
  (i, j) => vector[i * columns + j] ?? 0,
  { shape: [1, vector.length], ...how },
);

/** Blocks and signs in one line: an equation of pictures. */
export const equation = (...parts) => h(
  "div",
  { class: "equation" },
  parts.map((part) => (typeof part === "string" ? h("span", { class: "sign" }, part) : part)),
);

/** Formats a share of one, however small. */
export const share = (x) => (x > 0 && x < 5e-6 ? "< 0.001 %" : percent(x));

/** Arithmetic in plain digits. */
export const sums = (...text) => h("p", { class: "sums" }, text);

/** a · b written out: the first products, and what they add up to. */
export function products(p, name, a, b, bias, total) {
  const many = p.all ? 64 : 8;
  const terms = Array.from(a).slice(0, many).map((x, n) => `${fixed(x, 2)}·${fixed(b[n], 2)}`);
  if (a.length > many) terms.push(`… (${t("j.more", { n: a.length - many })})`);
  if (bias !== undefined) terms.push(fixed(bias, 3));
  return sums(`${name} = ${terms.join(" + ")} = `, h("b", {}, fmt(total, 5)));
}

/** Returns the places of the largest numbers, in their order. */
export function largest(row, room) {
  const size = (i) => (Number.isFinite(row[i]) ? Math.abs(row[i]) : -1);
  return Array.from(row, (_, i) => i).sort((a, b) => size(b) - size(a)).slice(0, room).sort((a, b) => a - b);
}

/** A table; the first cell of each row is its head, golden where it is followed. */
export const tableOf = (head, rows, here = -1) =>
  h(
    "div",
    { class: "scroll", tabindex: 0 },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, head.map((x) => h("th", { scope: "col" }, x)))),
      h("tbody", {}, rows.map((row, n) => h("tr", { class: n === here ? "gold" : "" }, row.map((x, c) => h(c ? "td" : "th", c ? {} : { scope: "row" }, x))))),
    ),
  );

/** Results of two parts of a card, one after the other. */
export const both = (...parts) => ({
  ...parts[0],
  ...Object.fromEntries(["rows", "body", "numbers", "check"].map((key) => [key, parts.flatMap((part) => part[key] ?? [])])),
});

/** A norm, before and after, and its arithmetic for one column. */
export async function normed(p, x, y, name) {
  const { norm_kind: kind, norm_epsilon: epsilon, width } = p.m;
  const [gain, shift] = [(await p.weight(`${name}.weight`)).data, (await p.weight(`${name}.bias`))?.data];
  const [from, to] = [x.row(p.i), y.row(p.i)];
  const c = Math.max(0, Math.min(width - 1, Math.trunc(extra("column", "0")) || 0));
  const rms = kind === "rms";
  const [square, spread] = [rms ? "mean(x²)" : "σ²", variance(from, kind)];
  const middle = rms ? "" : ` − ${fmt(mean(from), 4)}`;
  const last = shift ? ` + ${fmt(shift[c], 4)}` : "";
  return {
    rows: [p.row(x, [p.i], "x", "", "", { mark: c }), p.row(y, [p.i], "Norm(x)", "out", "→", { mark: c })],
    numbers: [
      choice(t("column"), Array.from(from, (_, n) => [n, String(n)]), c, (column) => setExtra({ column })),
      formula(`y = {${rms ? "x" : "x − μ"}|√${square}+ε} · γ${shift ? " + β" : ""}`),
      sums(
        rms ? "" : `μ = ${fmt(mean(from), 4)}, `,
        `${square} = ${fmt(spread, 4)}, ε = ${epsilon}, γ = ${fmt(gain[c], 4)}`,
        shift ? `, β = ${fmt(shift[c], 4)}` : "",
      ),
      sums(`y[${c}] = (${fmt(from[c], 4)}${middle}) / √${fmt(spread + epsilon, 5)} · ${fmt(gain[c], 4)}${last} = `, h("b", {}, fmt(to[c], 5))),
    ],
    check: [["Norm", norm(from, gain, shift ?? null, epsilon, kind), to]],
  };
}

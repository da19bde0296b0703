/** Cards of one attention: queries, keys, values, scores, scale, mask, softmax, weighted sum, heads, output. */

import { weight } from "regard/data.js";
import { fixed, fmt, h, percent, shown, tick } from "regard/dom.js";
import { add, dot, entropy, length, linear, rotate, scale, softmax } from "regard/maths.js";
import { matrix } from "regard/matrix.js";
import { extra, setExtra } from "regard/state.js";
import { bars } from "regard/strip.js";
import { t } from "regard/strings.js";
import { block, blockOf, chosen, equation, f, formula, frac, lines, products, root, sums, vectorOf, whole } from "./journey-place.js";

const ROLES = { query: "q", key: "k", value: "v" };
const LETTERS = { query: "Q", key: "K", value: "V" };

/** The rows of a head in the weights of its queries, keys or values. */
async function mapOf(p, role) {
  const [which, size] = role === "query" ? [p.head, p.m.head_width] : [p.group, role === "key" ? p.m.head_width : p.m.head_value_width];
  const rows = `${which * size}:${(which + 1) * size}`;
  const [table, bias, all] = await Promise.all([weight(`${p.site}.${role}.weight`, rows), vectorOf(p, `${p.site}.${role}.bias`, rows), p.get(`${p.site}.${role}`)]);
  const place = role === "query" ? p.i : p.j;
  return { role, table, bias, place, which, all: all.sub(which), row: all.row(which, place), from: (await p.get(role === "query" ? p.input : p.memory)) };
}

const maps = (p) => Promise.all(Object.keys(ROLES).map((role) => mapOf(p, role)));
const turned = (p, each) => p.m.positions === "rotary" && p.part === "self" && each.role !== "value";

/** q, k, v of the followed head, recomputed. */
function remade(p, each) {
  const plain = linear(each.table, each.from.row(each.place), each.bias ?? undefined);
  return turned(p, each) ? rotate(plain, each.place, p.m.rotary_base) : plain;
}

const QKV = {
  key: "qkv",
  tensor: (p) => [`${p.site}.query`, [p.head, p.i]],
  variant: (p) => (p.part === "cross" ? "cross" : p.m.positions === "rotary" ? "rotary" : ""),
  async picture(p) {
    const found = await maps(p);
    const rows = found.map((each) => {
      const size = { unit: Math.max(0.4, Math.min(9, 130 / p.m.width)) };
      const memory = p.part === "cross" && each.role !== "query";
      return h("div", { class: memory ? "paper" : "" }, equation(
        blockOf(each.from, { label: memory ? t("j.memoryShort") : "X", mark: each.place, ...size }), "×",
        block(each.table.shape[1], each.table.shape[0], (i, j) => each.table.at(j, i), { label: `W${LETTERS[each.role]}`, role: ROLES[each.role], ...size }),
        turned(p, each) ? "⟲" : null, "=",
        blockOf(each.all, { label: LETTERS[each.role], role: ROLES[each.role], mark: each.place, ...size })));
    });
    return [h("div", { class: "three" }, rows), ...lines(p, found.map((each) => ({ vector: each.row, label: `${ROLES[each.role]} ${shown((each.role === "query" ? p.tokens : p.keys)[each.place])}`, role: ROLES[each.role], onpick: p.pick(`${p.site}.${each.role}`, each.which, each.place) })))];
  },
  async numbers(p) {
    const each = await mapOf(p, "query");
    const x = each.from.row(p.i);
    const plain = linear(each.table, x, each.bias ?? undefined);
    return [formula(f(`q_i = x_i W_Q${each.bias ? " + b_Q" : ""}`)), sums("q[0] = "), products(p, x, each.table.row(0), each.bias?.[0], plain[0]), turned(p, each) ? sums(t("j.rotated", { i: p.i }), ` q[0] = ${fmt(plain[0], 4)} · cos ${p.i} − ${fmt(plain[plain.length / 2], 4)} · sin ${p.i} = ${fmt(each.row[0], 4)}`) : null];
  },
  receipt: async (p) => (await maps(p)).map((each) => [ROLES[each.role], remade(p, each), each.row]),
};

/** Rows of scores or weights of the followed token. */
const rowOf = async (p, name) => (await p.get(`${p.site}.${name}`)).row(p.head, p.i);

/** The key that is looked at: the one clicked, or the one with the most weight. */
async function lookedAt(p) {
  const weights = await rowOf(p, "weights");
  return p.sel.k >= 0 && p.sel.k < weights.length ? p.sel.k : weights.indexOf(Math.max(...weights));
}

/** A bar for each key; a click looks at it. */
function keyBars(p, row, how = {}) {
  const places = chosen(row);
  const list = places.map((j) => ({ label: p.labels[j], value: Number.isFinite(row[j]) ? row[j] : 0, text: how.text ? how.text(row[j]) : fixed(row[j], 3), mark: j === how.mark, onpick: () => p.ctx.set({ k: j }), note: how.note?.(j) }));
  return [bars(list, { high: how.high, label: how.label }), places.length < row.length ? h("p", { class: "note" }, t("j.keysMore", { n: row.length - places.length })) : null];
}

const SCORES = {
  key: "scores",
  tensor: (p) => [`${p.site}.scores`, [p.head, p.i]],
  async picture(p) {
    const [query, key, scores] = await p.get(`${p.site}.query`, `${p.site}.key`, `${p.site}.scores`);
    const j = await lookedAt(p);
    const [q, k] = [query.row(p.head, p.i), key.row(p.group, j)];
    const all = key.sub(p.group);
    return [
      equation(blockOf(query.sub(p.head), { label: "Q", role: "q", mark: p.i }), "×", block(all.shape[1], all.shape[0], (a, b) => all.at(b, a), { label: "Kᵀ", role: "k" }), "=", blockOf(scores.sub(p.head), { label: t("j.scoresShort"), role: "x", mark: p.i })),
      keyBars(p, scores.row(p.head, p.i), { mark: j, label: t("j.scores") }),
      ...lines(p, [{ vector: q, label: `q ${shown(p.token)}`, role: "q", onpick: p.pick(`${p.site}.query`, p.head, p.i) }, { vector: k, label: `k ${p.labels[j]}`, role: "k", sign: "⊙", onpick: p.pick(`${p.site}.key`, p.group, j) }, { vector: Array.from(q, (x, n) => x * k[n]), label: t("j.productsShort"), sign: "=", note: `∑ = ${fmt(dot(q, k), 4)}` }]),
    ];
  },
  async numbers(p) {
    const [query, key, j] = [await p.get(`${p.site}.query`), await p.get(`${p.site}.key`), await lookedAt(p)];
    const [q, k] = [query.row(p.head, p.i), key.row(p.group, j)];
    return [formula(f("s_ij = q_i · k_j")), products(p, q, k, undefined, dot(q, k))];
  },
  async receipt(p) {
    const [query, key] = await p.get(`${p.site}.query`, `${p.site}.key`);
    return [["q·k", p.keys.map((_, j) => dot(query.row(p.head, p.i), key.row(p.group, j))), await rowOf(p, "scores")]];
  },
  async question(p) {
    const row = await rowOf(p, "masked");
    const best = Array.from(row, (_, j) => j).filter((j) => Number.isFinite(row[j])).sort((a, b) => row[b] - row[a]);
    if (best.length < 2) return null;
    const pair = [best[0], best[Math.ceil(best.length / 2)]].sort((a, b) => a - b);
    return { ask: t("j.ask.scores"), choices: pair.map((j) => p.labels[j]), right: pair.indexOf(best[0]), why: t("j.why.scores", { a: fixed(row[best[0]], 2), b: fixed(row[pair.find((j) => j !== best[0])], 2) }) };
  },
};

const SCALE = {
  key: "scale",
  tensor: (p) => [`${p.site}.scaled`, [p.head, p.i]],
  async picture(p) {
    const [scores, masked] = [await rowOf(p, "scores"), await rowOf(p, "masked")];
    const plain = extra("unscaled") === "1";
    const rootK = Math.sqrt(p.m.head_width);
    const open = Array.from(masked, (x) => (Number.isFinite(x) ? x * (plain ? rootK : 1) : -Infinity));
    const row = plain ? scores : scale(scores, 1 / rootK);
    const weights = softmax(open);
    return [
      h("p", {}, tick(t("j.unscaled"), plain, (on) => setExtra({ unscaled: on ? 1 : 0 }))),
      h("div", { class: "two" }, h("div", {}, h("h4", {}, plain ? t("j.scoresShort") : t("j.scaledBy", { n: fmt(rootK, 4) })), keyBars(p, row, { high: Math.max(...scores.map(Math.abs)), label: t("j.scoresShort") })), h("div", {}, h("h4", {}, t("j.thenSoftmax"), " ", h("small", {}, t("j.entropy", { n: fmt(entropy(weights), 3) }))), keyBars(p, weights, { high: 1, text: percent, label: t("j.thenSoftmax") }))),
    ];
  },
  async numbers(p) {
    const [scores, scaled, j] = [await rowOf(p, "scores"), await rowOf(p, "scaled"), await lookedAt(p)];
    return [formula(frac(f("q_i · k_j"), root(f("d_k"))), f("="), frac(f(fmt(scores[j], 5)), root(f(String(p.m.head_width)))), f("="), frac(f(fmt(scores[j], 5)), f(fmt(Math.sqrt(p.m.head_width), 5))), f(`= ${fmt(scaled[j], 5)}`))];
  },
  receipt: async (p) => [["÷ √d", scale(await rowOf(p, "scores"), 1 / Math.sqrt(p.m.head_width)), await rowOf(p, "scaled")]],
  async question() {
    return { ask: t("j.ask.scale"), choices: [t("j.yes"), t("j.no")], right: 1, why: t("j.why.scale") };
  },
};

const MASK = {
  key: "mask",
  variant: (p) => (p.part === "cross" ? "cross" : p.causal ? "causal" : ""),
  tensor: (p) => [`${p.site}.masked`, [p.head, p.i]],
  async picture(p) {
    const masked = (await p.get(`${p.site}.masked`)).sub(p.head);
    const [rows, columns] = masked.shape;
    return [matrix({ rows, columns, at: (i, j) => masked.at(i, j), label: t("j.mask"), rowLabels: p.tokens.map(shown), columnLabels: p.labels, rowTitle: t("j.asks"), columnTitle: t("j.answers"), hatched: (i, j) => masked.at(i, j) === -Infinity, mark: { row: p.i }, cell: Math.max(4, Math.min(40, Math.floor(Math.min(640, innerWidth - 160) / columns))), onpick: (i, j) => p.pick(`${p.site}.masked`, p.head, i)(j) }), p.causal ? h("p", { class: "note" }, t("j.hatched")) : null];
  },
  async numbers(p) {
    const [scaled, masked] = [await rowOf(p, "scaled"), await rowOf(p, "masked")];
    const closed = masked.indexOf(-Infinity);
    const j = closed < 0 ? await lookedAt(p) : closed;
    return [formula(f("m_ij ="), frac(f("s_ij"), root(f("d_k"))), f(closed < 0 ? `+ 0 = ${fmt(scaled[j], 4)}` : `+ ( −∞ ) = ${fmt(scaled[j], 4)} + ( −∞ ) = −∞`)), h("p", {}, t("j.maskCount", { open: Array.from(masked).filter(Number.isFinite).length, n: masked.length }))];
  },
  receipt: async (p) => [[t("j.mask"), Array.from(await rowOf(p, "scaled"), (x, j) => (p.causal && j > p.i ? -Infinity : x)), await rowOf(p, "masked")]],
  async question(p) {
    if (!p.causal) return null;
    const [right, other] = [p.i + 1, p.tokens.length === p.i + 1 ? p.i : p.tokens.length];
    return { ask: t("j.ask.mask", { token: shown(p.token), i: p.i }), choices: [right, other].sort((a, b) => a - b).map(String), right: right < other ? 0 : 1, why: t("j.why.mask") };
  },
};

const SOFTMAX = {
  key: "softmax",
  tensor: (p) => [`${p.site}.weights`, [p.head, p.i]],
  async picture(p) {
    const weights = await rowOf(p, "weights");
    const [all, j] = [await p.get(`${p.site}.weights`), await lookedAt(p)];
    return [
      h("p", { class: "tokens" }, p.keys.map((token, n) => h("span", { class: `link ${n === j ? "gold" : ""}`, style: { "--weight": weights[n] }, title: percent(weights[n]) }, shown(token)))),
      keyBars(p, weights, { high: 1, mark: j, text: percent, label: t("j.weightsShort") }),
      h("p", {}, t("j.addsUp", { n: fixed(weights.reduce((a, b) => a + b, 0), 3), e: fmt(entropy(weights), 3) })),
      equation(blockOf(all.sub(p.head), { label: t("j.weightsShort"), mark: p.i, signed: false })),
    ];
  },
  async numbers(p) {
    const masked = await rowOf(p, "masked");
    const top = Math.max(...masked);
    const exps = Array.from(masked, (x) => Math.exp(x - top));
    const sum = exps.reduce((a, b) => a + b, 0);
    const cells = (values) => values.map((x) => h("td", {}, x));
    return [
      formula(f("α_ij ="), frac(f("exp ( m_ij − max )"), f("∑_j exp ( m_ij − max )")), f(`; max = ${fmt(top, 4)} ; ∑ = ${fmt(sum, 5)}`)),
      h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["", "m", "m − max", "exp", "÷ ∑"].map((x) => h("th", { scope: "col" }, x)))), h("tbody", {}, chosen(exps).map((j) => h("tr", {}, h("th", { scope: "row" }, p.labels[j]), cells([fixed(masked[j], 3), fixed(masked[j] - top, 3), fixed(exps[j], 4), fixed(exps[j] / sum, 4)])))))),
    ];
  },
  receipt: async (p) => [["softmax", softmax(await rowOf(p, "masked")), await rowOf(p, "weights")]],
};

const SUM = {
  key: "sum",
  tensor: (p) => [`${p.site}.context`, [p.head, p.i]],
  async picture(p) {
    const [weights, value, context] = [await rowOf(p, "weights"), await p.get(`${p.site}.value`), await p.get(`${p.site}.context`)];
    const shownKeys = chosen(weights, 8);
    const z = context.row(p.head, p.i);
    const part = (j) => scale(value.row(p.group, j), weights[j]);
    const rest = shownKeys.reduce((sum, j) => add(sum, scale(part(j), -1)), Float64Array.from(z));
    const others = weights.length - shownKeys.length;
    return [
      equation(block(1, weights.length, (_, j) => weights[j], { label: "α", signed: false, unit: Math.min(9, 150 / weights.length) }), "×", blockOf(value.sub(p.group), { label: "V", role: "v" }), "=", block(1, z.length, (_, j) => z[j], { label: "z", role: "out" })),
      ...lines(p, [...shownKeys.map((j, n) => ({ vector: part(j), label: `${fixed(weights[j], 2)} · v ${p.labels[j]}`, role: "v", sign: n ? "+" : "", onpick: p.pick(`${p.site}.value`, p.group, j) })), others ? { vector: rest, label: t("j.others", { n: others }), sign: "+" } : null, { vector: z, label: "z", role: "out", sign: "=", onpick: p.pick(`${p.site}.context`, p.head, p.i) }].filter(Boolean)),
    ];
  },
  async numbers(p) {
    const [weights, value] = [await rowOf(p, "weights"), await p.get(`${p.site}.value`)];
    const column = Array.from(weights, (_, j) => value.at(p.group, j, 0));
    return [formula(f("z_i = ∑_j α_ij v_j")), sums("z[0] = "), products(p, weights, column, undefined, dot(weights, column))];
  },
  receipt: async (p) => [["z", await contextOf(p, p.head), (await p.get(`${p.site}.context`)).row(p.head, p.i)]],
};

/** What a head gathers for the followed token, from its weights and values. */
async function contextOf(p, head) {
  const [weights, value] = await p.get(`${p.site}.weights`, `${p.site}.value`);
  const group = Math.floor(head / (p.m.heads / p.m.query_groups));
  return p.keys.reduce((sum, _, j) => add(sum, scale(value.row(group, j), weights.at(head, p.i, j))), new Float64Array(p.m.head_value_width));
}

const everyHead = (p) => Array.from({ length: p.m.heads }, (_, head) => head);

const HEADS = {
  key: "heads",
  tensor: (p) => [`${p.site}.context`, []],
  async picture(p) {
    const [context, weights] = await p.get(`${p.site}.context`, `${p.site}.weights`);
    const top = (head) => { const row = weights.row(head, p.i); return row.indexOf(Math.max(...row)); };
    return [
      equation(...everyHead(p).flatMap((head) => [block(1, p.m.head_value_width, (_, j) => context.at(head, p.i, j), { label: `z${head}`, role: head === p.head ? "gold" : "out", unit: Math.max(1, Math.min(9, 480 / p.m.heads / p.m.head_value_width)) })]), "→", h("span", { class: "note" }, t("j.concat", { n: p.m.heads * p.m.head_value_width }))),
      ...lines(p, everyHead(p).map((head) => ({ vector: context.row(head, p.i), label: `${t("head")} ${head}`, role: "out", note: t("j.looksAt", { token: p.labels[top(head)], p: percent(weights.at(head, p.i, top(head))) }), onpick: p.pick(`${p.site}.context`, head, p.i) }))),
    ];
  },
  numbers: async (p) => [formula(f("z = concat ( z_0 , … ,"), f(`z_${p.m.heads - 1} )`)), h("p", {}, t("j.concatNumbers", { h: p.m.heads, k: p.m.head_value_width, n: p.m.heads * p.m.head_value_width }))],
  async receipt(p) {
    const context = await p.get(`${p.site}.context`);
    return Promise.all(everyHead(p).map(async (head) => [`z${head}`, await contextOf(p, head), context.row(head, p.i)]));
  },
};

/** The heads' results side by side. */
async function joined(p) {
  const context = await p.get(`${p.site}.context`);
  return Float64Array.from(everyHead(p).flatMap((head) => Array.from(context.row(head, p.i))));
}

const PROJECT = {
  key: "project",
  tensor: (p) => [`${p.site}.output`, [p.i]],
  async picture(p) {
    const [z, table, output] = [await joined(p), await whole(p, `${p.site}.output.weight`), await p.get(`${p.site}.output`)];
    const size = p.m.head_value_width;
    const unit = Math.max(0.3, Math.min(9, 150 / z.length));
    const shares = everyHead(p).map((head) => length(Array.from({ length: table.shape[0] }, (_, i) => dot(table.row(i).subarray(head * size, (head + 1) * size), z.subarray(head * size, (head + 1) * size)))));
    return [
      equation(block(1, z.length, (_, j) => z[j], { label: "z", role: "out", unit }), "×", block(z.length, table.shape[0], (i, j) => table.row(j)[i], { label: "W_O", unit }), "=", block(1, table.shape[0], (_, j) => output.at(p.i, j), { label: t("j.outShort"), role: "out", unit })),
      h("h4", {}, t("j.shares")),
      bars(shares.map((value, head) => ({ label: `${t("head")} ${head}`, value, text: fmt(value, 3), mark: head === p.head, onpick: () => p.ctx.set({ head }) })), { label: t("j.shares") }),
      ...lines(p, [{ vector: output.row(p.i), label: t("j.outShort"), role: "out", onpick: p.pick(`${p.site}.output`, p.i) }]),
    ];
  },
  async numbers(p) {
    const [z, table, bias] = [await joined(p), await whole(p, `${p.site}.output.weight`), await vectorOf(p, `${p.site}.output.bias`)];
    return [formula(f(`o_i = z W_O${bias ? " + b_O" : ""}`)), sums("o[0] = "), products(p, z, table.row(0), bias?.[0], dot(z, table.row(0)) + (bias?.[0] ?? 0))];
  },
  async receipt(p) {
    const [table, bias, output] = [await whole(p, `${p.site}.output.weight`), await vectorOf(p, `${p.site}.output.bias`), await p.get(`${p.site}.output`)];
    return [["z W", linear(table, await joined(p), bias ?? undefined), output.row(p.i)]];
  },
};

/** The cards of one attention, in their order. */
export const ATTENTION = [QKV, SCORES, SCALE, MASK, SOFTMAX, SUM, HEADS, PROJECT];

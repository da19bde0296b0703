/** Cards of the journey about one attention: queries, keys, values, scores, mask, softmax, weighted sum, heads, output. */

import { fixed, fmt, h, tick } from "regard/dom-elements.js";
import { formula } from "regard/math-formulas.js";
import { matrix } from "regard/matrix-heatmap.js";
import { add, dot, entropy, length, rotate, scale, softmax } from "regard/model-arithmetic.js";
import { extra, setExtra } from "regard/selection-in-url.js";
import { t } from "regard/strings.js";
import { bars } from "regard/vector-strip.js";
import { blockOf, equation, folded, largest, products, share, sums, tableOf, turned } from "regard/views/journey-card-parts.js";

/** The tensors of the card's attention, and the rows of the followed head and token. */
async function attention(p) {
  const names = ["query", "key", "value", "scores", "scaled", "masked", "weights", "context", "output"];
  const found = await p.get(...names.map((name) => `.${name}`));
  const all = Object.fromEntries(names.map((name, n) => [name, found[n]]));
  const row = Object.fromEntries(names.slice(3, 7).map((name) => [name, all[name].row(p.head, p.i)]));
  const best = row.weights.indexOf(Math.max(...row.weights));
  return { ...all, row, j: p.sel.k >= 0 && p.sel.k < p.keys.length ? p.sel.k : best, q: all.query.row(p.head, p.i) };
}

/** A bar for each key, or for the largest; a click looks at one. */
function keyBars(p, row, label, mark, text = (x) => fixed(x, 3), high = undefined) {
  const places = largest(row, 24);
  const list = places.map((j) => ({
    label: p.labels[j],
    value: Number.isFinite(row[j]) ? row[j] : 0,
    text: text(row[j]),
    mark: j === mark,
    onpick: () => p.ctx.set({ k: j }),
  }));
  return [bars(list, { high, label }), places.length < row.length && h("p", { class: "note" }, t("j.keysMore", { n: row.length - places.length }))];
}

/** What head h gathers for the followed token, from its weights and values. */
function gathered(p, a, head) {
  const group = Math.floor(head / (p.m.heads / p.m.query_groups));
  return p.keys.reduce((sum, _, j) => add(sum, scale(a.value.row(group, j), a.weights.at(head, p.i, j))), new Float64Array(p.m.head_value_width));
}

export const ATTENTION = {
  async qkv(p) {
    const a = await attention(p);
    const rotary = p.m.positions === "rotary" && !p.cross;
    const [x, memory] = await p.get(p.pre ? `${p.residual}.norm` : p.before, p.cross ? "encoder.states" : p.pre ? `${p.residual}.norm` : p.before);
    const makes = await Promise.all(["query", "key", "value"].map(async (role, n) => {
      const [from, place, which] = n ? [memory, p.j, p.group] : [x, p.i, p.head];
      const size = a[role].shape[2];
      const made = await p.linear(`${p.site}.${role}`, from.row(place), `${which * size}:${(which + 1) * size}`);
      const letter = role[0];
      return {
        ...made,
        from,
        place,
        which,
        letter,
        row: p.row(a[role], [which, place], `${letter} ${n ? p.labels[place] : p.name}`, letter),
        again: rotary && n < 2 ? rotate(made.out, place, p.m.rotary_base) : made.out,
        all: a[role].sub(which),
      };
    }));
    const big = (each) => each.letter.toUpperCase();
    const map = (each) => h(
      "div",
      { class: "map-of" },
      equation(
        turned(`W_${big(each)}`, each.letter, each.table, { room: 130 }),
        rotary && each.letter !== "v" ? "⟲" : "→",
        blockOf(big(each), each.letter, each.all, { room: 130, mark: each.place }),
      ),
    );
    const maps = (label, list) => equation(blockOf(label, "", list[0].from, { room: 130, mark: list[0].place }), "×", ...list.map(map));
    const [first] = makes;
    return {
      of: [".query", p.head, p.i],
      variant: p.cross ? "cross" : rotary ? "rotary" : "",
      gaps: { k: [...new Set([p.m.head_width, p.m.head_value_width])].join(", ") },
      body: p.cross ? [h(
        "div",
        { class: "papers" },
        maps("X", makes.slice(0, 1)),
        h("div", { class: "paper" }, maps(t("j.memory"), makes.slice(1))),
      )] : [maps("X", makes)],
      rows: makes.map((each) => each.row),
      numbers: [
        formula(`q_i = x_i W_Q${first.bias ? " + b_Q" : ""}`),
        products(p, "q[0]", x.row(p.i), first.table.row(0), first.bias?.[0], first.out[0]),
        rotary && sums(`${fmt(first.out[0], 4)} · cos ${p.i} − ${fmt(first.out[first.out.length / 2], 4)} · sin ${p.i} = ${fmt(a.q[0], 4)}`),
      ],
      check: makes.map((each) => [each.letter, each.again, each.row.vector]),
    };
  },

  async scores(p) {
    const a = await attention(p);
    const k = a.key.row(p.group, a.j);
    const open = largest(a.row.masked, 99).filter((j) => Number.isFinite(a.row.masked[j])).sort((b, c) => a.row.masked[c] - a.row.masked[b]);
    const pair = [open[0], open[Math.floor(open.length / 2)]].sort((b, c) => b - c);
    return {
      of: [".scores", p.head, p.i],
      body: [
        equation(
          blockOf("Q", "q", a.query.sub(p.head), { mark: p.i }),
          "×",
          turned("Kᵀ", "k", a.key.sub(p.group)),
          "=",
          blockOf(t("j.scores"), "", a.scores.sub(p.head), { mark: p.i }),
        ),
        keyBars(p, a.row.scores, t("j.scores"), a.j),
      ],
      rows: [
        p.row(a.query, [p.head, p.i], `q ${p.name}`, "q"),
        p.row(a.key, [p.group, a.j], `k ${p.labels[a.j]}`, "k", "⊙"),
        { vector: a.q.map((x, n) => x * k[n]), label: `∑ = ${fmt(dot(a.q, k), 4)}`, sign: "=" },
      ],
      numbers: [formula("s_ij = q_i · k_j"), products(p, `q · k`, a.q, k, undefined, dot(a.q, k))],
      check: [["q·k", p.keys.map((_, j) => dot(a.q, a.key.row(p.group, j))), a.row.scores]],
      ask: open.length > 1 && a.row.weights[open[0]] > a.row.weights[open[Math.floor(open.length / 2)]] && [
        "scores",
        pair.map((j) => p.labels[j]),
        pair.indexOf(open[0]),
        { a: fixed(a.row.masked[open[0]], 2), b: fixed(a.row.masked[pair[1 - pair.indexOf(open[0])]], 2) },
      ],
    };
  },

  async scale(p) {
    const { row, j } = await attention(p);
    const root = Math.sqrt(p.m.head_width);
    const plain = extra("unscaled") === "1";
    const weights = softmax(row.masked.map((x) => x * (plain ? root : 1)));
    return {
      of: [".scaled", p.head, p.i],
      body: [
        tick(t("j.unscaled"), plain, (on) => setExtra({ unscaled: on ? 1 : 0 })),
        h(
          "div",
          { class: "pair" },
          h(
            "div",
            {},
            h("h4", {}, plain ? t("j.scores") : `${t("j.scores")} ÷ ${fmt(root, 4)}`),
            keyBars(p, plain ? row.scores : row.scaled, t("j.scores"), j, undefined, Math.max(...row.scores.map(Math.abs))),
          ),
          h("div", {}, h("h4", {}, t("j.thenSoftmax", { n: fmt(entropy(weights), 3) })), keyBars(p, weights, t("j.weights"), j, share, 1)),
        ),
      ],
      numbers: [formula(`{q_i · k_j|√d_k} = {${fmt(row.scores[j], 5)}|√${p.m.head_width}} = ${fmt(row.scaled[j], 5)}`)],
      check: [["÷ √d", scale(row.scores, 1 / root), row.scaled]],
      ask: ["scale", [t("j.yes"), t("j.no")], 1],
    };
  },

  async mask(p) {
    const a = await attention(p);
    const masked = a.masked.sub(p.head);
    const [rows, columns] = masked.shape;
    const open = a.row.masked.filter(Number.isFinite).length;
    const hidden = a.row.masked.some((x, k) => x === -Infinity && !(p.causal && k > p.i));
    const [j, added] = open < columns ? [a.row.masked.indexOf(-Infinity), "( −∞ )"] : [a.j, "0"];
    return {
      of: [".masked", p.head, p.i],
      variant: hidden ? "hidden" : p.cross ? "cross" : p.causal ? "causal" : "",
      body: [matrix({
        rows,
        columns,
        at: (i, k) => masked.at(i, k),
        label: t("j.mask"),
        rowLabels: p.tokens.map((token) => token.display),
        columnLabels: p.labels,
        rowTitle: t("j.asks"),
        columnTitle: t("j.answers"),
        hatched: (i, k) => masked.at(i, k) === -Infinity,
        mark: { row: p.i },
        cell: Math.max(4, Math.min(36, Math.floor(Math.min(480, innerWidth - 150) / columns))),
        onpick: (i, k) => p.microscope(a.masked, [p.head, i])(k),
      })],
      numbers: [
        formula(`m_ij = {s_ij|√d_k} + ${added} = ${fmt(a.row.scaled[j], 4)} + ${added} = ${fmt(a.row.masked[j], 4)}`),
        h("p", {}, t("j.open", { open, n: columns })),
      ],
      check: [[t("j.mask"), a.row.scaled.map((x, k) => (p.causal && k > p.i ? -Infinity : x)), a.row.masked]],
      ask: p.causal && !hidden && p.i + 1 < columns && ["mask", [String(p.i + 1), String(columns)], 0, { token: p.name, i: p.i }],
    };
  },

  async softmax(p) {
    const { row, weights, j } = await attention(p);
    const top = Math.max(...row.masked);
    const exps = Array.from(row.masked, (x) => Math.exp(x - top));
    const sum = exps.reduce((a, b) => a + b, 0);
    return {
      of: [".weights", p.head, p.i],
      body: [
        h(
          "p",
          { class: "tokens" },
          p.labels.map((label, n) => h(
            "bdi",
            { class: n === j ? "gold" : "", style: { background: `color-mix(in srgb, var(--accent) ${55 * row.weights[n]}%, transparent)` } },
            label,
          )),
        ),
        h(
          "div",
          { class: "beside" },
          h("div", {}, keyBars(p, row.weights, t("j.weights"), j, share, 1)),
          blockOf(t("j.weights"), "", weights.sub(p.head), { mark: p.i, signed: false }),
        ),
        h("p", {}, t("j.addsUp", { n: fixed(row.weights.reduce((a, b) => a + b, 0), 3), e: fmt(entropy(row.weights), 3) })),
      ],
      numbers: [
        formula(`α_ij = {exp ( m_ij − max )|∑ exp ( m_ij − max )} ; max = ${fmt(top, 4)} ; ∑ = ${fmt(sum, 5)}`),
        tableOf(
          ["", "m", "m − max", "exp", "÷ ∑"],
          largest(exps, 24).map((k) => [p.labels[k], fixed(row.masked[k], 3), fixed(row.masked[k] - top, 3), fixed(exps[k], 4), fixed(exps[k] / sum, 4)]),
        ),
      ],
      check: [["softmax", softmax(row.masked), row.weights]],
    };
  },

  async sum(p) {
    const a = await attention(p);
    const places = largest(a.row.weights, 6);
    const part = (j) => scale(a.value.row(p.group, j), a.row.weights[j]);
    const z = a.context.row(p.head, p.i);
    const others = p.keys.length - places.length;
    const column = p.keys.map((_, j) => a.value.at(p.group, j, 0));
    return {
      of: [".context", p.head, p.i],
      body: [equation(folded("α", "", a.row.weights, undefined, { signed: false }), "×", blockOf("V", "v", a.value.sub(p.group)), "=", folded("z", "out", z))],
      rows: [
        ...places.map((j, n) => p.row(a.value, [p.group, j], `${fixed(a.row.weights[j], 2)} ${p.labels[j]}`, "v", n ? "+" : "", { vector: part(j) })),
        ...(others ? [{ vector: places.reduce((sum, j) => add(sum, scale(part(j), -1)), z), label: t("j.others", { n: others }), sign: "+" }] : []),
        p.row(a.context, [p.head, p.i], "z", "out", "="),
      ],
      numbers: [formula("z_i = ∑_j α_ij v_j"), products(p, "z[0]", a.row.weights, column, undefined, dot(a.row.weights, column))],
      check: [["∑ α v", gathered(p, a, p.head), z]],
    };
  },

  async heads(p) {
    const a = await attention(p);
    const every = Array.from({ length: p.m.heads }, (_, head) => head);
    const top = (head) => a.weights.row(head, p.i).reduce((best, x, j, row) => (x > row[best] ? j : best), 0);
    const size = p.m.head_value_width;
    return {
      of: [".context"],
      variant: p.m.query_groups < p.m.heads ? "shared" : "",
      gaps: { groups: p.m.query_groups },
      body: [equation(...every.map((head) => folded(
        `z_${head}`,
        head === p.head ? "gold" : "out",
        a.context.row(head, p.i),
        undefined,
        { room: 480 / p.m.heads },
      )))],
      rows: every.map((head) => p.row(
        a.context,
        [head, p.i],
        `${t("head")} ${head}`,
        "out",
        "",
        { note: t("j.looksAt", { token: p.labels[top(head)], p: share(a.weights.at(head, p.i, top(head))) }) },
      )),
      numbers: [formula(`z = concat ( z_0 , … , z_${p.m.heads - 1} )`), sums(`${p.m.heads} × ${size} = ${p.m.heads * size}`)],
      check: every.map((head) => [`z${head}`, gathered(p, a, head), a.context.row(head, p.i)]),
    };
  },

  async project(p) {
    const a = await attention(p);
    const size = p.m.head_value_width;
    const z = Float64Array.from(Array.from({ length: p.m.heads }, (_, head) => [...a.context.row(head, p.i)]).flat());
    const { table, bias, out } = await p.linear(`${p.site}.output`, z);
    const share = (head) => length(out.map((_, n) => dot(table.row(n).subarray(head * size, (head + 1) * size), z.subarray(head * size, (head + 1) * size))));
    return {
      of: [".output", p.i],
      body: [
        equation(folded("z", "out", z), "×", turned("W_O", "", table), "=", folded(t("j.out"), "out", out)),
        h("h4", {}, t("j.shares")),
        bars(
          Array.from(
            { length: p.m.heads },
            (_, head) => ({ label: `${t("head")} ${head}`, value: share(head), mark: head === p.head, onpick: () => p.ctx.set({ head }) }),
          ),
          { label: t("j.shares") },
        ),
      ],
      rows: [p.row(a.output, [p.i], t("j.out"), "out")],
      numbers: [formula(`o_i = z W_O${bias ? " + b_O" : ""}`), products(p, "o[0]", z, table.row(0), bias?.[0], out[0])],
      check: [["z W_O", out, a.output.row(p.i)]],
    };
  },
};

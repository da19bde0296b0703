/** Cards of the journey about the residual stream: from text to vectors, sums, norms, feed-forward, the output of a stack. */

import { button, fixed, fmt, h, piece } from "regard/dom-elements.js";
import { formula } from "regard/math-formulas.js";
import { matrix } from "regard/matrix-heatmap.js";
import { ACTIVATIONS, add, cosine, length, scale } from "regard/model-arithmetic.js";
import { get } from "regard/model-data-client.js";
import { t } from "regard/strings.js";
import { bars } from "regard/vector-strip.js";
import { blockOf, both, equation, folded, largest, normed, products, sums, tableOf } from "regard/views/journey-card-parts.js";

/** All positions of the stream as a matrix, the followed one framed. */
function stream(p, tensor, label) {
  const [rows, columns] = tensor.shape;
  const room = Math.min(760, innerWidth - (innerWidth > 900 ? 460 : 140));
  return matrix({
    rows,
    columns,
    at: (i, j) => tensor.at(i, j),
    label,
    rowLabels: p.tokens.map((token) => token.display),
    rowTitle: t("j.token"),
    columnTitle: t("column"),
    mark: { row: p.i },
    cell: Math.max(3, Math.min(40, Math.floor(room / columns))),
    onpick: (i, j) => p.microscope(tensor, [i])(j),
  });
}

/** x + what a sublayer gives. */
function added(p, x, out, sum) {
  const [a, b, c] = [x, out, sum].map((tensor) => tensor.row(p.i));
  return {
    rows: [p.row(x, [p.i], "x"), p.row(out, [p.i], t("j.out"), "out", "+"), p.row(sum, [p.i], `x + ${t("j.out")}`, "", "=")],
    after: [h("p", {}, t("j.cosine", { c: fixed(cosine(a, c), 3), a: fmt(length(a)), b: fmt(length(c)), o: fmt(length(b)) }))],
    numbers: [formula("x_i + o_i"), sums(`x[0] + o[0] = ${fmt(a[0], 4)} + ${fmt(b[0], 4)} = `, h("b", {}, fmt(c[0], 5)))],
    check: [["x + o", add(a, b), c]],
  };
}

export const STREAM = {
  async text(p) {
    const { token } = p;
    const bytes = (text) => [...new TextEncoder().encode(text)].slice(0, 8).map((b) => b.toString(16).padStart(2, "0")).join(" ");
    const chip = (each, i) => button(
      [piece(each), h("small", {}, String(each.id))],
      () => p.ctx.follow(p.text, i),
      { class: i === p.i ? "gold" : "", "aria-pressed": i === p.i, "data-key": `j-token-${i}` },
    );
    return {
      body: [
        h("p", { class: "quote" }, h("bdi", { dir: "auto" }, p.run.answer.request.text)),
        h("p", { class: "sign" }, "↓"),
        h("div", { class: "pieces" }, p.tokens.map(chip)),
        h(
          "p",
          {},
          h("b", { class: "gold" }, p.name),
          ` = ${token.id}. `,
          token.special ? t("j.special") : Number.isInteger(token.start) ? t("j.offsets", { a: token.start, b: token.end, word: token.word + 1 }) : "",
        ),
      ],
      numbers: [
        h("p", {}, t("j.vocabulary", { n: p.model.vocabulary[p.text] })),
        tableOf(
          [t("j.token"), "i", "id", t("j.characters"), t("j.bytes")],
          p.tokens.map((each, i) => [
            piece(each),
            i,
            each.id,
            each.special ? "–" : `${each.start ?? ""}–${each.end ?? ""}`,
            each.special ? "" : bytes(each.text),
          ]),
          p.i,
        ),
      ],
    };
  },

  async embed(p) {
    const { id } = p.token;
    const size = p.model.vocabulary[p.text];
    const table = p.model.tables[p.text];
    const from = Math.max(0, Math.min(size - 20, id - 10));
    const [[tokens], rows, near] = await Promise.all([
      p.get(`${p.embedding}.tokens`),
      p.weight(table, `${from}:${Math.min(size, from + 20)}`),
      get(`api/embeddings/near?side=${p.text}&id=${id}&k=12`).catch(() => ({ cosine: [] })),
    ]);
    const row = rows.row(id - from);
    const factor = p.model.scale;
    return {
      of: [tokens.name, p.i],
      variant: factor === 1 ? "plain" : "",
      body: [equation(blockOf("E", "", rows, { mark: id - from, room: 300, shape: [size, p.m.width] }), h("span", { class: "note" }, t("j.tableOf", { n: size, d: p.m.width, id })))],
      rows: [{ vector: row, label: `E[${id}]` }, ...(factor === 1 ? [] : [p.row(tokens, [p.i], `E[${id}] · ${+factor.toFixed(3)}`, "out", "→")])],
      after: near.cosine.length ? [h(
        "p",
        {},
        t("j.near"),
        near.cosine.filter((each) => each.id !== id).slice(0, 6).map((each) => [
          " ",
          h("span", { class: "near" }, piece(each), h("small", {}, ` ${fixed(each.value, 2)}`)),
        ]),
      )] : [],
      numbers: [
        formula(factor === 1 ? "e_i = E_id" : "e_i = E_id · √d"),
        sums(`e[0] = ${fmt(row[0], 5)} · ${fmt(factor, 5)} = `, h("b", {}, fmt(tokens.at(p.i, 0), 5))),
      ],
      check: [["E[id]", scale(row, factor), tokens.row(p.i)]],
    };
  },

  async position(p) {
    const names = { tokens: "e", positions: "PE", segments: t("j.segment") };
    const here = Object.keys(names).filter((name) => p.run.has(`${p.embedding}.${name}`));
    const [sum, ...parts] = await p.get(...["sum", ...here].map((name) => `${p.embedding}.${name}`));
    const table = parts[here.indexOf("positions")];
    const wave = p.m.positions.startsWith("sinus") && Math.abs(table.at(p.i, 0) - Math.sin(p.i)) < 1e-4 && sums(`PE[${p.i}, 0] = sin(${p.i} / 10000^0) = ${fmt(Math.sin(p.i), 4)}`);
    const first = {
      of: [sum.name, p.i],
      variant: p.m.positions === "rotary" || p.m.positions === "none" ? p.m.positions : "",
      body: table ? [equation(blockOf("PE", "", table, { mark: p.i, room: 300 }), h("span", { class: "note" }, t("j.peTable", { i: p.i })))] : [],
      rows: [...here.map((name, n) => p.row(parts[n], [p.i], `${names[name]}[${p.i}]`, "", n ? "+" : "")), p.row(sum, [p.i], `x[${p.i}]`, "out", "=")],
      numbers: [
        formula(`x_i = ${here.map((name) => (name === "segments" ? "S" : `${names[name]}_i`)).join(" + ")}`),
        wave,
        sums(`x[0] = ${parts.map((part) => fmt(part.at(p.i, 0), 4)).join(" + ")} = `, h("b", {}, fmt(sum.at(p.i, 0), 5))),
      ],
      check: [["+", parts.map((part) => part.row(p.i)).reduce(add, new Float64Array(p.m.width)), sum.row(p.i)]],
    };
    if (!p.m.embedding_norm) return first;
    const last = await normed(p, sum, (await p.get(`${p.embedding}.norm`))[0], `${p.embedding}.norm`);
    return both(first, { ...last, rows: last.rows.slice(1) });
  },

  async into(p) {
    const [x] = await p.get(p.into);
    return { of: [p.into], body: [stream(p, x, "X")], numbers: [sums(`X: ${x.shape.join(" × ")}, ‖x[${p.i}]‖ = ${fmt(length(x.row(p.i)), 5)}`)] };
  },

  async add(p) {
    return { of: [`${p.residual}.sum`, p.i], ...added(p, ...(await p.get(p.before, ".output", `${p.residual}.sum`))) };
  },

  async norm(p) {
    const name = `${p.residual}.norm`;
    const how = { how: t(`j.norm.${p.m.norm_kind}`), shift: `${name}.bias` in p.model.weights ? t("j.norm.shift") : "" };
    return { of: [name, p.i], variant: p.pre ? "pre" : "", gaps: how, ...(await normed(p, ...(await p.get(p.pre ? p.before : `${p.residual}.sum`, name)), name)) };
  },

  async ffn(p) {
    const gated = p.m.activation === "swiglu";
    const inner = `${p.forward}_residual.norm`;
    const [x, active, output, stream] = await p.get(p.pre ? inner : p.middle, `${p.forward}.active`, `${p.forward}.output`, p.middle);
    const [from, fires, out] = [x, active, output].map((tensor) => tensor.row(p.i));
    const bend = ACTIVATIONS[p.m.activation];
    const rise = await p.linear(`${p.forward}.rise`, from);
    const gate = gated ? await p.linear(`${p.forward}.gate`, from) : null;
    const made = rise.out.map((value, n) => (gate ? value * bend(gate.out[n]) : bend(value)));
    const fall = await p.linear(`${p.forward}.fall`, made);
    const best = largest(fires, 6).sort((a, b) => Math.abs(fires[b]) - Math.abs(fires[a]));
    const silent = fires.filter((value) => Math.abs(value) < 0.001).length;
    const columns = 2 ** Math.round(Math.log2(fires.length) / 2 + 1);
    const b = (n) => (rise.bias ? ` + b_${n}` : "");
    const result = {
      of: [active.name, p.i],
      variant: gated ? "gate" : "",
      body: [
        equation(
          folded("x", "", from, columns / 2),
          "→",
          folded("x W_1", "", rise.out, columns),
          ...(gate ? ["⊙", folded(t("j.gate"), "", gate.out.map(bend), columns)] : []),
          "→",
          folded(p.m.activation, "v", fires, columns),
          "→",
          folded(t("j.out"), "out", out, columns / 2),
        ),
        h("p", {}, t("j.silent", { n: silent, of: fires.length })), h("h4", {}, t("j.neurons")),
        bars(best.map((n) => ({ label: `#${n}`, value: fires[n], onpick: () => p.microscope(active, [p.i])(n) })), { label: t("j.neurons") }),
      ],
      rows: [p.row(x, [p.i], p.pre ? "Norm(x)" : "x"), p.row(output, [p.i], t("j.out"), "out", "→")],
      numbers: [
        formula(gated ? "o = ( silu ( x W_g ) ⊙ x W_1 ) W_2" : `o = ${p.m.activation} ( x W_1${b(1)} ) W_2${b(2)}`),
        products(p, `#${best[0]}`, from, rise.table.row(best[0]), rise.bias?.[best[0]], rise.out[best[0]]),
        sums(`${p.m.activation} → `, h("b", {}, fmt(fires[best[0]], 5))),
      ],
      check: [[p.m.activation, made, fires], ["W_2", fall.out, out], ...(p.pre ? (await normed(p, stream, x, inner)).check : [])],
      ask: ["ffn", [t("j.yes"), t("j.no")], silent * 2 > fires.length ? 0 : 1, { n: silent, of: fires.length }],
    };
    return result;
  },

  async end(p) {
    const name = `${p.forward}_residual`;
    const [x, out, sum] = await p.get(p.middle, `${p.forward}.output`, `${name}.sum`);
    const go = (label, layer) => [button(t(label, { n: layer }), () => p.ctx.set({ layer, card: p.card.again }), { "data-key": label }), " "];
    const first = { of: [`${name}.${p.after}`, p.i], variant: p.pre ? "pre" : "", gaps: { next: t(p.number + 1 < p.layers ? "j.end.next" : "j.end.last", { layer: p.number }) }, ...added(p, x, out, sum) };
    if (p.number + 1 < p.layers) first.after.push(h("p", {}, go("j.nextLayer", p.number + 1), go("j.lastLayer", p.layers - 1)));
    if (p.pre) return first;
    const last = await normed(p, sum, (await p.get(`${name}.norm`))[0], `${name}.norm`);
    return both(first, { ...last, rows: last.rows.slice(1) });
  },

  async memory(p) {
    const names = [
      p.start,
      ...Array.from({ length: p.layers }, (_, layer) => `${p.stack}.layers.${layer}.feed_forward_residual.${p.after}`),
      ...(p.pre ? [`${p.stack}.states`] : []),
    ];
    const tensors = await p.get(...names);
    const states = tensors.at(-1);
    const label = (n) => (n === 0 ? t("map.embedding") : n <= p.layers ? `${t("layer")} ${n - 1}` : "Norm");
    const last = p.pre ? await normed(p, tensors.at(-2), states, `${p.stack}.norm`) : {};
    return {
      ...last,
      of: [`${p.stack}.states`],
      body: [stream(p, states, t(`j.${p.card.key}`)), h("h4", {}, t("j.layers", { token: p.name }))],
      rows: tensors.map((tensor, n) => p.row(
        tensor,
        [p.i],
        label(n),
        tensor === states ? "out" : "",
        n ? "↓" : "",
        { note: n ? `cos ${fixed(cosine(tensors[n - 1].row(p.i), tensor.row(p.i)), 2)}` : "" },
      )),
    };
  },

  states: (p) => STREAM.memory(p),

  async shift(p) {
    const next = (i) => p.run.answer.steps.find((each) => each.position === i)?.chosen;
    const cell = (token, i) => h("td", { class: i === p.i ? "gold" : i > p.i ? "future" : "" }, token ? piece(token) : "");
    const line = (label, tokens) => h("tr", {}, h("th", { scope: "row" }, t(label)), tokens.map(cell));
    const [row, place] = [await STREAM.embed(p), await STREAM.position(p)];
    return {
      ...place,
      variant: "",
      body: [h("div", { class: "scroll", tabindex: 0 }, h("table", { class: "shift" }, line("j.given", p.tokens), line("j.wanted", p.tokens.map((_, i) => next(i)))))],
      numbers: [row.numbers, place.numbers],
      check: [...row.check, ...place.check],
    };
  },
};

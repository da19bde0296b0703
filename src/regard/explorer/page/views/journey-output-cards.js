/** Cards of the journey about the output: logits, probabilities, the choice, the end, the heads of BERT, and a summary. */

import { button, fixed, fmt, h, piece, shown } from "regard/dom-elements.js";
import { formula } from "regard/math-formulas.js";
import { ACTIVATIONS, dot, length, mean, norm, scale, softmax } from "regard/model-arithmetic.js";
import { extra, setExtra } from "regard/selection-in-url.js";
import { t } from "regard/strings.js";
import { bars, strips } from "regard/vector-strip.js";
import { block, equation, folded, normed, products, share, sums, tableOf } from "regard/views/journey-card-parts.js";

/** Where nothing is predicted: the places where something is. */
const elsewhere = (p) => ({ body: [
  h("p", {}, t("j.noStep", { token: p.name })),
  h("p", {}, p.run.answer.steps.slice(0, 12).map(({ position }) => [button(shown(p.tokens[position]), () => p.ctx.follow(p.text, position)), " "])),
] });

/** The logits of the followed position; a filler never says what is part of no text. */
async function logitsOf(p) {
  const fill = p.model.task === "fill";
  const row = Float64Array.from((await p.get(fill ? "fill.logits" : "logits"))[0].row(p.i));
  if (fill) for (const id of Object.values(p.model.specials[p.text])) if (Number.isInteger(id)) row[id] = -Infinity;
  return row;
}

/** What a text is judged on. */
async function judged(p, states) {
  const { pooler } = p.m;
  if (p.model.carrier === "word") return states.row(p.i);
  if (pooler === "mean") return Float64Array.from(states.row(0), (_, c) => mean(p.tokens.map((_, i) => states.at(i, c))));
  return pooler === "none" ? states.row(0) : (await p.linear("pooler.dense", states.row(0))).out.map(pooler === "tanh" ? Math.tanh : ACTIVATIONS.relu);
}

/** The hypotheses that were compared at this step. */
function beamTable(p, { nodes, final, width }) {
  const depth = nodes[final].t - (p.run.answer.steps.at(-1).position - p.i);
  const path = (node) => (node.parent === null ? [] : [...path(nodes[node.parent]), node]);
  const kept = new Set(path(nodes[final]));
  const rows = nodes.filter((node) => node.t === depth).sort((a, b) => b.total - a.total).slice(0, 2 * width);
  return tableOf(
    [t("j.hypothesis"), "log p", "∑ log p", t("j.score"), ""],
    rows.map((node) => [
      h("bdi", {}, path(node).slice(-6).map(shown).join(" ")),
      ...[node.log_probability, node.total, node.score].map((x) => fixed(x, 3)),
      kept.has(node) ? "✓" : node.reason && t(`beam.${node.reason.split(" ")[0]}`, { n: node.t + 1 }),
    ]),
    rows.findIndex((node) => kept.has(node)),
  );
}

export const OUTPUT = {
  async logits(p) {
    if (!p.step) return elsewhere(p);
    const { top } = p.step;
    const fill = p.model.task === "fill";
    const [states, stream] = await p.get(`${p.stack}.states`, `${p.stack}.layers.${p.layers - 1}.feed_forward_residual.${p.after}`);
    let state = states.row(p.i);
    if (fill) {
      const [gain, shift] = [await p.weight("fill.norm.weight"), await p.weight("fill.norm.bias")];
      state = norm((await p.linear("fill.dense", state)).out.map(ACTIVATIONS[p.m.activation]), gain.data, shift?.data ?? null, p.m.norm_epsilon, p.m.norm_kind);
    }
    const { weight, bias } = p.model.output;
    const [size] = p.model.weights[weight];
    const words = await Promise.all(top.map(async ({ id }) => [
      (await p.weight(weight, `${id}:${id + 1}`)).data,
      bias ? (await p.weight(bias, `${id}:${id + 1}`)).data[0] : undefined,
    ]));
    const n = Math.max(0, top.findIndex((each) => String(each.id) === extra("word")));
    const [row, more] = words[n];
    const last = p.pre && !fill ? await normed(p, stream, states, `${p.stack}.norm`) : { check: [] };
    const ours = words.map(([each, b]) => dot(state, each) + (b ?? 0));
    return {
      of: [fill ? "fill.logits" : "logits", p.i],
      variant: fill ? "fill" : "",
      gaps: { tied: t(p.model.tied.output ? "j.tied" : "j.untied", { n: 1 + Object.values(p.model.tables).filter((each) => each === weight).length }) },
      body: [
        equation(folded("h", "out", state), "×", block("Eᵀ", "", state.length, top.length, (i, j) => words[j][0][i], { shape: [state.length, size] }), "=", folded(t("j.logits"), "", ours, undefined, { shape: [1, size] }), h("span", { class: "note" }, t("j.topOf", { n: top.length, of: size }))),
        bars(
          top.map((each, k) => ({ label: shown(each), value: each.logit, mark: k === n, onpick: () => setExtra({ word: each.id }) })),
          { label: t("j.logits") },
        ),
      ],
      rows: [
        fill ? { vector: state, label: "h", role: "out" } : p.row(states, [p.i], "h", "out"),
        { vector: row, label: `E ${shown(top[n])}`, sign: "⊙" },
        { vector: Array.from(row, (x, k) => x * state[k]), label: `∑ = ${fmt(dot(row, state), 4)}`, sign: "=" },
      ],
      numbers: [formula(`l_w = h · E_w${bias ? " + b_w" : ""}`), products(p, "h · E", state, row, more, ours[n])],
      check: [["h·E", ours, top.map((each) => each.logit)], ...last.check],
    };
  },

  async probabilities(p) {
    if (!p.step) return elsewhere(p);
    const { top, chosen, rest, entropy, kept, drawn } = p.step;
    const { temperature: heat, top_k, top_p, repetition_penalty: again } = p.run.answer.request.decode ?? {};
    const logits = await logitsOf(p);
    const [ours, warm] = [softmax(logits), typeof drawn === "number" && heat !== 1 ? softmax(scale(logits, 1 / heat)) : null];
    const best = logits.reduce((a, b) => Math.max(a, b));
    const sum = logits.reduce((all, x) => all + Math.exp(x - best), 0);
    const [a, b] = top;
    const gap = b ? a.logit - b.logit : 0;
    return {
      of: [p.model.task === "fill" ? "fill.logits" : "logits", p.i],
      body: [
        bars(
          top.map((each) => ({
            label: shown(each),
            value: each.probability,
            text: share(each.probability),
            mark: each.id === chosen.id,
            note: warm ? `T ${heat}: ${share(warm[each.id])}` : "",
          })),
          { high: 1, label: t("j.probabilities") },
        ),
        h(
          "p",
          {},
          t("j.rest", { r: share(rest), n: fixed(entropy, 3), w: fixed(Math.exp(entropy), 2) }),
        ), typeof drawn === "number" ? h("p", { class: "note" }, t("j.heat", { t: heat, k: top_k || "–", p: top_p, kept })) : null,
      ],
      numbers: [
        formula(`p_w = {exp ( l_w − max )|∑ exp ( l − max )} = {exp ( ${fmt(a.logit, 5)} − ${fmt(best, 5)} )|${fmt(sum, 5)}} = ${fmt(a.probability, 5)}`),
      ],
      check: (again ?? 1) === 1 ? [["softmax", top.map((each) => ours[each.id]), top.map((each) => each.probability)]] : null,
      ask: b && (again ?? 1) === 1 && ["p", [fmt(gap), fmt(a.probability / b.probability)], 1, { a: shown(a), b: shown(b), d: fixed(gap, 2), r: fmt(Math.exp(gap)) }],
    };
  },

  async choose(p) {
    if (!p.step) return elsewhere(p);
    const { beam, steps } = p.run.answer;
    const { chosen, given, drawn, kept, top, log_probability: sure } = p.step;
    const luck = typeof drawn === "number";
    const how = given ? "given" : luck ? "drawn" : beam ? "beam" : "greedy";
    return {
      body: [
        h("p", { class: "quote" }, h("b", { class: "gold" }, shown(chosen)), h("small", {}, ` p = ${fmt(Math.exp(sure ?? -Infinity))}`)),
        h("p", {}, t(`j.how.${how}`, { u: fixed(drawn ?? 0, 4), kept, n: beam?.width })), how === "beam" ? beamTable(p, beam) : null,
        p.i < steps.at(-1).position ? h(
          "p",
          {},
          button(t("j.next", { token: shown(chosen) }), () => p.ctx.set({ t: p.i + 1, card: p.card.again }), { class: "run", "data-key": "j-again" }),
        ) : h("p", { class: "note" }, t("j.lastStep")),
      ],
      numbers: top.length > 1 ? [sums(`${shown(top[0])}: ${fmt(top[0].probability, 5)} > ${shown(top[1])}: ${fmt(top[1].probability, 5)}`)] : [],
      check: how === "greedy" ? [["argmax", [top[0].id], [chosen.id]]] : null,
    };
  },

  async stop(p) {
    const { steps, text, log_probability: total, score, request, finished } = p.run.answer;
    const own = steps.filter((each) => each.log_probability !== null && (p.text === "target" || !each.given));
    let sum = 0;
    const rows = own.map((each) => [
      piece(each.chosen),
      each.position,
      fixed(Math.exp(each.log_probability), 4),
      fixed(each.log_probability, 3),
      fixed((sum += each.log_probability), 3),
    ]);
    return {
      variant: finished ? "" : "cut",
      body: [
        h("p", { class: "quote" }, h("bdi", { dir: "auto" }, text)),
        tableOf([t("j.token"), "t", "p", "log p", "∑ log p"], rows, own.indexOf(p.step)),
        own.length ? h(
          "p",
          {},
          t(
            "j.ledger",
            {
              sum: fixed(sum, 3),
              n: own.length,
              mean: fixed(sum / own.length, 3),
              p: fmt(Math.exp(sum / own.length)),
              score: fixed(score ?? sum, 3),
              alpha: request.decode.length_penalty,
            },
          ),
        ) : null,
      ],
      check: typeof total === "number" && own.length ? [["∑ log p", [sum], [total]]] : null,
    };
  },

  async label(p) {
    const [logits, states] = await p.get("label.logits", `${p.stack}.states`);
    const vector = await judged(p, states);
    const row = p.model.carrier === "word" ? logits.row(p.i) : logits.data;
    const { table, bias, out } = await p.linear("label", vector);
    const chances = softmax(row);
    return {
      of: ["label.logits", ...(p.model.carrier === "word" ? [p.i] : [])],
      body: [bars(
        p.model.labels.map((label, n) => ({
          label,
          value: chances[n],
          text: share(chances[n]),
          note: `${t("j.logits")} ${fixed(row[n], 3)}`,
          mark: chances[n] === Math.max(...chances),
        })),
        { high: 1, label: t("j.label") },
      )],
      rows: [{ vector, label: "h", role: "out" }],
      numbers: [formula("l = W h + b"), products(p, "l[0]", vector, table.row(0), bias?.[0], out[0])],
      check: [["W h", out, row]],
    };
  },

  async vector(p) {
    const [{ data }] = await p.get("vector");
    return { of: ["vector"], rows: [{ vector: data, label: t("j.vector"), role: "out", note: `‖·‖ = ${fmt(length(data), 4)}` }] };
  },

  async recap(p) {
    const [x, q, k, v, weights, z, forward, states] = await p.get(
      p.start,
      ".query",
      ".key",
      ".value",
      ".weights",
      ".context",
      `${p.forward}.output`,
      `${p.stack}.states`,
    );
    const labels = p.run.answer.labels?.find((each) => each.position === null || each.position === p.i);
    const section = (title, content) => h("section", {}, h("h4", {}, title), content);
    const shares = (rows) => bars(rows.slice(0, 6).map(([label, value, mark]) => ({ label, value, text: share(value), mark })), { high: 1 });
    return {
      body: [
        h(
          "p",
          { class: "quote" },
          h("bdi", { dir: "auto" }, p.run.answer.request.text),
          p.run.answer.text ? [" → ", h("bdi", { dir: "auto" }, p.run.answer.text)] : null,
        ),
        Object.keys(p.run.answer.tokens).map((text) => h(
          "p",
          { class: "tokens" },
          p.run.tokens(text).map((token, i) => piece(token, { class: text === p.text && i === p.i ? "gold" : "" })),
        )),
        h(
          "div",
          { class: "sheet" },
          section(t("map.embedding"), strips([p.row(x, [p.i], "x")])),
          section(
            `${t("layer")} ${p.number}, ${t("head")} ${p.head}`,
            strips([
              p.row(q, [p.head, p.i], "q", "q"),
              p.row(k, [p.group, p.j], "k", "k"),
              p.row(v, [p.group, p.j], "v", "v"),
              p.row(z, [p.head, p.i], "z", "out"),
            ]),
          ),
          section(t("j.ffn"), strips([p.row(forward, [p.i], t("j.out"), "out"), p.row(states, [p.i], "h", "out")])),
          section(t("j.weights"), shares(Array.from(weights.row(p.head, p.i), (value, j) => [p.labels[j], value]).sort((a, b) => b[1] - a[1]))),
          p.step ? section(t("j.probabilities"), shares(p.step.top.map((each) => [shown(each), each.probability, each.id === p.step.chosen.id]))) : null,
          labels ? section(t("j.label"), shares(Object.entries(labels.probabilities))) : null,
        ),
        button(t("j.print"), () => print()),
      ],
    };
  },
};

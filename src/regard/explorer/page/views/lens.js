/** What the model would say after each sublayer, and which parts spoke for the token that it chose. */

import { color, ink, scaleOf } from "regard/colors.js";
import { get } from "regard/data.js";
import { button, choice, fixed, h, percent, piece, s, shown } from "regard/dom.js";
import { figure } from "regard/figure.js";
import { extra, setExtra } from "regard/state.js";
import { t } from "regard/strings.js";
import { bars } from "regard/strip.js";
import { receipt, scrolled } from "regard/views/decoding.js";

const WINDOW = 12;

export async function render(root, ctx) {
  const { run, model } = ctx;
  const able = Object.keys(model.stacks).filter((name) => run.has(`${name}.lens.ids`));
  const stack = able.includes(ctx.sel.stack) ? ctx.sel.stack : able[able.length - 1];
  if (stack !== ctx.sel.stack) root.append(h("p", { class: "note" }, t(model.task === "translate" ? "lens.untied" : "lens.noHead", { stack: t(`stack.${ctx.sel.stack}`) })));
  const name = stack ?? ctx.sel.stack;
  const text = model.stacks[name].text;
  const view = { name, text, at: text === "source" ? ctx.sel.q : ctx.sel.t, points: run.answer.points[name], tokens: run.tokens(text) };
  if (able.length > 1) root.append(choice(t("lens.stack"), able.map((each) => [each, t(`stack.${each}`)]), name, (value) => ctx.set({ stack: value })));
  if (stack) root.append(await words(ctx, view));
  root.append(await stream(ctx, view, Boolean(stack)));
  if (run.has("attribution.logit")) root.append(await attribution(ctx));
  else if (stack) root.append(h("p", { class: "note" }, t("lens.noShares")));
}

/** A point of the residual stream for people: "1 · self-attention". */
const pointName = (point) => (point === "embedding" ? t("map.embedding") : point.replace(/layers\.(\d+)\.(\w+)/, (_, layer, part) => `${layer} · ${t(`kind.${part === "feed_forward" ? part : `${part}_attention`}`)}`));

/** How ids are written; what the answer does not tell is asked for. */
async function displays(run, side, ids) {
  const known = new Map();
  const note = (each) => known.set(each.id, each.display);
  Object.values(run.answer.tokens).flat().forEach(note);
  run.answer.steps.forEach((step) => [step.chosen, ...step.top].forEach(note));
  const missing = [...new Set(ids)].filter((id) => !known.has(id)).sort((a, b) => a - b);
  if (missing.length) {
    const found = await get(`api/embeddings/map?side=${side}&n=1&ids=${missing}`).catch(() => ({ ids: [] }));
    found.ids.forEach((id, i) => known.set(id, found.displays[i]));
  }
  return (id) => ({ display: known.get(id) ?? `#${id}` });
}

/** The best token at each point and position; the followed position in the middle. */
async function words(ctx, view) {
  const { run, b, which } = ctx;
  const base = `${view.name}.lens.`;
  const [ids, theirs, probabilities, ranks] = await Promise.all([run.tensor(base + "ids"), which === "diff" ? b.tensor(base + "ids") : null, ctx.tensor(base + "probabilities"), run.tensor(base + "rank")]);
  const count = view.tokens.length;
  const start = Math.max(0, Math.min(count - WINDOW, view.at - WINDOW / 2));
  const columns = Array.from({ length: Math.min(WINDOW, count) }, (_, i) => start + i);
  const tops = (tensor) => view.points.flatMap((_, point) => columns.map((i) => tensor.at(point, i, 0)));
  const show = await displays(run, "target" in ctx.model.embeddings ? "target" : "text", [...tops(ids), ...(theirs ? tops(theirs) : [])]);
  const scale = theirs ? scaleOf(probabilities.data, true) : { signed: false, high: 1 };
  const rows = view.points.map((point, row) =>
    h("tr", {}, h("th", { scope: "row" }, pointName(point)), columns.map((i) => {
      const [p, id, other] = [probabilities.at(row, i, 0), ids.at(row, i, 0), theirs?.at(row, i, 0)];
      const final = ranks.at(row, i) === 0;
      return h("td", { class: `word ${i === view.at ? "here" : ""}`, style: { background: color(p, scale), color: ink(p, scale) }, title: `${theirs ? fixed(p, 4) : percent(p)}, ${t("lens.rankIs", { n: ranks.at(row, i) + 1 })}`, onclick: () => ctx.follow(view.text, i) }, final ? "● " : "", piece(show(id)), other !== undefined && other !== id ? [" → ", piece(show(other))] : null);
    })),
  );
  const heads = ["", ...columns.map((i) => button(piece(view.tokens[i]), () => ctx.follow(view.text, i), { "aria-pressed": i === view.at, "data-key": `lens-${i}` }))];
  const note = [t("lens.how"), count > WINDOW ? " " + t("lens.window", { from: start, to: start + WINDOW - 1, n: count }) : ""];
  return figure(t("lens.words", { stack: t(`stack.${view.name}`) }), scrolled(t("lens.words", { stack: view.name }), heads, rows), { note, name: "lens", python: ctx.python(base + "ids") });
}

/** A small line over the points, with a dot and a number for each. */
function line(title, values, names, how = {}) {
  const [wide, high] = [Math.max(26, Math.min(60, 560 / values.length)), 90];
  const shape = how.log ? (x) => Math.log10(1 + x) : (x) => x;
  const known = values.filter((x) => x !== null).map(shape);
  const [low, top] = [Math.min(0, ...known), Math.max(...known, how.least ?? 1e-9)];
  const y = (x) => { const share = (shape(x) - low) / (top - low || 1); return 16 + (high - 34) * (how.log ? share : 1 - share); };
  const x = (i) => i * wide + wide / 2;
  const dots = values.map((value, i) => (value === null ? null : s("g", {}, s("circle", { cx: x(i), cy: y(value), r: 3.5, fill: how.color }), s("text", { x: x(i), y: y(value) - 6, "text-anchor": "middle", class: "number", fill: "var(--ink)" }, how.tell(value)), s("title", {}, `${names[i]}: ${how.tell(value)}`))));
  const d = values.map((value, i) => (value === null ? "" : `${i && values[i - 1] !== null ? "L" : "M"}${x(i)} ${y(value)}`)).join("");
  const marks = names.map((name, i) => s("text", { x: x(i), y: high - 2, "text-anchor": "middle", class: "number", fill: "var(--soft)" }, name));
  return h("div", {}, h("div", { class: "note" }, title), h("div", { class: "scroll" }, s("svg", { width: values.length * wide, height: high, role: "img", "aria-label": `${title}: ${values.map((value) => (value === null ? "–" : how.tell(value))).join(", ")}` }, s("path", { d, fill: "none", stroke: how.color, "stroke-width": 1.5 }), dots, marks)));
}

/** The followed position: rank of a candidate, length of the stream, and how far it turns. */
async function stream(ctx, view, sees) {
  const base = `${view.name}.`;
  const [norms, cosines, ranks, ids] = await Promise.all([ctx.tensor(base + "residual.norms"), ctx.tensor(base + "residual.cosines"), ...(sees ? [ctx.run.tensor(base + "lens.rank"), ctx.run.tensor(base + "lens.ids")] : [])]);
  const column = (tensor) => view.points.map((_, point) => tensor.at(point, view.at));
  const short = view.points.map((point) => (point === "embedding" ? "E" : point.replace(/layers\.(\d+)\.(\w)\w*/, "$1$2")));
  const step = view.text === "source" ? null : ctx.run.answer.steps.find((each) => each.position === view.at);
  const wanted = step?.top.find((each) => String(each.id) === extra("cand")) ?? null;
  const ranked = sees && (wanted ? view.points.map((_, point) => { const rank = ids.row(point, view.at).indexOf(wanted.id); return rank < 0 ? null : rank; }) : column(ranks));
  return figure(t("lens.stream", { token: shown(view.tokens[view.at]) }), [
    sees && step ? choice(t("lens.candidate"), [["", `${shown(step.chosen)} (${t("dec.chosen")})`], ...step.top.map((each) => [each.id, shown(each)])], wanted?.id ?? "", (id) => setExtra({ cand: id })) : null,
    sees ? line(t(wanted ? "lens.rankTop" : "lens.rank"), ranked, short, { color: "var(--gold)", log: true, least: 1, tell: (value) => String(value + 1) }) : null,
    line(t("lens.norm"), column(norms), short, { color: "var(--x)", tell: (value) => fixed(value, 1) }),
    line(t("lens.cosine"), column(cosines), short, { color: "var(--out)", tell: (value) => fixed(value, 2) }),
  ], { name: "stream", python: ctx.python(base + "residual.norms", `[:, ${view.at}]`) });
}

/** The logit of the chosen token as a sum over heads, feed-forward layers, embedding and biases. */
async function attribution(ctx) {
  const at = ctx.sel.t;
  const [heads, forward, rest, logit] = await Promise.all(["heads", "feed_forward", "rest", "logit"].map((name) => ctx.tensor(`attribution.${name}`)));
  const { layers, kinds } = ctx.model.stacks.decoder;
  const rows = [{ label: t("map.embedding"), value: rest.at(0, at) }];
  for (let layer = 0; layer < layers; layer++) {
    kinds.forEach((kind, k) => Array.from({ length: heads.shape[2] }, (_, head) => rows.push({ label: `${layer} · ${t(`kind.${kind}`)} · ${head}`, value: heads.at(k, layer, head, at), mark: ctx.sel.stack === "decoder" && ctx.sel.kind === kind && ctx.sel.layer === layer && ctx.sel.head === head, onpick: () => ctx.go("head", { stack: "decoder", kind, layer, head }) })));
    rows.push({ label: `${layer} · ${t("kind.feed_forward")}`, value: forward.at(layer, at) });
  }
  rows.push({ label: t("lens.biases"), value: rest.at(1, at) });
  const sum = rows.reduce((total, row) => total + row.value, 0);
  const least = rows.map((row) => Math.abs(row.value)).sort((a, b) => b - a)[59] ?? 0;
  const seen = rows.filter((row) => Math.abs(row.value) >= least);
  if (seen.length < rows.length) seen.push({ label: t("lens.others", { n: rows.length - seen.length }), value: sum - seen.reduce((total, row) => total + row.value, 0) });
  const step = ctx.run.answer.steps.find((each) => each.position === at);
  return figure(t("lens.shares", { token: step ? shown(step.chosen) : "?", t: at }), [bars(seen), h("p", {}, t("lens.sum", { sum: fixed(sum, 4), logit: fixed(logit.at(at), 4) })), receipt(t("lens.sumIs"), Math.abs(sum - logit.at(at)), 1e-3)], { note: t("lens.sharesNote"), name: "attribution", python: ctx.python("attribution.heads", `[..., ${at}]`) });
}

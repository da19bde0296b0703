/** Shows what the model would predict after each sublayer, and which parts raised the chosen token. */

import { pick, plot, room } from "regard/axis-charts.js";
import { color, ink, scaleOf } from "regard/color-scales.js";
import { button, choice, fixed, h, percent, piece, shown } from "regard/dom-elements.js";
import { figure } from "regard/figure-with-exports.js";
import { receipt } from "regard/math-formulas.js";
import { get } from "regard/model-data-client.js";
import { extra, state } from "regard/selection-in-url.js";
import { t } from "regard/strings.js";
import { bars } from "regard/vector-strip.js";
import { table } from "regard/views/decoding-steps.js";

const WINDOW = 12;

export async function render(root, ctx) {
  const { run, model, sel } = ctx;
  const able = Object.keys(model.stacks).filter((name) => run.has(`${name}.lens.ids`));
  const name = able.includes(state.stack) ? state.stack : (able[able.length - 1] ?? sel.stack);
  if (able.length > 1) root.append(choice(t("lens.stack"), able.map((each) => [each, t(`stack.${each}`)]), name, (stack) => ctx.set({ stack })));
  else if (!able.includes(sel.stack)) root.append(h("p", { class: "note" }, t("lens.none", { stack: t(`stack.${sel.stack}`) })));
  const { text } = model.stacks[name];
  const view = { name, text, at: text === "source" ? sel.q : sel.t, points: run.answer.points[name], tokens: run.tokens(text) };
  if (able.length) root.append(await words(ctx, view));
  root.append(await stream(ctx, view, able.length && ctx.which !== "diff"));
  root.append(run.has("attribution.logit") ? await shares(ctx) : h("p", { class: "note" }, t("lens.noShares")));
}

/** What the lens ranks at the positions of a stack: the token that follows, that fills a gap, or that stands there. */
export const ranked = (model, stack) => (stack === "decoder" ? "next" : model.task === "fill" ? "fill" : "own");

const SHORT = { self: "self", cross: "cross", feed_forward: "FF" };
const short = (point) => point.replace(/layers\.(\d+)\.(\w+)/, (_, layer, part) => `${layer} ${SHORT[part]}`);

/** How ids are written; what the answer does not tell is asked for. */
async function writing(run, side, ids) {
  const { tokens, steps } = run.answer;
  const known = new Map([...Object.values(tokens).flat(), ...steps.flatMap((step) => [step.chosen, ...step.top])].map((each) => [each.id, each.display]));
  const missing = [...new Set(ids)].filter((id) => !known.has(id)).sort((a, b) => a - b);
  const found = missing.length ? await get(`api/embeddings/map?side=${side}&n=1&ids=${missing}`).catch(() => null) : null;
  found?.ids.forEach((id, i) => known.set(id, found.displays[i]));
  return (id) => piece({ display: known.get(id) ?? `#${id}` });
}

/** The best token at each point and position, the followed one in the middle. */
async function words(ctx, view) {
  const base = `${view.name}.lens.`;
  const [ids, p, ranks, theirs] = await Promise.all([ctx.run.tensor(base + "ids"), ctx.tensor(base + "probabilities"), ctx.run.tensor(base + "rank"), ctx.which === "diff" ? ctx.b.tensor(base + "ids") : null]);
  const count = view.tokens.length;
  const start = Math.max(0, Math.min(count - WINDOW, view.at - WINDOW / 2));
  const columns = [...view.tokens.keys()].slice(start, start + WINDOW);
  const write = await writing(ctx.run, ctx.model.embeddings.target ? "target" : "text", [ids, theirs ?? ids].flatMap((tensor) => view.points.flatMap((_, point) => columns.map((i) => tensor.at(point, i, 0)))));
  const scale = theirs ? scaleOf(p.data, true) : { signed: false, high: 1 };
  const labels = ctx.labels(view.text);
  const follow = (i) => () => ctx.follow(view.text, i);
  const cell = (row, i) => {
    const [value, id, other, rank] = [p.at(row, i, 0), ids.at(row, i, 0), (theirs ?? ids).at(row, i, 0), ranks.at(row, i)];
    return h("td", { class: i === view.at ? "word here" : "word", style: { background: color(value, scale), color: ink(value, scale) }, title: theirs ? fixed(value, 4) : `${percent(value)}, ${t("lens.place", { n: rank + 1 })}`, onclick: follow(i) }, rank || theirs ? "" : "● ", write(id), other === id ? null : [" → ", write(other)]);
  };
  const heads = ["", ...columns.map((i) => button(h("bdi", { dir: "auto", class: "piece" }, labels[i]), follow(i), { "aria-pressed": i === view.at, "data-key": `lens${i}` }))];
  const title = t("lens.words", { stack: t(`stack.${view.name}`) });
  return figure(title, table(title, heads, view.points.map((point, row) => [short(point), ...columns.map((i) => cell(row, i))])), { note: `${theirs ? t("lens.diff") : `${t("lens.how")} ${t(`lens.how.${ranked(ctx.model, view.name)}`)}`} ` + (count > WINDOW ? t("lens.window", { from: start, to: start + WINDOW - 1, count }) : ""), python: ctx.python(base + "ids") });
}

/** The followed position: rank of a candidate, length of the stream, and how far it turns. */
async function stream(ctx, view, sees) {
  const base = `${view.name}.`;
  const [norms, cosines, ranks, ids] = await Promise.all([...["norms", "cosines"].map((name) => ctx.tensor(`${base}residual.${name}`)), ...(sees ? ["rank", "ids"] : []).map((name) => ctx.run.tensor(`${base}lens.${name}`))]);
  const line = (key, value, tone, how) => {
    const points = view.points.map((_, i) => [i, value(i)]).filter((each) => each[1] !== 0 || !how?.log);
    return plot({ label: t(`lens.${key}`), width: room(ctx, 300), height: 150, x: { title: t("lens.point") }, y: { title: t(`lens.${key}`), ...how }, series: [{ points, tone: `var(--${tone})`, marks: true, names: points.map(([i]) => short(view.points[i])) }] });
  };
  const at = (tensor) => (i) => tensor.at(i, view.at);
  const step = view.text === "source" ? null : ctx.run.answer.steps.find((each) => each.position === view.at);
  const wanted = step?.top.find((each) => String(each.id) === extra("follow"));
  const rank = wanted ? (i) => ids.row(i, view.at).indexOf(wanted.id) + 1 : (i) => ranks.at(i, view.at) + 1;
  return figure(t("lens.stream", { token: ctx.labels(view.text)[view.at] }), [
    sees && step ? pick("follow", t("lens.follow"), [["", `${shown(step.chosen)} ●`], ...step.top.map((each) => [each.id, shown(each)])], wanted?.id ?? "") : null,
    h("div", { class: "trends" }, sees ? line("rank", rank, "gold", { log: true, zero: true }) : null, line("norm", at(norms), "x", { zero: true }), line("cosine", at(cosines), "out")),
  ], { python: ctx.python(`${base}residual.norms`, `[:, ${view.at}]`) });
}

/** The logit of the chosen token as a sum over heads, feed-forward layers, embedding and biases. */
async function shares(ctx) {
  const at = ctx.sel.t;
  const [step, other] = [ctx.run, ctx.which === "diff" ? ctx.b : ctx.run].map((run) => run.answer.steps.find((each) => each.position === at));
  if (step?.chosen.id !== other?.chosen.id) return h("p", { class: "note" }, t("lens.differ", { t: at, a: step ? shown(step.chosen) : "–", b: other ? shown(other.chosen) : "–" }));
  const [heads, forward, rest, logit] = await Promise.all(["heads", "feed_forward", "rest", "logit"].map((name) => ctx.tensor(`attribution.${name}`)));
  const rows = [{ label: t("map.embedding"), value: rest.at(0, at) }, { label: t("lens.biases"), value: rest.at(1, at) }];
  for (let layer = 0; layer < forward.shape[0]; layer++) {
    ctx.model.stacks.decoder.kinds.forEach((kind, k) => {
      for (let head = 0; head < heads.shape[2]; head++) rows.push({ label: `${layer} ${kind.split("_")[0]} ${head}`, value: heads.at(k, layer, head, at), onpick: () => ctx.go("head", { stack: "decoder", kind, layer, head }) });
    });
    rows.push({ label: `${layer} FF`, value: forward.at(layer, at) });
  }
  const sum = (list) => list.reduce((total, row) => total + row.value, 0);
  const least = rows.map((row) => Math.abs(row.value)).sort((a, b) => b - a)[59] ?? 0;
  const seen = rows.filter((row) => Math.abs(row.value) >= least);
  if (seen.length < rows.length) seen.push({ label: t("lens.others", { n: rows.length - seen.length }), value: sum(rows) - sum(seen) });
  return figure(t("lens.shares", { token: shown(step?.chosen ?? { text: "?" }), t: at }), [bars(seen), receipt(`Σ = ${fixed(sum(rows), 4)}, logit = ${fixed(logit.at(at), 4)}`, Math.abs(sum(rows) - logit.at(at)), 1e-3)], { note: t("lens.frozen"), python: ctx.python("attribution.heads", `[..., ${at}]`) });
}
